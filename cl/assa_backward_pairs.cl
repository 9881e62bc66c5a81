// Gradients that every visible pair has a part in, S = scale Q K^T + bias computed again pair by pair:
//
//   FORM 0 (softmax)  A = P                       dS = P (G - D1)
//   FORM 1 (mixed)    A = w0 P + w1 relu(S)^2     dS = w0 P (G - D1) + 2 w1 relu(S) G
//   FORM 2 (rest)     dV is left out              dS = -P c, what top-k over all keys' softmax adds to its lists
//
// with G = dO . V, D1 = sum P G and D2 = sum relu(S)^2 G of a query, c what assa_backward_weights summed.
//
//   assa_backward_pairs_queries  dQ = scale dS K, and D1 (or c), D2: a work-item owns a query. Both are divided by sum P, which
//                                is 1 but for rounding
//   assa_backward_pairs_keys     dK = scale dS^T Q, dV = A^T dO: a work-item owns a key, over the heads that share it
//   assa_backward_pairs_table    the bias table: a work-item owns an entry of a head, over all windows
//   assa_backward_pairs_mix      w, through its softmax: one work-item
//
// Each gradient has one writer, which adds in one order. lse [B, H, tokens], natural.
// Defines: those of pair.h; FORM 0|1|2; WINDOW 0|1 (1: q, k, v, dO are whole grids, see window.h); TYPE_G storage of the
// gradients of table and w.
#include "pair.h"
#include "mask.h"
#include "window.h"

#if !defined(FORM) || !defined(WINDOW) || !defined(TYPE_G)
#error "FORM, WINDOW, TYPE_G: see the head of assa_backward_pairs.cl"
#endif

#define APART (-100.0f * LOG2E)

// One head of one sequence or window.
typedef struct scene {
    row_view q, k, v, o;
    window w;
    sequence seq;
    int right;
    float scale;
    float2 mix; // softmax(w)
    __global const float *table; // as assa_table wrote it: units of log2, lines backwards
    __global const float *lse, *sums;
} scene;

// softmax(w) from what assa_mix wrote.
inline float2 mix_of(__global const float *mix) { return (float2)(mix[0], mix[1] * (LOG2E * LOG2E)); }

#define SCENE_PARAMETERS                                                                                               \
    VIEW_PARAMETERS(q), VIEW_PARAMETERS(k), VIEW_PARAMETERS(v), VIEW_PARAMETERS(grad_o), __global const float *lse,    \
        const long lse_offset, __global const float *sums, const long sums_offset, __global const float *mix,          \
        const long mix_offset, __global const float *table, const long table_offset,                                   \
        __global const int *key_lengths, const long key_lengths_offset, __global const int *query_lengths,             \
        const long query_lengths_offset, const int queries, const int keys, const int heads, const int heads_per_kv,   \
        const long tokens, const float scale, const int right, const int bottom_right, WINDOW_PARAMETERS

#if WINDOW
#define TOKEN(w, t) window_token(w, t)
#define WINDOWS windows_of(side, grid_rows, grid_columns)
#define PLACE window_at((int)(part % WINDOWS), side, grid_rows, grid_columns, shift)
#else
#define TOKEN(w, t) ((long)(t))
#define WINDOWS 1
#define PLACE ((window){1, 1, 1, 0, 0, 0, 0})
#endif

// The scene of head h of part `part`: a sequence, or a window of one.
#define SCENE(h, part)                                                                                                 \
    (scene) {                                                                                                          \
        VIEW(q, (part) / WINDOWS, h), VIEW(k, (part) / WINDOWS, (h) / heads_per_kv),                                   \
            VIEW(v, (part) / WINDOWS, (h) / heads_per_kv), VIEW(grad_o, (part) / WINDOWS, h), PLACE,                   \
            sequence_of((part) / WINDOWS, queries, keys, query_lengths, query_lengths_offset, key_lengths,             \
                        key_lengths_offset, bottom_right),                                                             \
            right, scale, mix ? mix_of(mix + mix_offset) : (float2)(1.0f, 0.0f),                                       \
            WINDOW ? table + table_offset + (h) * (2 * side - 1) * (2 * side - 1) : table,                             \
            lse + lse_offset + ((part) / WINDOWS * heads + (h)) * tokens,                                              \
            sums ? sums + sums_offset + ((part) / WINDOWS * heads + (h)) * tokens : sums                               \
    }

#if WINDOW
inline float bias_of(const scene s, const int i, const int j) {
    const int side = s.w.side, yi = i / side, xi = i % side, yj = j / side, xj = j % side;
    const bool apart = (s.w.split_y > 0 && (yi < s.w.split_y) != (yj < s.w.split_y)) ||
                       (s.w.split_x > 0 && (xi < s.w.split_x) != (xj < s.w.split_x));
    return s.table[(yi - yj + side - 1) * (2 * side - 1) + side - 1 - xi + xj] + (apart ? APART : 0.0f);
}
#else
inline float bias_of(const scene s, const int i, const int j) { return 0.0f; }
#endif

// p softmax weight, r relu(S), g = dO . V.
typedef struct pair {
    float p, r, g;
} pair;

inline pair pair_of(const scene s, const int i, const int j) {
    const long qi = TOKEN(s.w, i), kj = TOKEN(s.w, j);
    const float score = row_dot(s.q, qi, s.k, kj, D) * (s.scale * LOG2E) + bias_of(s, i, j);
    return (pair){exp2(score - s.lse[qi] * LOG2E), fmax(score, 0.0f) * LN2,
                  FORM == 2 ? 0.0f : row_dot(s.o, qi, s.v, kj, DV)};
}

