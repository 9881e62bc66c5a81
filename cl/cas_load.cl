// Packing the weights of the cas layers.
//
// cas_fold   group (column): one head's filter at one tap = scale * the sum of conv_k over the head's channels.
// cas_taps   group (0): a depthwise 3x3 convolution, with the batch norm behind it folded in, channels innermost.
// cas_norm   group (0): the same, unfolded, and what the norm makes of it, for its gradients.
// cas_copy   group (block): `block` weights as they are.
//
// Weights are stored as TYPE_W, what is made of them is float32.
// Defines: those of types.h; WG; TYPE_W. No shared memory.
#include "types.h"

#if !defined(WG) || !defined(TYPE_W)
#error "WG, TYPE_W: see cas_load.cl"
#endif

// w [d, d, taps] -> filters [head groups][panels][d][tn], columns tap * group_heads + head; zero past the last.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_fold(__global const STORAGE(TYPE_W) *w, const long w_at, __global float *filters, const long filters_at,
         const long d, const long taps, const long heads, const long group_heads, const long tn, const float scale) {
    const long column = get_group_id(0), group = get_group_id(1), columns = get_num_groups(0);
    const long tap = column / group_heads, head = group * group_heads + column % group_heads, size = d / heads;
    const bool used = tap < taps && head < heads;
    filters += filters_at + group * columns * d + column / tn * d * tn + column % tn;
    for (long ch = get_local_id(0); ch < d; ch += WG) {
        float sum = 0.0f, lost = 0.0f; // compensated: a head may have many channels, and this is done once
        for (long r = 0; used && r < size; r++) {
            const float term = LOAD(TYPE_W, w, w_at + ((head * size + r) * d + ch) * taps + tap) - lost;
            const float next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        filters[ch * tn] = sum * scale;
    }
}

// w [d, 1, 3, 3], bias [d], norm's gamma, beta, mean, variance [d] or NULL -> out [9][d] taps, then [d] bias.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_taps(__global const STORAGE(TYPE_W) *w, const long w_at, __global const STORAGE(TYPE_W) *bias, const long bias_at,
         __global const STORAGE(TYPE_W) *gamma, const long gamma_at, __global const STORAGE(TYPE_W) *beta,
         const long beta_at, __global const STORAGE(TYPE_W) *mean, const long mean_at,
         __global const STORAGE(TYPE_W) *variance, const long variance_at, __global float *out, const long out_at,
         const long d) {
    for (long ch = get_local_id(0); ch < d; ch += WG) {
        float a = 1.0f, shift = LOAD(TYPE_W, bias, bias_at + ch);
        if (gamma) {
            a = LOAD(TYPE_W, gamma, gamma_at + ch) / sqrt(LOAD(TYPE_W, variance, variance_at + ch) + 1e-5f);
            shift = a * (shift - LOAD(TYPE_W, mean, mean_at + ch)) + LOAD(TYPE_W, beta, beta_at + ch);
        }
        for (long tap = 0; tap < 9; tap++)
            out[out_at + tap * d + ch] = a * LOAD(TYPE_W, w, w_at + ch * 9 + tap);
        out[out_at + 9 * d + ch] = shift;
    }
}

// -> out [9][d] taps, then [d] each: bias less mean, 1 / deviation, gamma / deviation.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_norm(__global const STORAGE(TYPE_W) *w, const long w_at, __global const STORAGE(TYPE_W) *bias, const long bias_at,
         __global const STORAGE(TYPE_W) *gamma, const long gamma_at, __global const STORAGE(TYPE_W) *mean,
         const long mean_at, __global const STORAGE(TYPE_W) *variance, const long variance_at, __global float *out,
         const long out_at, const long d) {
    for (long ch = get_local_id(0); ch < d; ch += WG) {
        const float share = 1.0f / sqrt(LOAD(TYPE_W, variance, variance_at + ch) + 1e-5f);
        for (long tap = 0; tap < 9; tap++)
            out[out_at + tap * d + ch] = LOAD(TYPE_W, w, w_at + ch * 9 + tap);
        out[out_at + 9 * d + ch] = LOAD(TYPE_W, bias, bias_at + ch) - LOAD(TYPE_W, mean, mean_at + ch);
        out[out_at + 10 * d + ch] = share;
        out[out_at + 11 * d + ch] = LOAD(TYPE_W, gamma, gamma_at + ch) * share;
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_copy(__global const STORAGE(TYPE_W) *from, const long from_at, __global float *to, const long to_at,
         const long count, const long block) {
    const long begin = (long)get_group_id(0) * block;
    for (long i = begin + get_local_id(0); i < min(begin + block, count); i += WG)
        to[to_at + i] = LOAD(TYPE_W, from, from_at + i);
}
