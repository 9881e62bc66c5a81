// CAS-ViT's token mixer, backwards. With z = q g_q c_q + k g_k c_k and m = dwc(z): y = proj(m v).
//
// A depthwise convolution y = w * x gives dx = dy convolved with w's taps in reverse, and dw[tap] = the sum over pixels of
// x[p] dy[p - offset of tap]: both from a window of dy that slides along a strip (cas_image.h).
// Group (band, b, ..) owns `span` strips of one image and sums weights' gradients over them, one vector of channels after
// another; group (strip, b, operator) owns a strip of q's or k's.
//
// cas_backward_last       band: gradients of v and m; sums [10] for proj.
// cas_backward_mix        band: gradient of z; sums [12] for dwc, and for the channel gates of q and k.
// cas_backward_channel    group (chunk, b, operator): gradient of what a channel gate's sigmoid takes.
// cas_backward_gate       strip: gradient of what the spatial gate's sigmoid takes, a number for each pixel.
// cas_backward_operator   band: gradient of the operator's convolution, norm folded in; sums [11].
// cas_backward_spatial    strip: gradient of q or k.
// cas_backward_depthwise  group (chunk, 0, 0): sums of all bands, as gradients of weights.
//
// Shared memory of cas_backward_gate: WG * TX floats; others none.
// Defines: cas_image.h's; TYPE_Y (gradient of y), TYPE_W (gradients of weights) 0|1|2.
#include "cas_image.h"

#if !defined(TYPE_Y) || !defined(TYPE_W)
#error "TYPE_Y, TYPE_W: see cas_backward_vit.cl"
#endif

#define CHUNK 64
#define BAND_PARAMETERS const int height, const int width, const long strips, const long span
// Strips of this band.
#define FOR_STRIPS(i) for (long i = get_group_id(0) * span; i < min((long)(get_group_id(0) + 1) * span, strips); i++)

inline void load_taps_reversed(V w[9], __global const float *taps, const int ch) {
    UNROLL for (int i = 0; i < 9; i++) { w[i] = RAW_LOAD(taps + (long)(8 - i) * D + ch); }
}

inline void typed_column(V c[3], __global const STORAGE(TYPE_Y) * t, const long t0, const strip s, const int x,
                         const int ch) {
    UNROLL for (int r = 0; r < 3; r++) {
        const int y = s.y + r - 1;
        c[r] = (V)(0.0f);
        if (inside(s, y, x))
            c[r] = VLOAD(TYPE_Y, t, t0 + ((long)y * s.width + x) * D + ch);
    }
}

// sums[3 * row + column] += a * window
inline void add_window(V sums[9], const V a, const V left[3], const V mid[3], const V right[3]) {
    UNROLL for (int r = 0; r < 3; r++) {
        sums[3 * r] = fma(a, left[r], sums[3 * r]);
        sums[3 * r + 1] = fma(a, mid[r], sums[3 * r + 1]);
        sums[3 * r + 2] = fma(a, right[r], sums[3 * r + 2]);
    }
}

inline void clear_sums(V sums[9]) {
    UNROLL for (int i = 0; i < 9; i++) { sums[i] = (V)(0.0f); }
}

inline void store_sums(__global float *to, const V sums[9], const int ch) {
    UNROLL for (int i = 0; i < 9; i++) { RAW_STORE(sums[i], to + (long)i * D + ch); }
}

// Rows of this band in sums [operators, B, bands, rows, D].
inline long band_row(const int rows) {
    const long image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    return (image * get_num_groups(0) + get_group_id(0)) * rows * D;
}

