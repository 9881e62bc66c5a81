// CAS-ViT's additive token mixer on an image of grid_h x grid_w pixels, channels innermost.
//
// Strips, and the window that slides along them: cas_image.h.
//
// cas_gate   group (strip, b, operator): spatial gate g of each pixel of t = q or k, and the strip's sum of t * g.
// cas_mean   group (chunk, b, operator): the mean of t * g over the image.
// cas_mix    group (strip, b, 0): v * dwc(q * g_q * c_q + k * g_k * c_k).
// cas_last   group (strip, b, 0): y = proj(v).
//
// Weights of a convolution: [9][D] taps, then [D] bias; an operator's are followed by its gate's [D].
// Shared memory of cas_gate: (WG + 1) * TX floats; others none.
// Defines: WG, VW, D (a multiple of VW), TX 1..64 pixels of a strip, TYPE_Y 0|1|2.
#include "cas_image.h"

#ifndef TYPE_Y
#error "TYPE_Y: see cas_vit.cl"
#endif

// score[px] += the gate's weights times relu(convolution), for the channels ch.. of each pixel of the strip.
inline void add_scores(V score[TX], __global const float *t, __global const float *weights, const strip s,
                       const int ch) {
    V w[9], left[3], mid[3], right[3];
    load_taps(w, weights, ch);
    const V bias = RAW_LOAD(weights + 9L * D + ch), gate = RAW_LOAD(weights + 10L * D + ch);
    plane_column(left, t, s, s.x - 1, ch);
    plane_column(mid, t, s, s.x, ch);
    for (int px = 0; px < s.count; px++) {
        plane_column(right, t, s, s.x + px + 1, ch);
        const V a = convolve(w, bias, left, mid, right);
        score[px] = fma(gate, a < (V)(0.0f) ? (V)(0.0f) : a, score[px]); // a NaN stays one
        shift(left, mid, right);
    }
}

// t [operators, B, n, D], weights [operators, 11, D] -> gates [operators, B, n], sums [operators, B, strips, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_gate(__global const float *t, const long t_at, __global const float *weights, const long weights_at,
         __global float *gates, const long gates_at, __global float *sums, const long sums_at, const int height,
         const int width) {
    SHARED float part[WG * TX], g[TX];
    V score[TX];
    const int lid = get_local_id(0);
    const strip s = my_strip(height, width);
    const long n = (long)height * width, image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    const long first = (long)s.y * width + s.x;
    t += t_at + image * n * D;
    weights += weights_at + get_group_id(2) * 11L * D;
    sums += sums_at + (image * get_num_groups(0) + get_group_id(0)) * D;

    for (int px = 0; px < TX; px++)
        score[px] = (V)(0.0f);
    for (int ch = lid * VW; ch < D; ch += WG * VW)
        add_scores(score, t, weights, s, ch);
    for (int px = 0; px < TX; px++)
        part[lid * TX + px] = vsum(score[px]);
    SYNC;
    for (int px = lid; px < s.count; px += WG) {
        float sum = 0.0f;
        for (int item = 0; item < WG; item++)
            sum += part[item * TX + px];
        g[px] = 1.0f / (1.0f + exp(-sum));
        gates[gates_at + image * n + first + px] = g[px];
    }
    SYNC;
    for (int ch = lid * VW; ch < D; ch += WG * VW) {
        V sum = (V)(0.0f);
        for (int px = 0; px < s.count; px++)
            sum = fma((V)(g[px]), RAW_LOAD(t + (first + px) * D + ch), sum);
        RAW_STORE(sum, sums + ch);
    }
}

// mean [operators, B, D] = the sum over strips times share.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_mean(__global const float *sums, const long sums_at, __global float *mean, const long mean_at, const long strips,
         const float share) {
    const long image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    sums += sums_at + image * strips * D;
    for (long v = get_group_id(0) * WG + get_local_id(0); v < D / VW; v += get_num_groups(0) * WG) {
        V sum = (V)(0.0f);
        for (long i = 0; i < strips; i++)
            sum += RAW_LOAD(sums + i * D + v * VW);
        RAW_STORE(sum * share, mean + mean_at + image * D + v * VW);
    }
}

// qkv [3, B, n, D], gates [2, B, n], channels [2, B, D] -> mixed [B, n, D], which may be v.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_mix(__global const float *qkv, const long qkv_at, __global const float *gates, const long gates_at,
        __global const float *channels, const long channels_at, __global const float *weights, const long weights_at,
        __global float *mixed_to, const long mixed_to_at, const int height, const int width) {
    const strip s = my_strip(height, width);
    const long n = (long)height * width, b = get_group_id(1), batch = get_num_groups(1);
    qkv += qkv_at + b * n * D;
    channels += channels_at + b * D;
    weights += weights_at;
    __global const float *v = qkv + (2 * batch * n + (long)s.y * width + s.x) * D;
    mixed_to += mixed_to_at + (b * n + (long)s.y * width + s.x) * D;
    mixed m = mixed_at_image(qkv, gates + gates_at + b * n, batch * n);
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V w[9], left[3], mid[3], right[3];
        load_taps(w, weights, ch);
        const V bias = RAW_LOAD(weights + 9L * D + ch);
        mixed_channels(&m, channels, batch, ch);
        mixed_column(left, m, s, s.x - 1, ch);
        mixed_column(mid, m, s, s.x, ch);
        for (int px = 0; px < s.count; px++) {
            mixed_column(right, m, s, s.x + px + 1, ch);
            const long at = (long)px * D + ch;
            RAW_STORE(RAW_LOAD(v + at) * convolve(w, bias, left, mid, right), mixed_to + at);
            shift(left, mid, right);
        }
    }
}

// v [B, n, D] -> y [B, n, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_last(__global const float *v, const long v_at, __global const float *weights, const long weights_at,
         __global STORAGE(TYPE_Y) * y, const long y_at, const int height, const int width) {
    const strip s = my_strip(height, width);
    const long image = get_group_id(1) * (long)height * width, first = image + (long)s.y * width + s.x;
    v += v_at + image * D;
    weights += weights_at;
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V w[9], left[3], mid[3], right[3];
        load_taps(w, weights, ch);
        const V bias = RAW_LOAD(weights + 9L * D + ch);
        plane_column(left, v, s, s.x - 1, ch);
        plane_column(mid, v, s, s.x, ch);
        for (int px = 0; px < s.count; px++) {
            plane_column(right, v, s, s.x + px + 1, ch);
            VSTORE(TYPE_Y, y, y_at + (first + px) * D + ch, convolve(w, bias, left, mid, right));
            shift(left, mid, right);
        }
    }
}
