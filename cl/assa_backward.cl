// Gradients of top-k attention from the lists that forward saved.
//
//   assa_backward_weights    P and dS of each kept pair: a work-item owns a query. Of all visible keys' softmax
//                            (NORMALISE_ALL) dS is only the part that the kept pair itself gives, P G; the rest, -P c for every
//                            visible key with c = sum P G, is that of assa_backward_pairs.cl
//   assa_backward_queries    dQ: a work-item owns a query
//   assa_backward_transpose  for each key the kept pairs that chose it, in the order of queries: a work-item owns a head
//   assa_backward_keys       dK and dV: a work-item owns a key, however many queries of its heads chose it
//
// rest_q, rest_k (NORMALISE_ALL): that part of dQ and dK, in f32; they may be where dQ and dK go.
// Pair e of query i has number i*k + e. Each gradient has one writer, which adds in one order.
// Defines: those of pair.h; NORMALISE_ALL 0|1.
#include "pair.h"

#ifndef NORMALISE_ALL
#error "NORMALISE_ALL: 0 or 1"
#endif

#if NORMALISE_ALL
#define FIRST(acc, rest, at, size) row_load(acc, rest, at, size)
#else
#define FIRST(acc, rest, at, size) row_clear(acc, size)
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_weights(VIEW_PARAMETERS(grad_o), VIEW_PARAMETERS(v), __global const int *indices,
                      const long indices_offset, __global const float *scores, const long scores_offset,
                      __global const float *lse, const long lse_offset, __global float *weights,
                      const long weights_offset, __global float *grad_s, const long grad_s_offset,
                      __global float *sums, const long sums_offset, const int queries, const int keys,
                      const int heads, const int k, const int heads_per_kv) {
    const long i = get_group_id(0), h = get_group_id(1), b = get_group_id(2), row = (b * heads + h) * queries + i;
    const row_view o = VIEW(grad_o, b, h), values = VIEW(v, b, h / heads_per_kv);
    indices += indices_offset + row * k;
    scores += scores_offset + row * k;
    weights += weights_offset + row * k;
    grad_s += grad_s_offset + row * k;
    int count = 0;
    while (count < k && indices[count] >= 0 && indices[count] < keys)
        count++;
    float most = -INFINITY, total = 0.0f, sum = 0.0f, kept = 0.0f;
    for (int e = 0; e < count; e++)
        most = fmax(most, scores[e]);
    for (int e = 0; e < count; e++)
        total += exp(scores[e] - most);
    for (int e = 0; e < count; e++) {
        const float p = NORMALISE_ALL ? exp(scores[e] - lse[lse_offset + row]) : exp(scores[e] - most) / total;
        const float g = row_dot(o, i, values, indices[e], DV);
        weights[e] = p;
        grad_s[e] = p * g;
        sum = fma(p, g, sum);
        kept += p;
    }
    if (!NORMALISE_ALL && kept > 0.0f)
        sum /= kept; // 1 but for rounding: so that a row of dS sums to 0
    for (int e = 0; e < count && !NORMALISE_ALL; e++)
        grad_s[e] -= weights[e] * sum;
    for (int e = count; e < k; e++)
        weights[e] = grad_s[e] = 0.0f;
    sums[sums_offset + row] = sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_queries(VIEW_PARAMETERS(k_rows), __global const int *indices, const long indices_offset,
                      __global const float *grad_s, const long grad_s_offset, SUM_PARAMETERS(rest_q),
                      GRADIENT_PARAMETERS(grad_q), const int queries, const int keys, const int heads, const int k,
                      const int heads_per_kv, const float scale) {
    const long i = get_group_id(0), h = get_group_id(1), b = get_group_id(2), row = (b * heads + h) * queries + i;
    const row_view rows = VIEW(k_rows, b, h / heads_per_kv);
    float acc[ROUND_UP(D, VW)] ALIGNED;
    FIRST(acc, rest_q, ROW_OF(rest_q, b, h, i), D);
    for (long e = row * k; e < (row + 1) * k; e++) {
        const int key = indices[indices_offset + e];
        if (key >= 0 && key < keys)
            row_add(acc, grad_s[grad_s_offset + e] * scale, rows, key, D);
    }
    row_store(grad_q, ROW_OF(grad_q, b, h, i), acc, D);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_transpose(__global const int *indices, const long indices_offset, __global int *starts,
                        const long starts_offset, __global int *pairs, const long pairs_offset, const int queries,
                        const int keys, const int heads, const int k) {
    const long head = get_group_id(1) * heads + get_group_id(0), count = (long)queries * k;
    indices += indices_offset + head * count;
    starts += starts_offset + head * (keys + 1);
    pairs += pairs_offset + head * count;
    for (int j = 0; j <= keys; j++)
        starts[j] = 0;
    for (long e = 0; e < count; e++)
        if (indices[e] >= 0 && indices[e] < keys)
            starts[indices[e] + 1]++;
    for (int j = 0; j < keys; j++)
        starts[j + 1] += starts[j];
    for (long e = 0; e < count; e++)
        if (indices[e] >= 0 && indices[e] < keys)
            pairs[starts[indices[e]]++] = (int)e;
    for (int j = keys; j > 0; j--) // each start has moved to the next
        starts[j] = starts[j - 1];
    starts[0] = 0;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_keys(VIEW_PARAMETERS(q), VIEW_PARAMETERS(grad_o), __global const float *weights,
                   const long weights_offset, __global const float *grad_s, const long grad_s_offset,
                   __global const int *starts, const long starts_offset, __global const int *pairs,
                   const long pairs_offset, SUM_PARAMETERS(rest_k), GRADIENT_PARAMETERS(grad_k),
                   GRADIENT_PARAMETERS(grad_v), const int queries, const int keys, const int heads, const int k,
                   const int heads_per_kv, const float scale) {
    const long j = get_group_id(0), kv = get_group_id(1), b = get_group_id(2);
    float acc_k[ROUND_UP(D, VW)] ALIGNED, acc_v[ROUND_UP(DV, VW)] ALIGNED;
    FIRST(acc_k, rest_k, ROW_OF(rest_k, b, kv, j), D);
    row_clear(acc_v, DV);
    for (long h = kv * heads_per_kv; h < (kv + 1) * heads_per_kv; h++) {
        const long head = b * heads + h, first = head * queries * k; // the head's pair 0
        const row_view rows = VIEW(q, b, h), o = VIEW(grad_o, b, h);
        __global const int *start = starts + starts_offset + head * (keys + 1);
        for (int t = start[j]; t < start[j + 1]; t++) {
            const int e = pairs[pairs_offset + first + t];
            row_add(acc_k, grad_s[grad_s_offset + first + e] * scale, rows, e / k, D);
            row_add(acc_v, weights[weights_offset + first + e], o, e / k, DV);
        }
    }
    row_store(grad_k, ROW_OF(grad_k, b, kv, j), acc_k, D);
    row_store(grad_v, ROW_OF(grad_v, b, kv, j), acc_v, DV);
}
