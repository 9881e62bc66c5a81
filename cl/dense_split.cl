// Dense attention of a few queries over many keys: the keys are split among work-groups, K and V are read where they lie.
//
//   dense_split  a work-group owns `span` keys of one head of keys and values, for BM of the queries that read it:
//                row r = query r % queries of the head's query head r / queries. Writes m, l and l*O of its keys
//   dense_merge  a work-group owns one query: parts joined by their log-sum-exp
//
// States lie as [B, H, queries, parts]: two floats (m, l), and DVP floats of values.
// Values of a block: work-item lid owns columns of VW floats; with more work-items than columns, KEY_LANES of them
// share a column and take every KEY_LANES-th key.
//
// Defines: those of attention.h, with BM = TM = rows at a time, TNV = 1; HAS_BIAS, HAS_LSE 0|1.
// Local memory (WG > 1): that of attention.h, plus WG*VW floats.
#include "attention.h"

#if !defined(HAS_BIAS) || !defined(HAS_LSE)
#error "HAS_BIAS, HAS_LSE: 0 or 1"
#endif

#define COLUMNS (DVP / VW)
#define KEY_LANES (WG >= COLUMNS ? WG / COLUMNS : 1)
#define COLUMNS_EACH CEIL_DIV(COLUMNS, WG)

typedef struct few {
    int queries, parts, count; // count: rows of this block
    long row0;                 // first of them
} few;

inline int query_of(const few f, const int row) { return (f.row0 + row) % f.queries; }
inline long head_of(const few f, const int row) { return (f.row0 + row) / f.queries; }

// A vector of a row of `width` elements, lanes past its end 0 and not read.
inline V load_some(__global const STORAGE(TYPE_Q) *row, const int at, const int width) {
    if (at + VW <= width)
        return VLOAD(TYPE_Q, row, at);
    float lane[VW];
    for (int e = 0; e < VW; e++)
        lane[e] = at + e < width ? LOAD(TYPE_Q, row, at + e) : 0.0f;
    return RAW_LOAD(lane);
}

// Scores of one key for all rows: a column of s.
inline void score_key(SHARED float *s, SHARED const float *qs, __global const STORAGE(TYPE_Q) *k) {
    V sum[BM];
    UNROLL for (int i = 0; i < BM; i++) sum[i] = (V)(0.0f);
    int d = 0;
    for (; d + VW <= D; d += VW) {
        const V x = VLOAD(TYPE_Q, k, d);
        UNROLL for (int i = 0; i < BM; i++) sum[i] = fma(RAW_LOAD(qs + i * D + d), x, sum[i]);
    }
    float total[BM];
    UNROLL for (int i = 0; i < BM; i++) total[i] = vsum(sum[i]);
    for (; d < D; d++) {
        const float x = LOAD(TYPE_Q, k, d);
        UNROLL for (int i = 0; i < BM; i++) total[i] = fma(qs[i * D + d], x, total[i]);
    }
    UNROLL for (int i = 0; i < BM; i++) s[i * SLD] = total[i];
}

// acc = c acc + P V. A weight of 0 is a key that its row does not see: not to be read into it.
inline void split_values(V acc[COLUMNS_EACH][BM], SHARED const float *p, const rows r,
                         __global const STORAGE(TYPE_Q) *v, const long v_row, const int columns, const int lid) {
    const int lane = KEY_LANES > 1 ? lid / COLUMNS : 0;
    UNROLL_GPU for (int n = 0; n < COLUMNS_EACH; n++) {
        const int column = KEY_LANES > 1 ? lid % COLUMNS : n * WG + lid;
        const int past = max(column - COLUMNS, lane - KEY_LANES);
        if (past >= 0)
            continue;
        V c[BM];
        UNROLL for (int i = 0; i < BM; i++) c[i] = acc[n][i] * r.c[i];
        for (int j = lane; j < columns; j += KEY_LANES) {
            const V x = load_some(v + j * v_row, column * VW, DV);
            UNROLL for (int i = 0; i < BM; i++) {
                const float weight = p[i * SLD + j];
                c[i] = weight == 0.0f ? c[i] : fma((V)(weight), x, c[i]);
            }
        }
        UNROLL for (int i = 0; i < BM; i++) acc[n][i] = c[i];
    }
}

// Where the state of a row lies; of the head of keys and values whose rows begin at `base`.
inline long state_of(const few f, const long base, const int row, const int part) {
    return (base + f.row0 + row) * f.parts + part;
}

