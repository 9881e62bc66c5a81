// aft, backwards, mode conv: gradients of its taps. See include/aft_backward.h, include/aft_backward_taps.h.
//
//   df_t = sum over sequences, i and the head's channels of A_ij P_i (V_j - O_i), j = i + t - reach
//
//   aft_backward_taps     tap of a head, block: parts[b][block][head][tap], the sum of the block's i
//   aft_backward_conv     head: gradients of its taps from the parts; REPARAM 1: through f = gamma (t - mean) / s + beta,
//                         s = sqrt(var + 1e-5)
//
// What padding holds is never read. Strips here are single vectors, NV 1.
// Local memory: none.
// Defines: see include/aft.h; REPARAM 0|1; TYPE_G 0|1|2 type of the gradients.
#include "aft_backward_taps.h"

#if !defined(REPARAM) || !defined(TYPE_G) || NV != 1
#error "REPARAM, TYPE_G: see aft_backward_taps.cl; NV is 1"
#endif

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_taps(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
                  const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
                  const long x_row, const long x_group, QUERIES_PARAMETERS, TAPS_PARAMETERS,
                  __global const int *lengths, const long lengths_offset, const long n, const int width,
                  __global float *parts, const long parts_offset, const int heads) {
    const int taps = (int)(2 * reach + 1), item = get_global_id(0), head = item / taps, tap = item - head * taps;
    if (head >= heads) return;
    const long block = get_group_id(1), b = get_group_id(2), shift = tap - reach;
    const long seen = tokens_of(lengths, lengths_offset, b, n);
    const long first = max(block * TB, -shift), last = min(min((block + 1) * TB, seen), seen - shift);
    const float w = w_base[w_offset + head * w_group + tap];
    V sum = (V)(0.0f);
    for (int c = 0; shift <= ahead && c < width; c += VW) {
        const int lanes = min(width - c, VW);
        const long ki = k_offset + b * k_batch + head * k_group, xi = x_offset + b * x_batch + head * x_group + c;
        const queries q = QUERIES(b, head, c);
        for (long i = first; i < last; i++) {
            const trace own = trace_of(q, 0, lanes, i);
            const V key = (V)(LOAD(TYPE_X, k, ki + (i + shift) * k_row));
            const V value = load_lanes(x, xi + (i + shift) * x_row, lanes);
            sum += weight_of((key - own.k) + (w - own.c)) * (own.p * (value - own.o));
        }
    }
    parts[parts_offset + (b * get_num_groups(1) + block) * heads * taps + item] = sum_of(sum);
}

inline void put(__global STORAGE(TYPE_G) * to, const long at, const float x, const int add) {
    STORE(TYPE_G, to, at, add ? x + LOAD(TYPE_G, to, at) : x);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_conv(__global float *parts, const long parts_offset, const long count, const int heads, const int taps,
                  __global const float *raw, const long raw_offset, __global const float *gamma,
                  const long gamma_offset, __global STORAGE(TYPE_G) * to, const long to_offset, const long to_row,
                  __global STORAGE(TYPE_G) * dgamma, const long dgamma_offset, __global STORAGE(TYPE_G) * dbeta,
                  const long dbeta_offset, const int add) {
    const int h = get_global_id(0);
    if (h >= heads) return;
    __global float *df = parts + parts_offset + (long)h * taps;
    for (int t = 0; t < taps; t++) {
        float sum = 0.0f;
        for (long part = 0; part < count; part++) sum += df[part * heads * taps + t];
        df[t] = sum;
    }
#if REPARAM
    __global const float *f = raw + raw_offset + (long)h * taps;
    float mean = 0.0f, variance = 0.0f, sum = 0.0f, dot = 0.0f;
    for (int t = 0; t < taps; t++) mean += f[t];
    mean /= (float)taps;
    for (int t = 0; t < taps; t++) variance = fma(f[t] - mean, f[t] - mean, variance);
    const float scale = 1.0f / sqrt(variance / (float)taps + 1e-5f), g = gamma[gamma_offset + h];
    for (int t = 0; t < taps; t++) {
        sum += df[t];
        dot = fma(df[t], (f[t] - mean) * scale, dot);
    }
    put(dgamma, dgamma_offset + h, dot, add);
    put(dbeta, dbeta_offset + h, sum, add);
    for (int t = 0; t < taps; t++)
        df[t] = g * scale * (df[t] - (sum + (f[t] - mean) * scale * dot) / (float)taps);
#endif
    for (int t = 0; t < taps; t++) put(to, to_offset + h * to_row + t, df[t], add);
}
