// One row for all tokens of a sequence.
//
// Group (block, h, b) copies its row to row_block tokens; tokens at padding get `bias`, or zeros.
//
// Defines: WG, VW, D (channels of a row, a multiple of VW), TYPE_Y 0|1|2. No shared memory.
#include "cas.h"

#if !defined(D) || !defined(TYPE_Y)
#error "D, TYPE_Y: see cas_spread.cl"
#endif

// rows [B, H, D] -> y at b*batch_stride + h*head_stride + i*row_stride, i < n; bias [D] or NULL.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_spread(__global const float *rows, const long rows_at, __global const float *bias, const long bias_at,
           __global const int *lengths, const long lengths_at, __global STORAGE(TYPE_Y) * y, const long y_at,
           const long n, const long row_block, const long batch_stride, const long head_stride,
           const long row_stride) {
    const int lid = get_local_id(0);
    const long b = get_group_id(2), h = get_group_id(1), i0 = (long)get_group_id(0) * row_block;
    const long len = length_of(lengths, lengths_at, b, n), end = min(i0 + row_block, n);
    rows += rows_at + (b * get_num_groups(1) + h) * D;
    const long y0 = y_at + b * batch_stride + h * head_stride;
    for (long i = i0; i < end; i++)
        for (int v = lid; v < D / VW; v += WG) {
            V row = (V)(0.0f);
            if (i < len)
                row = RAW_LOAD(rows + v * VW);
            else if (bias)
                row = RAW_LOAD(bias + bias_at + v * VW);
            VSTORE(TYPE_Y, y, y0 + i * row_stride + v * VW, row);
        }
}
