// Packing the weights of the cas layers.
//
// cas_fold   group (column): one head's filter at one tap = scale * the sum of conv_k over the head's channels.
// cas_taps   group (0): a depthwise 3x3 convolution, with the batch norm behind it folded in, channels innermost.
// cas_copy   group (block): BT floats as they are.
//
// Defines (each of them, always): WG, D channels, HAS_NORM 0|1, BT >= 1.
#if !defined(WG) || !defined(D) || !defined(HAS_NORM) || !defined(BT)
#error "WG, D, HAS_NORM, BT: see cas_load.cl"
#endif

// w [D, D, taps] -> filters [head groups][panels][D][tn], columns tap * group_heads + head; zero past the last.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_fold(__global const float *w, const long w_at, __global float *filters, const long filters_at, const long taps,
         const long heads, const long group_heads, const long tn, const float scale) {
    const long column = get_group_id(0), group = get_group_id(1), columns = get_num_groups(0);
    const long tap = column / group_heads, head = group * group_heads + column % group_heads, size = D / heads;
    const bool used = tap < taps && head < heads;
    filters += filters_at + group * columns * D + column / tn * D * tn + column % tn;
    for (long ch = get_local_id(0); ch < D; ch += WG) {
        float sum = 0.0f, lost = 0.0f; // compensated: a head may have many channels, and this is done once
        for (long r = 0; used && r < size; r++) {
            const float term = w[w_at + ((head * size + r) * D + ch) * taps + tap] - lost, next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        filters[ch * tn] = sum * scale;
    }
}

// w [D, 1, 3, 3], bias [D], norm's gamma, beta, mean, variance [D] -> out [9][D] taps, then [D] bias.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_taps(__global const float *w, const long w_at, __global const float *bias, const long bias_at,
         __global const float *gamma, const long gamma_at, __global const float *beta, const long beta_at,
         __global const float *mean, const long mean_at, __global const float *variance, const long variance_at,
         __global float *out, const long out_at) {
    for (long ch = get_local_id(0); ch < D; ch += WG) {
#if HAS_NORM
        const float a = gamma[gamma_at + ch] / sqrt(variance[variance_at + ch] + 1e-5f);
        const float shift = a * (bias[bias_at + ch] - mean[mean_at + ch]) + beta[beta_at + ch];
#else
        const float a = 1.0f, shift = bias[bias_at + ch];
#endif
        for (long tap = 0; tap < 9; tap++)
            out[out_at + tap * D + ch] = a * w[w_at + ch * 9 + tap];
        out[out_at + 9 * D + ch] = shift;
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_copy(__global const float *from, const long from_at, __global float *to, const long to_at, const long count) {
    const long begin = (long)get_group_id(0) * BT;
    for (long i = begin + get_local_id(0); i < min(begin + BT, count); i += WG)
        to[to_at + i] = from[from_at + i];
}