// sum: D1 of the query, or c.
inline float gradient_of(const scene s, const pair x, const float sum) {
    if (FORM == 1)
        return s.mix.x * x.p * (x.g - sum) + 2.0f * s.mix.y * x.r * x.g;
    return FORM == 2 ? -x.p * sum : x.p * (x.g - sum);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_queries(SCENE_PARAMETERS, __global float *first, const long first_offset, __global float *second,
                            const long second_offset, GRADIENT_PARAMETERS(grad_q)) {
    const int i = get_group_id(0);
    const long h = get_group_id(1), part = get_group_id(2), b = part / WINDOWS;
    const scene s = SCENE(h, part);
    const int2 visible = visible_keys(s.seq, i, -1, right);
    const long token = TOKEN(s.w, i), at = (b * heads + h) * tokens + token;
    float sum = 0.0f, total = 0.0f, squares = 0.0f;
    for (int j = visible.x; j < visible.y; j++) {
        const pair x = pair_of(s, i, j);
        total += x.p;
        sum = fma(x.p, x.g, sum);
        squares = fma(x.r * x.r, x.g, squares);
    }
    sum = total == 0.0f ? 0.0f : (FORM == 2 ? s.sums[token] : sum) / total; // so that a row of dS sums to 0
    float acc[ROUND_UP(D, VW)] ALIGNED;
    row_clear(acc, D);
    for (int j = visible.x; j < visible.y; j++)
        row_add(acc, gradient_of(s, pair_of(s, i, j), sum) * scale, s.k, TOKEN(s.w, j), D);
    row_store(grad_q, ROW_OF(grad_q, b, h, token), acc, D);
    first[first_offset + at] = sum;
    if (FORM != 2)
        second[second_offset + at] = squares;
}

// sums: D1 of each query as assa_backward_pairs_queries left it, or c.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_keys(SCENE_PARAMETERS, GRADIENT_PARAMETERS(grad_k), GRADIENT_PARAMETERS(grad_v)) {
    const int j = get_group_id(0);
    const long kv = get_group_id(1), part = get_group_id(2), b = part / WINDOWS;
    const long token = TOKEN(PLACE, j);
    float acc_k[ROUND_UP(D, VW)] ALIGNED, acc_v[ROUND_UP(DV, VW)] ALIGNED;
    row_clear(acc_k, D);
    row_clear(acc_v, DV);
    for (long h = kv * heads_per_kv; h < (kv + 1) * heads_per_kv; h++) {
        const scene s = SCENE(h, part);
        for (int i = 0; i < s.seq.queries; i++) {
            const int2 visible = visible_keys(s.seq, i, -1, right);
            if (j < visible.x || j >= visible.y)
                continue;
            const long query = TOKEN(s.w, i);
            const pair x = pair_of(s, i, j);
            row_add(acc_k, gradient_of(s, x, s.sums[query]) * scale, s.q, query, D);
            if (FORM != 2)
                row_add(acc_v, FORM == 1 ? s.mix.x * x.p + s.mix.y * x.r * x.r : x.p, s.o, query, DV);
        }
    }
    row_store(grad_k, ROW_OF(grad_k, b, kv, token), acc_k, D);
    if (FORM != 2)
        row_store(grad_v, ROW_OF(grad_v, b, kv, token), acc_v, DV);
}

#if WINDOW
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_table(SCENE_PARAMETERS, __global STORAGE(TYPE_G) *grad, const long grad_offset, const long parts,
                          const int add) {
    const int line = 2 * side - 1, entry = get_group_id(0), dy = entry / line - (side - 1), dx = entry % line - (side - 1);
    const long h = get_group_id(1), at = grad_offset + (long)entry * heads + h;
    float total = 0.0f;
    for (long part = 0; part < parts; part++) {
        const scene s = SCENE(h, part);
        for (int y = max(dy, 0); y < side + min(dy, 0); y++)
            for (int x = max(dx, 0); x < side + min(dx, 0); x++) {
                const int i = y * side + x, j = (y - dy) * side + x - dx;
                total += gradient_of(s, pair_of(s, i, j), s.sums[TOKEN(s.w, i)]);
            }
    }
    STORE(TYPE_G, grad, at, add ? LOAD(TYPE_G, grad, at) + total : total);
}
#endif

// first, second: D1 and D2 of all `count` queries; mix: as assa_mix wrote it.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_mix(__global const float *first, const long first_offset, __global const float *second,
                        const long second_offset, __global const float *mix, const long mix_offset,
                        __global STORAGE(TYPE_G) *grad, const long grad_offset, const long count, const int add) {
    float sum[2] = {0.0f, 0.0f}, lost[2] = {0.0f, 0.0f};
    for (long i = 0; i < count; i++) {
        const float next[2] = {first[first_offset + i], second[second_offset + i]};
        for (int t = 0; t < 2; t++) { // the rounding error is carried along
            const float x = next[t] - lost[t], now = sum[t] + x;
            lost[t] = (now - sum[t]) - x;
            sum[t] = now;
        }
    }
    const float2 m = mix_of(mix + mix_offset);
    const float both[2] = {m.x, m.y}, mean = m.x * sum[0] + m.y * sum[1];
    for (int t = 0; t < 2; t++) {
        const float g = both[t] * (sum[t] - mean);
        STORE(TYPE_G, grad, grad_offset + t, add ? LOAD(TYPE_G, grad, grad_offset + t) + g : g);
    }
}
