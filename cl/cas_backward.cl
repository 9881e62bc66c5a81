// Gradients of additive attention that is not causal: weights p = softmax(scores), one row for all queries.
//
// cas_backward_scores  group (block, h, b) owns BT tokens: their weights p, and the scores' gradients, the *slopes*
//                          slope_j = p_j (row . v_j - row . mean),    mean = the sum of p v, row = the gradient of it
// cas_backward_values  group (block, h, b): the gradient of v, p_j row.
// cas_backward_keys    group (block, h, b): every channel of a token gets factor * slope; a factor of 0 gives zeros.
//
// Slopes have HALO zeros before and behind each row, and zeros at padding: convolutions read past the ends.
// v and gradients are at b*batch_stride + h*head_stride + j*row_stride + channel; v at padding is not read.
//
// Defines: WG, VW, D (channels of v and the gradient, a multiple of VW), BT >= 1, TJ >= 1 tokens of a work-item at once,
// HALO >= 0, TYPE_V, TYPE_O 0|1|2. No shared memory.
#include "cas.h"

#if !defined(D) || !defined(BT) || !defined(TJ) || !defined(HALO) || !defined(TYPE_V) || !defined(TYPE_O)
#error "D, BT, TJ, HALO, TYPE_V, TYPE_O: see cas_backward.cl"
#endif

inline long head_row(void) { return get_group_id(2) * get_num_groups(1) + get_group_id(1); }

inline float dot_row(__global const float *a, __global const float *b) {
    V acc = (V)(0.0f);
    for (int ch = 0; ch < D; ch += VW)
        acc = fma(RAW_LOAD(a + ch), RAW_LOAD(b + ch), acc);
    return vsum(acc);
}

// row . v of TJ tokens, the last of which stand for those from `end` on.
inline void dot_tokens(float dot[TJ], __global const float *row, __global const STORAGE(TYPE_V) * v, const long v0,
                       const long row_stride, const long j, const long end) {
    V acc[TJ];
    long at[TJ];
    UNROLL for (int i = 0; i < TJ; i++) {
        acc[i] = (V)(0.0f);
        at[i] = v0 + min(j + i, end - 1) * row_stride;
    }
    for (int ch = 0; ch < D; ch += VW) {
        const V a = RAW_LOAD(row + ch);
        UNROLL for (int i = 0; i < TJ; i++) { acc[i] = fma(a, VLOAD(TYPE_V, v, at[i] + ch), acc[i]); }
    }
    UNROLL for (int i = 0; i < TJ; i++) { dot[i] = vsum(acc[i]); }
}

// scores [B, H, n], states [B, H, 2] = (largest score, sum of weights), rows, means [B, H, D]
// -> weights [B, H, n], which may be the scores; slopes [B, H, HALO + n + HALO].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_scores(__global const float *scores, const long scores_at, __global const float *states,
                    const long states_at, __global const float *rows, const long rows_at, __global const float *means,
                    const long means_at, __global const STORAGE(TYPE_V) * v, const long v_at,
                    __global const int *lengths, const long lengths_at, __global float *weights, const long weights_at,
                    __global float *slopes, const long slopes_at, const long n, const long batch_stride,
                    const long head_stride, const long row_stride) {
    const int lid = get_local_id(0);
    const long b = get_group_id(2), begin = (long)get_group_id(0) * BT, last = min(begin + BT, n);
    const long end = clamp(length_of(lengths, lengths_at, b, n), begin, last);
    const long v0 = v_at + b * batch_stride + (long)get_group_id(1) * head_stride;
    scores += scores_at + head_row() * n;
    weights += weights_at + head_row() * n;
    slopes += slopes_at + head_row() * (n + 2 * HALO) + HALO;
    rows += rows_at + head_row() * D;
    const float top = states[states_at + head_row() * 2], total = states[states_at + head_row() * 2 + 1];
    const float level = begin < end ? dot_row(rows, means + means_at + head_row() * D) : 0.0f;

    for (long j = begin + lid * TJ; j < end; j += WG * TJ) {
        float dot[TJ];
        dot_tokens(dot, rows, v, v0, row_stride, j, end);
        for (int i = 0; i < min((long)TJ, end - j); i++) {
            const float p = exp(scores[j + i] - top) / total;
            weights[j + i] = p;
            slopes[j + i] = p * (dot[i] - level);
        }
    }
    for (long j = end + lid; j < last; j += WG)
        weights[j] = slopes[j] = 0.0f;
    for (int i = lid; i < HALO; i += WG) {
        if (begin == 0)
            slopes[i - HALO] = 0.0f;
        if (last == n)
            slopes[n + i] = 0.0f;
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_values(__global const float *weights, const long weights_at, __global const float *rows,
                    const long rows_at, __global STORAGE(TYPE_O) * grad, const long grad_at, const long n,
                    const long batch_stride, const long head_stride, const long row_stride) {
    const long begin = (long)get_group_id(0) * BT;
    const long to = grad_at + get_group_id(2) * batch_stride + (long)get_group_id(1) * head_stride;
    weights += weights_at + head_row() * n;
    rows += rows_at + head_row() * D;
    for (long j = begin; j < min(begin + BT, n); j++)
        for (int ch = get_local_id(0) * VW; ch < D; ch += WG * VW)
            VSTORE(TYPE_O, grad, to + j * row_stride + ch, RAW_LOAD(rows + ch) * weights[j]);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_keys(__global const float *slopes, const long slopes_at, __global STORAGE(TYPE_O) * grad,
                  const long grad_at, const long n, const float factor, const long batch_stride,
                  const long head_stride, const long row_stride) {
    const long begin = (long)get_group_id(0) * BT;
    const long to = grad_at + get_group_id(2) * batch_stride + (long)get_group_id(1) * head_stride;
    slopes += slopes_at + head_row() * (n + 2 * HALO) + HALO;
    for (long j = begin; j < min(begin + BT, n); j++) {
        const V slope = (V)(factor == 0.0f ? 0.0f : factor * slopes[j]);
        for (int ch = get_local_id(0) * VW; ch < D; ch += WG * VW)
            VSTORE(TYPE_O, grad, to + j * row_stride + ch, slope);
    }
}