// qkv [3, B, n, D], gates [2, B, n], channels [2, B, D], dy [B, n, D] -> grad_m [B, n, D], the third section of
// grad_qkv [B, n, 3 D], sums [B, bands, 10, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_last(__global const float *qkv, const long qkv_at, __global const float *gates, const long gates_at,
                  __global const float *channels, const long channels_at, __global const float *dwc, const long dwc_at,
                  __global const float *proj, const long proj_at, __global const STORAGE(TYPE_Y) * dy,
                  const long dy_at, __global float *grad_m, const long grad_m_at, __global float *grad_qkv,
                  const long grad_qkv_at, __global float *sums, const long sums_at, BAND_PARAMETERS) {
    const long n = (long)height * width, b = get_group_id(1), batch = get_num_groups(1), image = b * n * D;
    mixed m = mixed_at_image(qkv + qkv_at + image, gates + gates_at + b * n, batch * n);
    __global const float *v = m.q + 2 * batch * n * D;
    channels += channels_at + b * D;
    dwc += dwc_at;
    grad_m += grad_m_at + image;
    grad_qkv += grad_qkv_at + image * 3 + 2 * D;
    sums += sums_at + band_row(10);
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V w[9], back[9], sum[9], bias_sum = (V)(0.0f), zl[3], zm[3], zr[3], yl[3], ym[3], yr[3];
        load_taps(w, dwc, ch);
        load_taps_reversed(back, proj + proj_at, ch);
        clear_sums(sum);
        mixed_channels(&m, channels, batch, ch);
        const V bias = RAW_LOAD(dwc + 9L * D + ch);
        FOR_STRIPS(i) {
            const strip s = strip_at(i, height, width);
            mixed_column(zl, m, s, s.x - 1, ch);
            mixed_column(zm, m, s, s.x, ch);
            typed_column(yl, dy, dy_at + image, s, s.x - 1, ch);
            typed_column(ym, dy, dy_at + image, s, s.x, ch);
            for (int x = s.x; x < s.x + s.count; x++) {
                const long at = (long)s.y * width + x;
                mixed_column(zr, m, s, x + 1, ch);
                typed_column(yr, dy, dy_at + image, s, x + 1, ch);
                const V du = convolve(back, (V)(0.0f), yl, ym, yr), mv = convolve(w, bias, zl, zm, zr);
                const V vv = RAW_LOAD(v + at * D + ch);
                add_window(sum, mv * vv, yl, ym, yr);
                bias_sum += ym[1];
                RAW_STORE(du * vv, grad_m + at * D + ch);
                RAW_STORE(du * mv, grad_qkv + at * 3 * D + ch);
                shift(zl, zm, zr);
                shift(yl, ym, yr);
            }
        }
        store_sums(sums, sum, ch);
        RAW_STORE(bias_sum, sums + 9L * D + ch);
    }
}

// -> grad_z [B, n, D], sums [B, bands, 12, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_mix(__global const float *qkv, const long qkv_at, __global const float *gates, const long gates_at,
                 __global const float *channels, const long channels_at, __global const float *dwc, const long dwc_at,
                 __global const float *grad_m, const long grad_m_at, __global float *grad_z, const long grad_z_at,
                 __global float *sums, const long sums_at, BAND_PARAMETERS) {
    const long n = (long)height * width, b = get_group_id(1), batch = get_num_groups(1), image = b * n * D;
    mixed m = mixed_at_image(qkv + qkv_at + image, gates + gates_at + b * n, batch * n);
    channels += channels_at + b * D;
    grad_m += grad_m_at + image;
    grad_z += grad_z_at + image;
    sums += sums_at + band_row(12);
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V back[9], sum[9], rest[3] = {(V)(0.0f), (V)(0.0f), (V)(0.0f)}, left[3], mid[3], right[3];
        load_taps_reversed(back, dwc + dwc_at, ch);
        clear_sums(sum);
        mixed_channels(&m, channels, batch, ch);
        FOR_STRIPS(i) {
            const strip s = strip_at(i, height, width);
            plane_column(left, grad_m, s, s.x - 1, ch);
            plane_column(mid, grad_m, s, s.x, ch);
            for (int x = s.x; x < s.x + s.count; x++) {
                const long at = (long)s.y * width + x;
                plane_column(right, grad_m, s, x + 1, ch);
                const V dz = convolve(back, (V)(0.0f), left, mid, right);
                const V q = RAW_LOAD(m.q + at * D + ch) * m.gq[at], k = RAW_LOAD(m.k + at * D + ch) * m.gk[at];
                add_window(sum, fma(k, m.ck, q * m.cq), left, mid, right);
                rest[0] += mid[1];
                rest[1] = fma(dz, q, rest[1]);
                rest[2] = fma(dz, k, rest[2]);
                RAW_STORE(dz, grad_z + at * D + ch);
                shift(left, mid, right);
            }
        }
        store_sums(sums, sum, ch);
        UNROLL for (int i = 0; i < 3; i++) { RAW_STORE(rest[i], sums + (9L + i) * D + ch); }
    }
}

