// What the adaptive mode prepares.
//
//   assa_pack_keys    k [B, H, n, D]   -> panels of PW keys of each window: a work-group owns one panel of one head
//   assa_pack_values  v [B, H, n, DV]  -> rows of DVP floats in window order: a work-group owns PW rows of one head
//   assa_mix          w [2]            -> softmax(w); the second times ln(2)^2, for scores in units of log2
//   assa_table        bias table [(2 side - 1)^2, H] -> [H, (2 side - 1)^2], each line backwards, times log2(e), so
//                     that neighbouring keys of a query have neighbouring entries: a work-item owns one entry
//
// Defines: those of tile.h; packing: D (head size of the tensor), TYPE_X; mix and table, of weights: TYPE_W.
#include "port.h"
#include "tile.h"
#include "window.h"

#if !(defined(D) && defined(TYPE_X)) && !defined(TYPE_W)
#error "D and TYPE_X, or TYPE_W: see the head of assa_window.cl"
#endif

#ifdef D
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_pack_keys(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *packed, const long packed_offset,
               WINDOW_PARAMETERS, const long batch_stride, const long head_stride, const long row_stride,
               const long packed_batch, const long packed_head) {
    const int windows = windows_of(side, grid_rows, grid_columns);
    const long panel = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    const int count = min((long)PW, side * side - panel * PW);
    const window w = window_at((int)(b % windows), side, grid_rows, grid_columns, shift);
    x += x_offset + b / windows * batch_stride + h * head_stride;
    packed += packed_offset + b * packed_batch + h * packed_head + panel * D * PW;
    for (int j = 0; j < count; j++) {
        const long row = window_token(w, panel * PW + j) * row_stride;
        for (int c = 0; c < D; c++)
            packed[c * PW + j] = LOAD(TYPE_X, x, row + c);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_pack_values(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *packed,
                 const long packed_offset, WINDOW_PARAMETERS, const long batch_stride, const long head_stride,
                 const long row_stride, const long packed_batch, const long packed_head) {
    const int windows = windows_of(side, grid_rows, grid_columns);
    const long block = get_group_id(0), h = get_group_id(1), b = get_group_id(2);
    const int count = min((long)PW, side * side - block * PW);
    const window w = window_at((int)(b % windows), side, grid_rows, grid_columns, shift);
    x += x_offset + b / windows * batch_stride + h * head_stride;
    packed += packed_offset + b * packed_batch + h * packed_head + block * PW * ROUND_UP(D, TN);
    for (int j = 0; j < count; j++) {
        const long row = window_token(w, block * PW + j) * row_stride;
        for (int c = 0; c < D; c++)
            packed[j * ROUND_UP(D, TN) + c] = LOAD(TYPE_X, x, row + c);
    }
}
#else
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_mix(__global const STORAGE(TYPE_W) *w, const long w_offset, __global float *mix, const long mix_offset) {
    const float a = LOAD(TYPE_W, w, w_offset), b = LOAD(TYPE_W, w, w_offset + 1), most = fmax(a, b);
    const float x = exp(a - most), y = exp(b - most);
    mix[mix_offset] = x / (x + y);
    mix[mix_offset + 1] = y / (x + y) * (LN2 * LN2);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_table(__global const STORAGE(TYPE_W) *table, const long table_offset, __global float *to, const long to_offset,
           const int side, const int heads) {
    const int line = 2 * side - 1;
    const long entry = get_global_id(0), h = get_global_id(1), y = entry / line, x = entry % line;
    const long from = table_offset + (y * line + line - 1 - x) * heads + h;
    to[to_offset + h * line * line + entry] = LOAD(TYPE_W, table, from) * LOG2E;
}
#endif
