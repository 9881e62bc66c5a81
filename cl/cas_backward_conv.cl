// Gradients of the convolution that scores tokens: of x, and of each head's filter.
//
// With slopes, the gradients of scores [B, heads, HALO + n + HALO], and a head's taps w (score_i = sum_t w_t . x[i + t - LEFT]):
//
//     dx_j = base_j + sum_h weight[h, j] row_h + sum_h,t slope[h, j - t + LEFT] w[h, t]
//     dw[h, t] = sum_j slope[h, j - t + LEFT] x_j
//
// cas_backward_taps     group (h, 0, 0): the packed filters of head h as taps [KERNEL][D].
// cas_backward_input    group (block, 0, b) owns BT tokens of dx; a work-item owns tiles of 4 tokens and NV vectors.
// cas_backward_filters  group (part, head tile, b) owns `span` tokens: sums of dw for HT heads.
// cas_backward_spread   group (chunk, h, 0) owns 64 channels: the sum of all parts, to all channels of the head.
//
// Defines: WG, VW, D (a multiple of VW * NV), NV 1|2, KERNEL 1|3|5|7|9, LEFT (taps before the token), HALO >= KERNEL - 1,
// HT 1..12, BT a multiple of 4, TYPE_X (of x and dx), TYPE_B (of base), TYPE_W (of dw) 0|1|2. No shared memory.
#include "cas.h"

#if !defined(D) || !defined(NV) || !defined(KERNEL) || !defined(LEFT) || !defined(HALO) || !defined(HT) || !defined(BT)
#error "D, NV, KERNEL, LEFT, HALO, HT, BT: see cas_backward_conv.cl"
#endif
#if !defined(TYPE_X) || !defined(TYPE_B) || !defined(TYPE_W)
#error "TYPE_X, TYPE_B, TYPE_W: see cas_backward_conv.cl"
#endif

#define CHUNK 64

// filters: see cas_load.cl's cas_fold -> taps [heads, KERNEL, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_taps(__global const float *filters, const long filters_at, __global float *taps, const long taps_at,
                  const long group_heads, const long panels, const long tn) {
    const long h = get_group_id(0);
    filters += filters_at + h / group_heads * panels * D * tn;
    taps += taps_at + h * KERNEL * D;
    for (int tap = 0; tap < KERNEL; tap++) {
        const long column = tap * group_heads + h % group_heads;
        for (int ch = get_local_id(0); ch < D; ch += WG)
            taps[tap * D + ch] = filters[(column / tn * D + ch) * tn + column % tn];
    }
}

// The part of one head in a tile of dx, tokens j[0..4), channels ch..
inline void add_head(V acc[4][NV], __global const float *weights, __global const float *row,
                     __global const float *slopes, __global const float *taps, const long j[4], const int ch) {
    if (weights) {
        UNROLL for (int v = 0; v < NV; v++) {
            const V r = RAW_LOAD(row + ch + v * VW);
            UNROLL for (int i = 0; i < 4; i++) { acc[i][v] = fma((V)(weights[j[i]]), r, acc[i][v]); }
        }
    }
    UNROLL for (int tap = 0; tap < KERNEL; tap++) {
        V w[NV];
        UNROLL for (int v = 0; v < NV; v++) { w[v] = RAW_LOAD(taps + tap * D + ch + v * VW); }
        UNROLL for (int i = 0; i < 4; i++) {
            const V s = (V)(slopes[j[i] - tap + LEFT]);
            UNROLL for (int v = 0; v < NV; v++) { acc[i][v] = fma(s, w[v], acc[i][v]); }
        }
    }
}

// weights [B, heads, n] and rows [B, heads, D], or both NULL; base [B, n, D] or NULL, which may be dx itself. dx is 0 at padding.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_input(__global const float *weights, const long weights_at, __global const float *rows,
                   const long rows_at, __global const float *slopes, const long slopes_at,
                   __global const float *taps, const long taps_at, __global const STORAGE(TYPE_B) * base,
                   const long base_at, __global const int *lengths, const long lengths_at,
                   __global STORAGE(TYPE_X) * dx, const long dx_at, const long n, const int heads) {
    const int lid = get_local_id(0);
    const long b = get_group_id(2), begin = (long)get_group_id(0) * BT, last = min(begin + BT, n);
    const long end = clamp(length_of(lengths, lengths_at, b, n), begin, last), here = b * n * D;
    const int tiles = (int)((end - begin + 3) / 4), chunks = D / (VW * NV);
    slopes += slopes_at + b * heads * (n + 2 * HALO) + HALO;
    taps += taps_at;
    for (int u = lid; u < tiles * chunks; u += WG) {
        const int ch = TILE_COLUMN(u, tiles, chunks) * VW * NV;
        const long j0 = begin + TILE_ROW(u, tiles, chunks) * 4;
        V acc[4][NV];
        long j[4]; // the last token stands for those behind it
        UNROLL for (int i = 0; i < 4; i++) {
            j[i] = min(j0 + i, end - 1);
            UNROLL for (int v = 0; v < NV; v++) {
                acc[i][v] = base ? VLOAD(TYPE_B, base, base_at + here + j[i] * D + ch + v * VW) : (V)(0.0f);
            }
        }
        for (int h = 0; h < heads; h++)
            add_head(acc, weights ? weights + weights_at + (b * heads + h) * n : weights,
                     rows + rows_at + (b * heads + h) * D, slopes + h * (n + 2 * HALO), taps + (long)h * KERNEL * D, j, ch);
        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int v = 0; v < NV; v++) { VSTORE(TYPE_X, dx, dx_at + here + j[i] * D + ch + v * VW, acc[i][v]); }
        }
    }
    for (long j = end; j < last; j++)
        for (int ch = lid * VW; ch < D; ch += WG * VW)
            VSTORE(TYPE_X, dx, dx_at + here + j * D + ch, (V)(0.0f));
}