// sums as cas_backward_mix leaves them -> slopes [operators, B, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_channel(__global const float *sums, const long sums_at, __global const float *channels,
                     const long channels_at, __global float *slopes, const long slopes_at, const long bands) {
    const long b = get_group_id(1), image = (get_group_id(2) * get_num_groups(1) + b) * D;
    sums += sums_at + (b * bands * 12 + 10 + get_group_id(2)) * D;
    for (long v = get_group_id(0) * WG + get_local_id(0); v < D / VW; v += get_num_groups(0) * WG) {
        V sum = (V)(0.0f);
        for (long band = 0; band < bands; band++)
            sum += RAW_LOAD(sums + band * 12 * D + v * VW);
        const V c = RAW_LOAD(channels + channels_at + image + v * VW);
        RAW_STORE(sum * c * ((V)(1.0f) - c), slopes + slopes_at + image + v * VW);
    }
}

// t [operators, B, n, D], channels and means (gradients of the means, over n) [operators, B, D]
// -> slopes [operators, B, n].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_gate(__global const float *t, const long t_at, __global const float *grad_z, const long grad_z_at,
                  __global const float *gates, const long gates_at, __global const float *channels,
                  const long channels_at, __global const float *means, const long means_at, __global float *slopes,
                  const long slopes_at, const int height, const int width) {
    SHARED float part[WG * TX];
    V dot[TX];
    const int lid = get_local_id(0);
    const strip s = my_strip(height, width);
    const long n = (long)height * width, image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    const long first = (long)s.y * width + s.x;
    t += t_at + (image * n + first) * D;
    grad_z += grad_z_at + (get_group_id(1) * n + first) * D;
    channels += channels_at + image * D;
    means += means_at + image * D;
    for (int px = 0; px < TX; px++)
        dot[px] = (V)(0.0f);
    for (int ch = lid * VW; ch < D; ch += WG * VW) {
        const V c = RAW_LOAD(channels + ch), mean = RAW_LOAD(means + ch);
        for (int px = 0; px < s.count; px++)
            dot[px] = fma(fma(RAW_LOAD(grad_z + px * D + ch), c, mean), RAW_LOAD(t + px * D + ch), dot[px]);
    }
    for (int px = 0; px < TX; px++)
        part[lid * TX + px] = vsum(dot[px]);
    SYNC;
    for (int px = lid; px < s.count; px += WG) {
        const float g = gates[gates_at + image * n + first + px];
        float sum = 0.0f;
        for (int item = 0; item < WG; item++)
            sum += part[item * TX + px];
        slopes[slopes_at + image * n + first + px] = sum * g * (1.0f - g);
    }
}

// weights [operators, 11, D] -> grad_h [operators, B, n, D], sums [operators, B, bands, 11, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_operator(__global const float *t, const long t_at, __global const float *weights, const long weights_at,
                      __global const float *slopes, const long slopes_at, __global float *grad_h,
                      const long grad_h_at, __global float *sums, const long sums_at, BAND_PARAMETERS) {
    const long n = (long)height * width, image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    t += t_at + image * n * D;
    weights += weights_at + get_group_id(2) * 11L * D;
    slopes += slopes_at + image * n;
    grad_h += grad_h_at + image * n * D;
    sums += sums_at + band_row(11);
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V w[9], sum[9], total = (V)(0.0f), gate_sum = (V)(0.0f), left[3], mid[3], right[3];
        load_taps(w, weights, ch);
        clear_sums(sum);
        const V bias = RAW_LOAD(weights + 9L * D + ch), gate = RAW_LOAD(weights + 10L * D + ch);
        FOR_STRIPS(i) {
            const strip s = strip_at(i, height, width);
            plane_column(left, t, s, s.x - 1, ch);
            plane_column(mid, t, s, s.x, ch);
            for (int x = s.x; x < s.x + s.count; x++) {
                const long at = (long)s.y * width + x;
                plane_column(right, t, s, x + 1, ch);
                const V h = convolve(w, bias, left, mid, right), slope = (V)(slopes[at]);
                const V dh = h > (V)(0.0f) ? slope * gate : (V)(0.0f);
                gate_sum = fma(slope, fmax(h, (V)(0.0f)), gate_sum);
                total += dh;
                add_window(sum, dh, left, mid, right);
                RAW_STORE(dh, grad_h + at * D + ch);
                shift(left, mid, right);
            }
        }
        store_sums(sums, sum, ch);
        RAW_STORE(total, sums + 9L * D + ch);
        RAW_STORE(gate_sum, sums + 10L * D + ch);
    }
}

