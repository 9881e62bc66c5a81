// Convolutional additive attention on x itself: the weighted mean of x, in parts.
//
// Group (part, head group, b) owns `span` tokens of one sequence and HG heads. For each head: the largest score, the
// sum of e^(score - largest), and the so weighted sum of x. x is read once. The filters carry the scale.
//
// Shared memory: cas_score.h's, and BT * HP + 3 * HP floats.
// Defines beside cas_score.h's: HEADS >= 1; AH 1..4 heads and ANV 1..4 vectors of a tile of the weighted sum, where
// HG rounded up to AH is at most HP, and ANV * VW divides D.
#include "cas_score.h"

#if !defined(HEADS) || !defined(AH) || !defined(ANV)
#error "HEADS, AH, ANV: see cas.cl"
#endif

#define CHUNKS (D / (ANV * VW))
#define HEAD_TILES ((HG + AH - 1) / AH)

// p = scores; then top = the running maximum, fade = what it does to earlier sums, p = weights, total = their sum.
inline void weigh(SHARED float *p, SHARED float *top, SHARED float *total, SHARED float *fade, SHARED const float *c,
                  const int count, const int lid) {
    for (int u = lid; u < count * HEAD_VECTORS; u += WG)
        RAW_STORE(cas_score(c, u / HEAD_VECTORS, u % HEAD_VECTORS), p + u * VW);
    SYNC;
    for (int hv = lid; hv < HEAD_VECTORS; hv += WG) {
        const V before = RAW_LOAD(top + hv * VW);
        V now = before;
        for (int j = 0; j < count; j++)
            now = fmax(now, RAW_LOAD(p + j * HP + hv * VW));
        RAW_STORE(now, top + hv * VW);
        RAW_STORE(exp(before - now), fade + hv * VW);
    }
    SYNC;
    for (int u = lid; u < count * HEAD_VECTORS; u += WG)
        RAW_STORE(exp(RAW_LOAD(p + u * VW) - RAW_LOAD(top + u % HEAD_VECTORS * VW)), p + u * VW);
    SYNC;
    for (int hv = lid; hv < HEAD_VECTORS; hv += WG) {
        V sum = (V)(0.0f);
        for (int j = 0; j < count; j++)
            sum += RAW_LOAD(p + j * HP + hv * VW);
        RAW_STORE(RAW_LOAD(total + hv * VW) * RAW_LOAD(fade + hv * VW) + sum, total + hv * VW);
    }
}

// sums[head, ch] = fade * sums + sum_j p[j, head] x[j, ch], AH heads from a0 on and ANV vectors from channel ch on.
// The first block of a part has nothing to fade, and does not read sums.
inline void add_tile(__global float *sums, const long head_stride, SHARED const float *p, SHARED const float *fade,
                     __global const STORAGE(TYPE_X) * x, const long x_at, const int count, const int heads,
                     const bool begin, const int a0, const int ch) {
    V acc[AH][ANV];
    UNROLL for (int i = 0; i < AH; i++) {
        const bool old = !begin && a0 + i < heads;
        UNROLL for (int v = 0; v < ANV; v++) {
            acc[i][v] = old ? RAW_LOAD(sums + (a0 + i) * head_stride + ch + v * VW) * fade[a0 + i] : (V)(0.0f);
        }
    }
    for (int j = 0; j < count; j++) {
        V xj[ANV];
        UNROLL for (int v = 0; v < ANV; v++) { xj[v] = VLOAD(TYPE_X, x, x_at + (long)j * D + ch + v * VW); }
        UNROLL for (int i = 0; i < AH; i++) {
            const V w = (V)(p[j * HP + a0 + i]);
            UNROLL for (int v = 0; v < ANV; v++) { acc[i][v] = fma(w, xj[v], acc[i][v]); }
        }
    }
    UNROLL for (int i = 0; i < AH; i++) {
        if (a0 + i < heads) {
            UNROLL for (int v = 0; v < ANV; v++) {
                RAW_STORE(acc[i][v], sums + (a0 + i) * head_stride + ch + v * VW);
            }
        }
    }
}

// sums [B, HEADS, parts, D], peaks [B, HEADS, parts, 2] = (largest, sum of weights). A part without tokens leaves
// (-inf, 0) and its sums unwritten.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_partial(__global const STORAGE(TYPE_X) * x, const long x_at, __global const float *filters, const long filters_at,
            __global const int *lengths, const long lengths_at, __global float *sums, const long sums_at,
            __global float *peaks, const long peaks_at, const long n, const long span) {
    SHARED float c[CAS_ROWS * CAS_STRIDE];
    SHARED float p[BT * HP];
    SHARED float top[HP], total[HP], fade[HP];
    const int lid = get_local_id(0), h0 = get_group_id(1) * HG, heads = min(HG, HEADS - h0);
    const long part = get_group_id(0), parts = get_num_groups(0), b = get_group_id(2);
    const long len = length_of(lengths, lengths_at, b, n), begin = part * span, end = min(begin + span, len);
    const long x0 = x_at + b * n * D, place = (b * HEADS + h0) * parts + part;
    filters += filters_at + get_group_id(1) * CAS_FILTERS;
    sums += sums_at + place * D;
    peaks += peaks_at + place * 2;

    cas_clear_ends(c, lid);
    for (int h = lid; h < HP; h += WG) {
        top[h] = -INFINITY;
        total[h] = 0.0f;
    }
    for (long j0 = begin; j0 < end; j0 += BT) {
        const int count = (int)min((long)BT, end - j0);
        cas_columns(c, x, x0, filters, j0 - LEFT, count + KERNEL - 1, len, lid);
        SYNC;
        weigh(p, top, total, fade, c, count, lid);
        for (int u = lid; u < CHUNKS * HEAD_TILES; u += WG)
            add_tile(sums, parts * D, p, fade, x, x0 + j0 * D, count, heads, j0 == begin, u % HEAD_TILES * AH,
                     u / HEAD_TILES * ANV * VW);
        SYNC;
    }
    SYNC;
    for (int h = lid; h < heads; h += WG) {
        peaks[h * parts * 2] = top[h];
        peaks[h * parts * 2 + 1] = total[h];
    }
}