// sums[h0.. + HT][KERNEL][D] += tokens j0..j1, channels ch..; heads past the last repeat it.
inline void add_filters(__global float *sums, __global const float *slopes, const long slope_stride,
                        __global const STORAGE(TYPE_X) * x, const long x0, const long j0, const long j1, const int count,
                        const int ch) {
    V acc[HT][KERNEL];
    UNROLL for (int i = 0; i < HT; i++) {
        UNROLL for (int tap = 0; tap < KERNEL; tap++) {
            acc[i][tap] = RAW_LOAD(sums + ((long)min(i, count - 1) * KERNEL + tap) * D + ch);
        }
    }
    for (long j = j0; j < j1; j++) {
        const V xj = VLOAD(TYPE_X, x, x0 + j * D + ch);
        UNROLL for (int i = 0; i < HT; i++) {
            __global const float *s = slopes + min(i, count - 1) * slope_stride + j + LEFT;
            UNROLL for (int tap = 0; tap < KERNEL; tap++) { acc[i][tap] = fma((V)(s[-tap]), xj, acc[i][tap]); }
        }
    }
    UNROLL for (int i = 0; i < HT; i++) {
        UNROLL for (int tap = 0; tap < KERNEL; tap++) {
            if (i < count)
                RAW_STORE(acc[i][tap], sums + ((long)i * KERNEL + tap) * D + ch);
        }
    }
}

// sums [B, parts, heads, KERNEL, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_filters(__global const STORAGE(TYPE_X) * x, const long x_at, __global const float *slopes,
                     const long slopes_at, __global const int *lengths, const long lengths_at, __global float *sums,
                     const long sums_at, const long n, const long span, const int heads) {
    const int lid = get_local_id(0), h0 = (int)get_group_id(1) * HT, count = min(HT, heads - h0);
    const long b = get_group_id(2), begin = (long)get_group_id(0) * span, stride = n + 2 * HALO;
    const long end = min(begin + span, length_of(lengths, lengths_at, b, n));
    slopes += slopes_at + (b * heads + h0) * stride + HALO;
    sums += sums_at + ((b * get_num_groups(0) + get_group_id(0)) * heads + h0) * KERNEL * D;
    for (int ch = lid * VW; ch < D; ch += WG * VW)
        for (int i = 0; i < count * KERNEL; i++)
            RAW_STORE((V)(0.0f), sums + (long)i * D + ch);
    for (long j0 = begin; j0 < end; j0 += BT)
        for (int ch = lid * VW; ch < D; ch += WG * VW)
            add_filters(sums, slopes, stride, x, x_at + b * n * D, j0, min(j0 + BT, end), count, ch);
}

// dw [D, D, KERNEL], rows of head h: [h * D / heads ..]; with `add` added to what is there.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_spread(__global const float *sums, const long sums_at, __global STORAGE(TYPE_W) * dw, const long dw_at,
                    const long parts, const int heads, const float scale, const int add) {
    const int h = get_group_id(1), size = D / heads, c0 = (int)get_group_id(0) * CHUNK;
    sums += sums_at + (long)h * KERNEL * D;
    for (int ch = c0 + (int)get_local_id(0); ch < min(c0 + CHUNK, D); ch += WG)
        for (int tap = 0; tap < KERNEL; tap++) {
            float sum = 0.0f;
            for (long part = 0; part < parts; part++)
                sum += sums[(part * heads * KERNEL + tap) * D + ch];
            for (int r = 0; r < size; r++) {
                const long at = dw_at + ((long)(h * size + r) * D + ch) * KERNEL + tap;
                STORE(TYPE_W, dw, at, (add ? LOAD(TYPE_W, dw, at) : 0.0f) + sum * scale);
            }
        }
}
