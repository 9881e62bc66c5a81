// Keys and values of any layout into the forms that attention.h reads.
//
//   pack_keys    k [B, H, N, D]   -> panels of PW keys: a work-group owns one panel of one head
//   pack_values  v [B, H, N, DV]  -> vectors of TN columns, packed_row apart from row to row and packed_panel from one TN columns to
//                the next: rows of DVP floats, or panels of TN columns: a work-group owns PW rows of one head
//
// Elements are multiplied by a factor. Padding of a panel or a row is left unwritten: attention never reads it into a result.
// Defines: those of tile.h; D (head size of the tensor), TYPE_X.
#include "tile.h"

#if !defined(D) || !defined(TYPE_X)
#error "D, TYPE_X: see the head of pack.cl"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
pack_keys(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *packed, const long packed_offset,
          const long rows, const long batch_stride, const long head_stride, const long row_stride,
          const long packed_batch, const long packed_head,
          const float factor) {
    const long panel = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    const int count = min((long)PW, rows - panel * PW);
    x += x_offset + b * batch_stride + h * head_stride + panel * PW * row_stride;
    packed += packed_offset + b * packed_batch + h * packed_head + panel * D * PW;
    for (int j = 0; j < count; j++)
        for (int c = 0; c < D; c++)
            packed[c * PW + j] = LOAD(TYPE_X, x, j * row_stride + c) * factor;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
pack_values(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *packed, const long packed_offset,
            const long rows, const long batch_stride, const long head_stride, const long row_stride,
            const long packed_batch, const long packed_head,
            const float factor, const long packed_row, const long packed_panel) {
    const long block = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    const int count = min((long)PW, rows - block * PW);
    x += x_offset + b * batch_stride + h * head_stride + block * PW * row_stride;
    packed += packed_offset + b * packed_batch + h * packed_head + block * PW * packed_row;
    for (int j = 0; j < count; j++)
        for (int first = 0; first < D; first += TN)
            for (int c = first; c < min(first + TN, D); c++)
                packed[j * packed_row + first / TN * packed_panel + c - first] = LOAD(TYPE_X, x, j * row_stride + c) * factor;
}