// -> sections 0 and 1 of grad_qkv [B, n, 3 D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_spatial(__global const float *grad_h, const long grad_h_at, __global const float *weights,
                     const long weights_at, __global const float *grad_z, const long grad_z_at,
                     __global const float *gates, const long gates_at, __global const float *channels,
                     const long channels_at, __global const float *means, const long means_at,
                     __global float *grad_qkv, const long grad_qkv_at, const int height, const int width) {
    const strip s = my_strip(height, width);
    const long n = (long)height * width, image = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    grad_h += grad_h_at + image * n * D;
    weights += weights_at + get_group_id(2) * 11L * D;
    gates += gates_at + image * n;
    grad_z += grad_z_at + get_group_id(1) * n * D;
    grad_qkv += grad_qkv_at + get_group_id(1) * n * 3 * D + get_group_id(2) * D;
    for (int ch = (int)get_local_id(0) * VW; ch < D; ch += WG * VW) {
        V back[9], left[3], mid[3], right[3];
        load_taps_reversed(back, weights, ch);
        const V c = RAW_LOAD(channels + channels_at + image * D + ch);
        const V mean = RAW_LOAD(means + means_at + image * D + ch);
        plane_column(left, grad_h, s, s.x - 1, ch);
        plane_column(mid, grad_h, s, s.x, ch);
        for (int x = s.x; x < s.x + s.count; x++) {
            const long at = (long)s.y * width + x;
            plane_column(right, grad_h, s, x + 1, ch);
            const V grad = fma(RAW_LOAD(grad_z + at * D + ch), c, mean) * gates[at];
            RAW_STORE(convolve(back, grad, left, mid, right), grad_qkv + at * 3 * D + ch);
            shift(left, mid, right);
        }
    }
}

inline float sum_bands(__global const float *sums, const long parts, const int rows) {
    float sum = 0.0f;
    for (long part = 0; part < parts; part++)
        sum += sums[part * rows * D];
    return sum;
}

inline void put(__global STORAGE(TYPE_W) * to, const long at, const float value, const int add) {
    if (to)
        STORE(TYPE_W, to, at, (add ? LOAD(TYPE_W, to, at) : 0.0f) + value);
}

// sums [parts, rows, D]: taps, in reverse where `reversed`, then the bias, then, where norms [12, D] are there, the gate.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_depthwise(__global const float *sums, const long sums_at, __global const float *norms,
                       const long norms_at, __global STORAGE(TYPE_W) * taps, const long taps_at,
                       __global STORAGE(TYPE_W) * bias, const long bias_at, __global STORAGE(TYPE_W) * gamma,
                       const long gamma_at, __global STORAGE(TYPE_W) * beta, const long beta_at,
                       __global STORAGE(TYPE_W) * gate, const long gate_at, const long parts, const int rows,
                       const int reversed, const int add) {
    const int first = (int)get_group_id(0) * CHUNK;
    for (int ch = first + (int)get_local_id(0); ch < min(first + CHUNK, D); ch += WG) {
        __global const float *from = sums + sums_at + ch, *norm = norms + norms_at + ch;
        const float share = norms ? norm[11 * D] : 1.0f, total = sum_bands(from + 9L * D, parts, rows);
        float scaled = norms ? norm[9 * D] * total : 0.0f; // gradient of gamma, but for the deviation
        for (int tap = 0; tap < 9; tap++) {
            const float sum = sum_bands(from + (long)(reversed ? 8 - tap : tap) * D, parts, rows);
            scaled += norms ? norm[tap * D] * sum : 0.0f;
            put(taps, taps_at + ch * 9L + tap, share * sum, add);
        }
        put(bias, bias_at + ch, share * total, add);
        put(beta, beta_at + ch, total, add);
        if (norms) {
            put(gamma, gamma_at + ch, scaled * norm[10 * D], add);
            put(gate, gate_at + ch, sum_bands(from + 10L * D, parts, rows), add);
        }
    }
}
