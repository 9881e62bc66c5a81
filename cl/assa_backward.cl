// Gradients of top-k attention from the lists that forward saved.
//
//   assa_backward_weights    P and dS of each kept pair: a work-item owns a query. Of all visible keys' softmax
//                            (NORMALISE_ALL) dS is only the part that the kept pair itself gives, P G; the rest, -P c
//                            for every visible key with c = sum P G, is that of assa_backward_pairs.cl
//   assa_backward_queries    dQ: a work-item owns a query
//   assa_backward_transpose  the kept pairs in the order of keys, a key's in that of queries: a work-item owns a head
//   assa_backward_keys       dK and dV: a work-item owns a key, however many queries of its heads chose it
//
// Q, K, V and dO are packed as rows (pack.cl): a gathered row is a few whole vectors, and a head's rows are neighbours.
// rest_q, rest_k (NORMALISE_ALL): that part of dQ and dK, in f32; they may be where dQ and dK go.
// A query's P and dS are k floats rounded up to VW, 0 behind its pairs. In the order of keys a head has queries*k
// places for a pair's query, P and dS. Each gradient has one writer, which adds in one order.
// Defines: those of attention.h; NORMALISE_ALL 0|1.
#include "attention.h"

#ifndef NORMALISE_ALL
#error "NORMALISE_ALL: 0 or 1"
#endif

#define DP ROUND_UP(D, TN)
#define PART 8 // vectors of a row that a work-item sums at a time, in registers
#define PARTS(width) CEIL_DIV((width) / VW, PART)
#define PART_VECTORS(width, part) ((width) / VW % PART == 0 ? PART : min(PART, (width) / VW - (part) * PART))

#define GRADIENT_PARAMETERS(x)                                                                                         \
    __global STORAGE(TYPE_O) *x, const long x##_offset, const long x##_batch, const long x##_head, const long x##_row
#define SUM_PARAMETERS(x)                                                                                              \
    __global const float *x, const long x##_offset, const long x##_batch, const long x##_head, const long x##_row
#define ROW_OF(x, b, h, i) (x##_offset + (b) * x##_batch + (h) * x##_head + (i) * x##_row)

// Of a query's list: keys that are there come first.
inline int count_keys(__global const int *indices, const int k, const int keys) {
    int count = 0;
    while (count < k && indices[count] >= 0 && indices[count] < keys)
        count++;
    return count;
}

inline float row_dot(__global const float *a, __global const float *b) {
    V sum[2] = {(V)(0.0f), (V)(0.0f)};
    int v = 0;
    UNROLL for (; v < DV / VW; v++) sum[v % 2] = fma(RAW_LOAD(a + v * VW), RAW_LOAD(b + v * VW), sum[v % 2]);
    float total = vsum(sum[0] + sum[1]);
    for (int c = v * VW; c < DV; c++) // padding is not read
        total = fma(a[c], b[c], total);
    return total;
}

// acc += factor e times row number e, for `count` of them.
inline void add_rows(V acc[PART], __global const float *factors, __global const int *numbers, const int count,
                     __global const float *rows, const int width, const int part) {
    const int vectors = PART_VECTORS(width, part);
    for (int e = 0; e < count; e++) {
        const V factor = (V)(factors[e]);
        __global const float *row = rows + (long)numbers[e] * width + part * (PART * VW);
        UNROLL for (int v = 0; v < PART; v++) {
            if (v < vectors)
                acc[v] = fma(factor, RAW_LOAD(row + v * VW), acc[v]);
        }
    }
}

inline void clear_part(V acc[PART]) {
    UNROLL for (int v = 0; v < PART; v++) { acc[v] = (V)(0.0f); }
}

// A part of a gradient's row of `size` columns: acc times scale, and what `rest` has for it.
inline void store_part(V acc[PART], const float scale, __global const float *rest, __global STORAGE(TYPE_O) *to,
                       const int size, const int part) {
    UNROLL for (int v = 0; v < PART; v++) {
        const int column = (part * PART + v) * VW;
        V x = acc[v] * scale;
        if (rest) {
            float lane[VW];
            for (int e = 0; e < VW; e++)
                lane[e] = column + e < size ? rest[column + e] : 0.0f;
            x += RAW_LOAD(lane);
        }
        if (column < size)
            store_some(to + column, x, size - column);
    }
}

