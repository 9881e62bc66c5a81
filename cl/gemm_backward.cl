// What the gradients of a linear layer need beside the products of gemm.cl.
//
//   gemm_backward_flip     W of all sections, as gemm_pack (KEPT 0) or gemm_keep (KEPT 1) left it, as the weight of
//                          dX = dY W in the same form: sections * out deep, `in` outputs, biases 0
//   gemm_backward_rows     X [rows, in] as the weight [in, rows] of dW = dY^T X in the engine's form, biases 0; padding
//                          rows are 0, whatever X holds there
//   gemm_backward_transpose  dY [rows, columns] as [columns, rows], and the sums of dY's columns over blocks of ROWS rows:
//                          a work-item owns PW columns of a block
//   gemm_backward_sum      those sums over all blocks, into one section's db: a work-item owns VW columns
//
// Defines: those of tile.h; KEPT 0|1; ROWS >= 1; TYPE_X, TYPE_Y.
#include "tile.h"

#if !defined(KEPT) || !defined(ROWS) || !defined(TYPE_X) || !defined(TYPE_Y)
#error "KEPT, ROWS, TYPE_X, TYPE_Y: see the head of gemm_backward.cl"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_backward_flip(__global const float *packed, const long packed_offset, __global float *flipped,
                   const long flipped_offset, const long in, const long out, const long sections) {
    const long panels = CEIL_DIV(out, PW), panels_in = CEIL_DIV(in, PW), depth = sections * out;
    const long first = get_global_id(0) * PW;
    packed += packed_offset;
    flipped += flipped_offset;
    for (long k = 0; k < depth; k++) {
        const long section = k / out, o = k - section * out;
        const long from = section * (KEPT ? out : panels * PW) + o;
        for (int j = 0; j < PW; j++) {
            const long i = first + j;
            if (i < in || !KEPT)
                flipped[weight_at(k, i, depth)] = i < in ? packed[weight_at(i, from, in)] : 0.0f;
        }
    }
    for (int j = 0; j < PW; j++)
        flipped[(KEPT ? in : panels_in * PW) * depth + first + j] = 0.0f;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_backward_rows(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *packed,
                   const long packed_offset, __global const int *lengths, const long lengths_offset, const long batch,
                   const long rows, const long in, const long x_batch_stride, const long x_row_stride) {
    const long first = get_global_id(0) * PW, count = min((long)PW, in - first), all = batch * rows;
    const long block = get_global_id(1) * ROWS, b = get_global_id(2);
    const long length = lengths ? clamp((long)lengths[lengths_offset + b], 0L, rows) : rows;
    x += x_offset + b * x_batch_stride + first;
    packed += packed_offset;
    for (long r = block; r < min(block + ROWS, rows); r++)
        for (int j = 0; j < (KEPT ? count : PW); j++)
            packed[weight_at(b * rows + r, first + j, all)] =
                j < count && r < length ? LOAD(TYPE_X, x, r * x_row_stride + j) : 0.0f;
    if (block == 0 && b == 0)
        for (int j = 0; j < PW; j++)
            packed[(KEPT ? in : CEIL_DIV(in, PW) * PW) * all + first + j] = 0.0f;
}

// partial [blocks, columns]; NULL: not wanted.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_backward_transpose(__global const STORAGE(TYPE_X) *dy, const long dy_offset, __global float *to,
                        const long to_offset, __global float *partial, const long partial_offset, const long rows,
                        const long columns, const long dy_row_stride) {
    float block[PW * ROWS] ALIGNED; // read along rows, written along columns
    const long first = get_global_id(0) * PW, row0 = get_global_id(1) * ROWS;
    const int width = min((long)PW, columns - first), count = min((long)ROWS, rows - row0);
    dy += dy_offset + row0 * dy_row_stride + first;
    to += to_offset + first * rows + row0;
    for (int r = 0; r < count; r++)
        for (int c = 0; c < width; c++)
            block[r * PW + c] = LOAD(TYPE_X, dy, r * dy_row_stride + c);
    for (int c = 0; c < width; c++) {
        float sum = 0.0f;
        for (int r = 0; r < count; r++) {
            to[c * rows + r] = block[r * PW + c];
            sum += block[r * PW + c];
        }
        if (partial)
            partial[partial_offset + get_global_id(1) * columns + first + c] = sum;
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_backward_sum(__global const float *partial, const long partial_offset, __global STORAGE(TYPE_Y) *db,
                  const long db_offset, const long blocks, const long columns, const long first_column,
                  const long count, const int add) {
    const long first = get_global_id(0) * VW;
    for (int e = 0; e < VW && first + e < count; e++) {
        float sum = add ? LOAD(TYPE_Y, db, db_offset + first + e) : 0.0f;
        for (long block = 0; block < blocks; block++)
            sum += partial[partial_offset + block * columns + first_column + first + e];
        STORE(TYPE_Y, db, db_offset + first + e, sum);
    }
}
