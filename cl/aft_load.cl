// aft: what is made of weights, once where a layer is loaded, or before a core that brings its own.
//
//   aft_copy       to[i] = from[i]
//   aft_bias       row i: to[i][o] = w_ij, j = i - reach + o, o = 0 .. columns-1; FACTORS 1: w_ij = u_i . f_j
//   aft_transpose  factor f [n, rank] as rows to[rank][columns], 0 past n
//   aft_augment    row c of a weight [out, in], its bias behind it: to[c*row + k*step], k = 0 .. in
//   aft_taps       head: f = gamma (f - mean) / sqrt(var + 1e-5) + beta over its taps; REPARAM 0: f
//
// Weights are stored as TYPE_W, what is made of them is float32.
// Local memory: none. Defines: those of types.h; WG; TYPE_W; FACTORS, REPARAM 0|1.
#include "types.h"

#if !defined(WG) || !defined(TYPE_W) || !defined(FACTORS) || !defined(REPARAM)
#error "WG, TYPE_W, FACTORS, REPARAM: see aft_load.cl"
#endif

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_copy(__global const STORAGE(TYPE_W) *from, const long from_offset, __global float *to, const long to_offset,
         const long count) {
    const long i = get_global_id(0);
    if (i < count) to[to_offset + i] = LOAD(TYPE_W, from, from_offset + i);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_bias(__global const STORAGE(TYPE_W) *w, const long w_offset, const long w_row, __global const STORAGE(TYPE_W) *f,
         const long f_offset, const long f_row, __global float *to, const long to_offset, const long n, const long rank,
         const long reach, const long columns) {
    const long o = get_global_id(0), i = get_group_id(1), j = i - reach + o;
    if (o >= columns) return;
    float sum = 0.0f;
    if (j >= 0 && j < n) {
#if FACTORS
        for (long r = 0; r < rank; r++)
            sum = fma(LOAD(TYPE_W, w, w_offset + i * w_row + r), LOAD(TYPE_W, f, f_offset + j * f_row + r), sum);
#else
        sum = LOAD(TYPE_W, w, w_offset + i * w_row + j);
#endif
    }
    to[to_offset + i * columns + o] = sum;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_transpose(__global const STORAGE(TYPE_W) *f, const long f_offset, const long f_row, __global float *to,
              const long to_offset, const long n, const long columns) {
    const long j = get_global_id(0), r = get_group_id(1);
    if (j < columns) to[to_offset + r * columns + j] = j < n ? LOAD(TYPE_W, f, f_offset + j * f_row + r) : 0.0f;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_taps(__global const STORAGE(TYPE_W) *f, long f_offset, __global const STORAGE(TYPE_W) *gamma,
         const long gamma_offset, __global const STORAGE(TYPE_W) *beta, const long beta_offset, __global float *to,
         const long to_offset, const long heads, const long taps) {
    const long h = get_global_id(0);
    if (h >= heads) return;
    f_offset += h * taps;
    float shift = 0.0f, scale = 1.0f, add = 0.0f;
#if REPARAM
    float variance = 0.0f;
    for (long t = 0; t < taps; t++) shift += LOAD(TYPE_W, f, f_offset + t);
    shift /= (float)taps;
    for (long t = 0; t < taps; t++) {
        const float d = LOAD(TYPE_W, f, f_offset + t) - shift;
        variance = fma(d, d, variance);
    }
    scale = LOAD(TYPE_W, gamma, gamma_offset + h) / sqrt(variance / (float)taps + 1e-5f);
    add = LOAD(TYPE_W, beta, beta_offset + h);
#endif
    for (long t = 0; t < taps; t++)
        to[to_offset + h * taps + t] = fma(LOAD(TYPE_W, f, f_offset + t) - shift, scale, add);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_augment(__global const STORAGE(TYPE_W) *w, const long w_offset, __global const STORAGE(TYPE_W) *bias,
            const long bias_offset, __global float *to, const long to_offset, const long in, const long row,
            const long step) {
    const long k = get_global_id(0), c = get_group_id(1);
    if (k <= in)
        to[to_offset + c * row + k * step] =
            k < in ? LOAD(TYPE_W, w, w_offset + c * in + k) : LOAD(TYPE_W, bias, bias_offset + c);
}