// Scores of a list become P, whose `width` places hold 0 behind it.
inline void softmax_list(__global const float *scores, __global float *p, const int count, const int width,
                         const float lse) {
    for (int e = 0; e < width; e++)
        p[e] = e < count ? scores[e] : -INFINITY;
    V most = (V)(-INFINITY), sum = (V)(0.0f);
    for (int e = 0; e < width; e += VW)
        most = fmax(most, RAW_LOAD(p + e));
    const float base = NORMALISE_ALL ? lse : vmax(most);
    for (int e = 0; e < width; e += VW) {
        const V x = EXP2((RAW_LOAD(p + e) - base) * LOG2E);
        sum += x;
        RAW_STORE(x, p + e);
    }
    const V total = (V)(vsum(sum));
    for (int e = 0; e < width && !NORMALISE_ALL; e += VW)
        RAW_STORE(RAW_LOAD(p + e) / total, p + e);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_weights(__global const float *o_rows, const long o_offset, __global const float *v_rows,
                      const long v_offset, __global const int *indices, const long indices_offset,
                      __global const float *scores, const long scores_offset, __global const float *lse,
                      const long lse_offset, __global float *weights, const long weights_offset,
                      __global float *grad_s, const long grad_s_offset, __global float *sums, const long sums_offset,
                      const int queries, const int keys, const int heads, const int k, const int heads_per_kv) {
    const long i = get_group_id(0), h = get_group_id(1), b = get_group_id(2), row = (b * heads + h) * queries + i;
    const int line = ROUND_UP(k, VW);
    __global const float *o = o_rows + o_offset + row * DVP;
    __global const float *values = v_rows + v_offset + (b * heads + h) / heads_per_kv * keys * DVP;
    indices += indices_offset + row * k;
    weights += weights_offset + row * line;
    grad_s += grad_s_offset + row * line;
    const int count = count_keys(indices, k, keys), width = ROUND_UP(count, VW);
    softmax_list(scores + scores_offset + row * k, weights, count, width,
                 NORMALISE_ALL ? lse[lse_offset + row] : 0.0f);
    for (int e = 0; e < count; e++)
        grad_s[e] = row_dot(o, values + (long)indices[e] * DVP);
    for (int e = count; e < line; e++)
        weights[e] = grad_s[e] = 0.0f;
    V sums_pg = (V)(0.0f), sums_p = (V)(0.0f);
    for (int e = 0; e < width; e += VW) {
        const V p = RAW_LOAD(weights + e), pg = p * RAW_LOAD(grad_s + e);
        sums_p += p;
        sums_pg += pg;
        RAW_STORE(pg, grad_s + e);
    }
    float sum = vsum(sums_pg);
    if (!NORMALISE_ALL && count > 0)
        sum /= vsum(sums_p); // 1 but for rounding: so that a row of dS sums to 0
    for (int e = 0; e < width && !NORMALISE_ALL; e += VW)
        RAW_STORE(RAW_LOAD(grad_s + e) - RAW_LOAD(weights + e) * sum, grad_s + e);
    sums[sums_offset + row] = sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_queries(__global const float *k_rows, const long k_offset, __global const int *indices,
                      const long indices_offset, __global const float *grad_s, const long grad_s_offset,
                      SUM_PARAMETERS(rest_q), GRADIENT_PARAMETERS(grad_q), const int queries, const int keys,
                      const int heads, const int k, const int heads_per_kv, const float scale) {
    const long i = get_group_id(0), h = get_group_id(1), b = get_group_id(2), row = (b * heads + h) * queries + i;
    indices += indices_offset + row * k;
    grad_s += grad_s_offset + row * ROUND_UP(k, VW);
    const int count = count_keys(indices, k, keys);
    __global const float *rows = k_rows + k_offset + (b * heads + h) / heads_per_kv * keys * DP;
    __global const float *rest = NORMALISE_ALL ? rest_q + ROW_OF(rest_q, b, h, i) : 0;
    for (int part = 0; part < PARTS(DP); part++) {
        V acc[PART];
        clear_part(acc);
        add_rows(acc, grad_s, indices, count, rows, DP, part);
        store_part(acc, scale, rest, grad_q + ROW_OF(grad_q, b, h, i), D, part);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_transpose(__global const int *indices, const long indices_offset, __global const float *weights,
                        const long weights_offset, __global const float *grad_s, const long grad_s_offset,
                        __global int *starts, const long starts_offset, __global int *key_queries,
                        const long key_queries_offset, __global float *key_weights, const long key_weights_offset,
                        __global float *key_grad_s, const long key_grad_s_offset, const int queries, const int keys,
                        const int heads, const int k) {
    const long head = get_group_id(1) * heads + get_group_id(0), count = (long)queries * k;
    const int line = ROUND_UP(k, VW);
    indices += indices_offset + head * count;
    weights += weights_offset + head * queries * line;
    grad_s += grad_s_offset + head * queries * line;
    starts += starts_offset + head * (keys + 1);
    key_queries += key_queries_offset + head * count;
    key_weights += key_weights_offset + head * count;
    key_grad_s += key_grad_s_offset + head * count;
    for (int j = 0; j <= keys; j++)
        starts[j] = 0;
    for (long e = 0; e < count; e++)
        if (indices[e] >= 0 && indices[e] < keys)
            starts[indices[e] + 1]++;
    for (int j = 0; j < keys; j++)
        starts[j + 1] += starts[j];
    for (int i = 0; i < queries; i++)
        for (int e = 0; e < k; e++) {
            const int key = indices[(long)i * k + e];
            if (key < 0 || key >= keys)
                break;
            const int place = starts[key]++;
            key_queries[place] = i;
            key_weights[place] = weights[(long)i * line + e];
            key_grad_s[place] = grad_s[(long)i * line + e];
        }
    for (int j = keys; j > 0; j--) // each start has moved to the next
        starts[j] = starts[j - 1];
    starts[0] = 0;
}

// A head's pairs in the order of keys: those of key j are starts[j] .. starts[j + 1].
typedef struct chosen {
    __global const int *starts, *queries;
    __global const float *factors;
} chosen;

// acc += factor times row of each query that chose key j, over `heads` heads.
inline void add_chosen(V acc[PART], const chosen c, const long j, const int heads, const int keys, const long pairs,
                       __global const float *rows, const int queries, const int width, const int part) {
    for (int h = 0; h < heads; h++) {
        __global const int *start = c.starts + (long)h * (keys + 1) + j;
        const long first = h * pairs + start[0];
        add_rows(acc, c.factors + first, c.queries + first, start[1] - start[0], rows + (long)h * queries * width, width,
                 part);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_keys(__global const float *q_rows, const long q_offset, __global const float *o_rows,
                   const long o_offset, __global const int *starts, const long starts_offset,
                   __global const int *key_queries, const long key_queries_offset, __global const float *key_weights,
                   const long key_weights_offset, __global const float *key_grad_s, const long key_grad_s_offset,
                   SUM_PARAMETERS(rest_k), GRADIENT_PARAMETERS(grad_k), GRADIENT_PARAMETERS(grad_v),
                   const int queries, const int keys, const int heads, const int k, const int heads_per_kv,
                   const float scale) {
    const long j = get_group_id(0), kv = get_group_id(1), b = get_group_id(2);
    const long head = b * heads + kv * heads_per_kv, pairs = (long)queries * k;
    const chosen for_k = {starts + starts_offset + head * (keys + 1), key_queries + key_queries_offset + head * pairs,
                          key_grad_s + key_grad_s_offset + head * pairs};
    const chosen for_v = {for_k.starts, for_k.queries, key_weights + key_weights_offset + head * pairs};
    __global const float *rest = NORMALISE_ALL ? rest_k + ROW_OF(rest_k, b, kv, j) : 0;
    q_rows += q_offset + head * queries * DP;
    o_rows += o_offset + head * queries * DVP;
    V acc[PART];
    for (int part = 0; part < PARTS(DP); part++) {
        clear_part(acc);
        add_chosen(acc, for_k, j, heads_per_kv, keys, pairs, q_rows, queries, DP, part);
        store_part(acc, scale, rest, grad_k + ROW_OF(grad_k, b, kv, j), D, part);
    }
    for (int part = 0; part < PARTS(DVP); part++) {
        clear_part(acc);
        add_chosen(acc, for_v, j, heads_per_kv, keys, pairs, o_rows, queries, DVP, part);
        store_part(acc, 1.0f, 0, grad_v + ROW_OF(grad_v, b, kv, j), DV, part);
    }
}
