// Scores of additive attention from given keys.
//
// Group (block, h, b) owns BT tokens: score = scale * the sum of a key's D channels. The query's term cancels.
// k is at b*batch_stride + h*head_stride + j*row_stride + channel. Scores at padding are left unwritten.
//
// Defines: WG, VW, D (channels of k, a multiple of VW), TYPE_K 0|1|2, BT >= 1. No shared memory.
#include "cas.h"

#if !defined(D) || !defined(TYPE_K) || !defined(BT)
#error "D, TYPE_K, BT: see cas_keys.cl"
#endif

// scores [B, H, n].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_keys(__global const STORAGE(TYPE_K) * k, const long k_at, __global const int *lengths, const long lengths_at,
         __global float *scores, const long scores_at, const long n, const float scale, const long batch_stride,
         const long head_stride, const long row_stride) {
    const long b = get_group_id(2), j0 = (long)get_group_id(0) * BT;
    const long end = min(j0 + BT, length_of(lengths, lengths_at, b, n));
    const long k0 = k_at + b * batch_stride + (long)get_group_id(1) * head_stride;
    for (long j = j0 + get_local_id(0); j < end; j += WG) {
        V s = (V)(0.0f);
        for (int ch = 0; ch < D; ch += VW)
            s += VLOAD(TYPE_K, k, k0 + j * row_stride + ch);
        scores[scores_at + (b * get_num_groups(1) + get_group_id(1)) * n + j] = vsum(s) * scale;
    }
}
