// aft, mode gated: y_i = sigmoid(q_i) * position * sum_j k_j v_j, channel by channel; and the row of averages that
// mode simple shares.
//
//   aft_sum    block (tokens), strip: sums[b][block][slot] = sum of k v over the block's tokens
//   aft_total  strip: TOTAL 1: sums[b][0] = sum over all blocks; 0: sums[b][block] = sum over earlier blocks
//   aft_gate   block, strip: y. CAUSAL 0: one total for all tokens; 1: the running sum, j <= i
//
// Padding is never read; its rows of y are 0. q and y may be the same memory: an element is read and written
// by one work-item.
// Local memory: none. Defines: see include/aft.h; GATE, CAUSAL, TOTAL, POSITION 0|1.
#include "aft.h"

#if !defined(GATE) || !defined(CAUSAL) || !defined(TOTAL) || !defined(POSITION)
#error "GATE, CAUSAL, TOTAL, POSITION: see aft.cl"
#endif

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_sum(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
        const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
        const long x_row, const long x_group, __global float *sums, const long sums_offset,
        __global const int *lengths, const long lengths_offset, const long n, const int width, const int strips,
        const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, tokens_of(lengths, lengths_offset, b, n));
    const long ki = k_offset + b * k_batch + s.group * k_group + s.c;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
    V sum[NV];
    EACH_VECTOR sum[v] = (V)(0.0f);
    for (long j = block * TB; j < end; j++) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            sum[v] = fma(load_lanes(k, ki + j * k_row + v * VW, lanes), load_lanes(x, xi + j * x_row + v * VW, lanes),
                         sum[v]);
        }
    }
    const long to = sums_offset + (b * get_num_groups(1) + block) * pitch + s.slot;
    EACH_VECTOR RAW_STORE(sum[v], sums + to + v * VW);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_total(__global float *sums, const long sums_offset, const long blocks, const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const long first = sums_offset + (long)get_group_id(2) * blocks * pitch + (long)get_global_id(0) * STRIP;
    V run[NV];
    EACH_VECTOR run[v] = (V)(0.0f);
    for (long block = 0; block < blocks; block++) {
        EACH_VECTOR {
            __global float *at = sums + first + block * pitch + v * VW;
            const V own = RAW_LOAD(at);
#if !TOTAL
            RAW_STORE(run[v], at);
#endif
            run[v] += own;
        }
    }
#if TOTAL
    EACH_VECTOR RAW_STORE(run[v], sums + first + v * VW);
#endif
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_gate(__global const STORAGE(TYPE_X) * q, const long q_offset, const long q_batch, const long q_row,
         const long q_group, __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch,
         const long k_row, const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset,
         const long x_batch, const long x_row, const long x_group, __global STORAGE(TYPE_Y) * y, const long y_offset,
         const long y_batch, const long y_row, const long y_group, __global const float *sums, const long sums_offset,
         __global const float *position, const long position_offset, __global const int *lengths,
         const long lengths_offset, const long n, const int width, const int strips, const int strip_count,
         const long pitch, const long sums_batch, const int head_size) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, n), seen = tokens_of(lengths, lengths_offset, b, n);
    const long qi = q_offset + b * q_batch + s.group * q_group + s.c;
    const long yi = y_offset + b * y_batch + s.group * y_group + s.c;
    const long from = sums_offset + b * sums_batch + s.slot;
#if CAUSAL
    const long ki = k_offset + b * k_batch + s.group * k_group + s.c;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
#endif
    V scale[NV], run[NV];
    EACH_VECTOR {
        scale[v] = position_of(position, position_offset, s, v, head_size);
        run[v] = RAW_LOAD(sums + from + (CAUSAL ? block * pitch : 0) + v * VW);
    }
    for (long i = block * TB; i < end; i++) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            V out = (V)(0.0f);
            if (i < seen) {
#if CAUSAL
                run[v] = fma(load_lanes(k, ki + i * k_row + v * VW, lanes),
                             load_lanes(x, xi + i * x_row + v * VW, lanes), run[v]);
#endif
                out = OPEN(load_lanes(q, qi + i * q_row + v * VW, lanes)) * (run[v] * scale[v]);
            }
            store_lanes(y, yi + i * y_row + v * VW, lanes, out);
        }
    }
}
