// Scores of convolutional additive attention, for the causal scan.
//
// Group (block, head group, b) owns BT tokens and HG heads. The filters carry the scale.
//
// Shared memory and defines: cas_score.h's, and HEADS >= 1.
#include "cas_score.h"

#ifndef HEADS
#error "HEADS: see cas_scores.cl"
#endif

// scores [B, HEADS, n]; those at padding are left unwritten.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_scores(__global const STORAGE(TYPE_X) * x, const long x_at, __global const float *filters, const long filters_at,
           __global const int *lengths, const long lengths_at, __global float *scores, const long scores_at,
           const long n) {
    SHARED float c[CAS_ROWS * CAS_STRIDE];
    const int lid = get_local_id(0), h0 = get_group_id(1) * HG, heads = min(HG, HEADS - h0);
    const long j0 = (long)get_group_id(0) * BT, b = get_group_id(2);
    const long len = length_of(lengths, lengths_at, b, n);
    const int count = (int)clamp(len - j0, 0L, (long)BT);
    if (count == 0)
        return;
    cas_clear_ends(c, lid);
    cas_columns(c, x, x_at + b * n * D, filters + filters_at + get_group_id(1) * CAS_FILTERS, j0 - LEFT,
                count + KERNEL - 1, len, lid);
    SYNC;
    scores += scores_at + (b * HEADS + h0) * n + j0;
    for (int u = lid; u < count * heads; u += WG) {
        const int j = u % count, h = u / count;
        float s = 0.0f;
        for (int tap = 0; tap < KERNEL; tap++)
            s += c[(j + tap) * CAS_STRIDE + tap * HG + h];
        scores[h * n + j] = s;
    }
}