#if WG == 1
inline void write_values(V acc[COLUMNS_EACH][BM], __global float *to, const few f, const long base, const int part) {
    for (int i = 0; i < f.count; i++)
        for (int column = 0; column < COLUMNS; column++)
            RAW_STORE(acc[column][i], to + state_of(f, base, i, part) * DVP + column * VW);
}
#else
// The lanes of a column meet in local memory, a row at a time.
inline void write_values(V acc[COLUMNS_EACH][BM], __global float *to, const few f, const long base, const int part,
                         SHARED float *meet, const int lid) {
    for (int i = 0; i < BM; i++) {
        UNROLL for (int n = 0; n < COLUMNS_EACH; n++) {
            RAW_STORE(acc[n][i], meet + lid * VW);
            SYNC;
            const int column = n * WG + lid;
            if (column < COLUMNS && i < f.count) {
                V sum = acc[n][i];
                for (int lane = 1; lane < KEY_LANES; lane++)
                    sum += RAW_LOAD(meet + (lane * COLUMNS + lid) * VW);
                RAW_STORE(sum, to + state_of(f, base, i, part) * DVP + column * VW);
            }
            SYNC;
        }
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_split(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const STORAGE(TYPE_Q) *k,
            const long k_offset, __global const STORAGE(TYPE_Q) *v, const long v_offset, __global float *values,
            const long values_offset, __global float *states, const long states_offset, __global const float *bias,
            const long bias_offset, __global const int *key_lengths, const long key_lengths_offset,
            __global const int *query_lengths, const long query_lengths_offset, const int queries, const int keys,
            const int heads_per_kv, const float scale, const int left, const int right, const int bottom_right,
            const int parts, const int span, const long q_batch, const long q_head, const long q_row,
            const long k_batch, const long k_head, const long k_row, const long v_batch, const long v_head,
            const long v_row, const long bias_batch, const long bias_head, const long bias_row, const long bias_key) {
    SHARED float qs[BM * D] ALIGNED, s[BM * SLD] ALIGNED, m[BM], l[BM], c[BM];
    SHARED int2 visible[BM];
#if WG > 1
    SHARED float meet[WG * VW] ALIGNED;
#endif
    V acc[COLUMNS_EACH][BM];
    const int lid = get_local_id(0), part = get_group_id(0);
    const long all_rows = (long)queries * heads_per_kv, blocks = CEIL_DIV(all_rows, BM);
    const long kv = get_group_id(1) / blocks, row0 = get_group_id(1) % blocks * BM, b = get_group_id(2);
    const few f = {queries, parts, (int)min((long)BM, all_rows - row0), row0};
    const long base = (b * (get_num_groups(1) / blocks) + kv) * all_rows;
    const sequence seq = sequence_of(b, queries, keys, query_lengths, query_lengths_offset, key_lengths,
                                     key_lengths_offset, bottom_right);
    const rows r = {m, l, c, visible};

    q += q_offset + b * q_batch + kv * heads_per_kv * q_head;
    k += k_offset + b * k_batch + kv * k_head;
    v += v_offset + b * v_batch + kv * v_head;
    for (int i = lid; i < BM; i += WG)
        visible[i] = i < f.count ? visible_keys(seq, query_of(f, i), left, right) : (int2)(0, 0);
    rows_init(r, lid);
    for (int i = 0; i < BM; i++) {
        const bool real = i < f.count && query_of(f, i) < seq.queries; // padding is not read
        for (int d = lid; d < D; d += WG)
            qs[i * D + d] = real ? LOAD(TYPE_Q, q, head_of(f, i) * q_head + query_of(f, i) * q_row + d) * scale * LOG2E : 0.0f;
    }
    UNROLL_GPU for (int n = 0; n < COLUMNS_EACH; n++) {
        UNROLL for (int i = 0; i < BM; i++) acc[n][i] = (V)(0.0f);
    }
    SYNC;

    const int4 u = visible_union(visible, BM);
    const int begin = max(u.x, part * span), end = (int)min((long)u.y, (long)part * span + span);
    for (int first = begin; first < end; first += BN) {
        const int columns = min(BN, end - first);
        for (int j = lid; j < columns; j += WG)
            score_key(s + j, qs, k + (first + j) * k_row);
        SYNC;
#if HAS_BIAS
        for (int i = 0; i < f.count; i++) {
            __global const float *row = bias + bias_offset + b * bias_batch +
                                        (kv * heads_per_kv + head_of(f, i)) * bias_head + query_of(f, i) * bias_row;
            const int lo = max(visible[i].x - first, 0), hi = min(visible[i].y - first, columns);
            for (int j = lo + lid; j < hi; j += WG)
                s[i * SLD + j] += row[(first + j) * bias_key] * LOG2E;
        }
        SYNC;
#endif
        for (int i = lid; i < BM; i += WG)
            softmax_row(s + i * SLD, visible[i].x - first, min(visible[i].y - first, columns), ROUND_UP(columns, VW),
                        m + i, l + i, c + i);
        SYNC;
        split_values(acc, s, r, v + first * v_row, v_row, columns, lid);
        SYNC;
    }
    for (int i = lid; i < f.count; i += WG)
        vstore2((float2)(m[i], l[i]), state_of(f, base, i, part), states + states_offset);
#if WG == 1
    write_values(acc, values + values_offset, f, base, part);
#else
    write_values(acc, values + values_offset, f, base, part, meet, lid);
#endif
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_merge(__global const float *values, const long values_offset, __global const float *states,
            const long states_offset, __global STORAGE(TYPE_O) *o, const long o_offset, __global float *lse,
            const long lse_offset, const int parts, const long o_batch, const long o_head, const long o_row,
            const long lse_batch, const long lse_head, const long lse_row) {
    const long i = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    const long at = ((b * get_num_groups(1) + h) * get_num_groups(0) + i) * parts;
    const int lid = get_local_id(0);
    states += states_offset + at * 2;
    values += values_offset + at * DVP;
    o += o_offset + b * o_batch + h * o_head + i * o_row;
    float m = -INFINITY, l = 0.0f;
    for (int part = 0; part < parts; part++)
        m = fmax(m, states[2 * part]);
    const float base = m == -INFINITY ? 0.0f : m;
    for (int part = 0; part < parts; part++)
        l += EXP2(states[2 * part] - base) * states[2 * part + 1];
    for (int column = lid; column < COLUMNS; column += WG) {
        V sum = (V)(0.0f);
        for (int part = 0; part < parts; part++)
            sum = fma((V)(EXP2(states[2 * part] - base)), RAW_LOAD(values + (long)part * DVP + column * VW), sum);
        store_some(o + column * VW, l == 0.0f ? (V)(0.0f) : sum / l, DV - column * VW);
    }
#if HAS_LSE
    if (lid == 0)
        lse[lse_offset + b * lse_batch + h * lse_head + i * lse_row] = (l == 0.0f ? -INFINITY : m + log2(l)) * LN2;
#endif
}
