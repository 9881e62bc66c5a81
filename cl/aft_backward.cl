// aft, backwards: what every mode begins with, and mode gated. See include/aft_backward.h.
//
//   aft_backward_terms     block (tokens), strip: terms and dQ, by KIND
//                            0 gated         P; dQ
//                            1 averages      P; dQ, from o instead of y
//                            2 gated-matrix  g, dY
//   aft_backward_sum       block, strip: sums[b][block][slot] = sum of P over the block's tokens
//   aft_backward_later     strip: CAUSAL 1: sums[b][block] = sum over later blocks; 0: sums[b][0] = sum over all
//   aft_backward_gated     block, strip: with R_j the sum of P over i >= j (all i where not causal), p the head's weight:
//                            dK_j = p R_j V_j     dV_j = p R_j K_j     parts[b][block][slot] = sum of K_j V_j R_j
//   aft_backward_channels  strip: parts[0][0] = sum over all sequences and blocks
//   aft_backward_position  head: dp_h = sum of its channels
//
// Gradients at padding are 0, and what is there is never read; sums count it as 0.
// Local memory: none. Defines: see include/aft.h; GATE, CAUSAL, POSITION 0|1, KIND 0..2, TYPE_G 0|1|2 type of dp.
#include "aft_backward.h"

#if !defined(GATE) || !defined(CAUSAL) || !defined(POSITION) || !defined(KIND) || !defined(TYPE_G)
#error "GATE, CAUSAL, POSITION, KIND, TYPE_G: see aft_backward.cl"
#endif

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_terms(__global const STORAGE(TYPE_X) * q, const long q_offset, const long q_batch, const long q_row,
                   const long q_group, __global const STORAGE(TYPE_Y) * y, const long y_offset, const long y_batch,
                   const long y_row, const long y_group, __global const STORAGE(TYPE_Y) * dy, const long dy_offset,
                   const long dy_batch, const long dy_row, const long dy_group, __global STORAGE(TYPE_X) * dq,
                   const long dq_offset, const long dq_batch, const long dq_row, const long dq_group,
                   __global const float *traces, const long traces_offset, const long traces_batch,
                   const long traces_row, const long traces_group, __global float *terms, const long terms_offset, const long terms_batch, const long terms_row,
                   const long terms_group, const long second, __global const int *lengths, const long lengths_offset,
                   const long n, const int width, const int strips, const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long seen = tokens_of(lengths, lengths_offset, b, n), end = min((block + 1) * TB, n);
    const long qi = q_offset + b * q_batch + s.group * q_group + s.c;
    const long yi = y_offset + b * y_batch + s.group * y_group + s.c;
    const long dyi = dy_offset + b * dy_batch + s.group * dy_group + s.c;
    const long dqi = dq_offset + b * dq_batch + s.group * dq_group + s.c;
    const long oi = traces_offset + b * traces_batch + s.group * traces_group + s.c + 2 * second;
    const long ti = terms_offset + b * terms_batch + s.group * terms_group + s.c;
    for (long i = block * TB; i < end; i++) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            V g = (V)(0.0f), gradient = (V)(0.0f), out = (V)(0.0f);
            if (i < seen) {
                g = OPEN(load_lanes(q, qi + i * q_row + v * VW, lanes));
                gradient = load_y(dy, dyi + i * dy_row + v * VW, lanes);
#if KIND == 0
                out = load_y(y, yi + i * y_row + v * VW, lanes);
#elif KIND == 1
                out = g * load_float(traces, oi + i * traces_row + v * VW, lanes);
#endif
            }
            const long at = ti + i * terms_row + v * VW;
#if KIND == 2
            store_float(terms, at, lanes, g);
            store_float(terms, at + second, lanes, gradient);
#else
            store_float(terms, at, lanes, gradient * g);
            store_x(dq, dqi + i * dq_row + v * VW, lanes, gradient * out * (1.0f - g));
#endif
        }
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_sum(__global const float *terms, const long terms_offset, const long terms_batch, const long terms_row,
                 const long terms_group, __global float *sums, const long sums_offset, __global const int *lengths,
                 const long lengths_offset, const long n, const int width, const int strips, const int strip_count,
                 const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2), end = min((block + 1) * TB, n);
    const long ti = terms_offset + b * terms_batch + s.group * terms_group + s.c;
    V sum[NV];
    EACH_VECTOR sum[v] = (V)(0.0f);
    for (long i = block * TB; i < end; i++) {
        EACH_VECTOR sum[v] += load_float(terms, ti + i * terms_row + v * VW, strip_lanes(s, v));
    }
    const long to = sums_offset + (b * get_num_groups(1) + block) * pitch + s.slot;
    EACH_VECTOR RAW_STORE(sum[v], sums + to + v * VW);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_later(__global float *sums, const long sums_offset, const long blocks, const int strip_count,
                   const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const long first = sums_offset + (long)get_group_id(2) * blocks * pitch + (long)get_global_id(0) * STRIP;
    V run[NV];
    EACH_VECTOR run[v] = (V)(0.0f);
    for (long block = blocks - 1; block >= 0; block--) {
        EACH_VECTOR {
            __global float *at = sums + first + block * pitch + v * VW;
            const V own = RAW_LOAD(at);
#if CAUSAL
            RAW_STORE(run[v], at);
#endif
            run[v] += own;
        }
    }
#if !CAUSAL
    EACH_VECTOR RAW_STORE(run[v], sums + first + v * VW);
#endif
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_gated(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
                   const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
                   const long x_row, const long x_group, __global STORAGE(TYPE_X) * dk, const long dk_offset,
                   const long dk_batch, const long dk_row, const long dk_group, __global STORAGE(TYPE_X) * dx,
                   const long dx_offset, const long dx_batch, const long dx_row, const long dx_group,
                   __global const float *terms, const long terms_offset, const long terms_batch, const long terms_row,
                   const long terms_group, __global const float *sums, const long sums_offset, __global float *parts,
                   const long parts_offset, __global const float *position, const long position_offset,
                   __global const int *lengths, const long lengths_offset, const long n, const int width,
                   const int strips, const int strip_count, const long pitch, const int head_size) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), blocks = get_num_groups(1), b = get_group_id(2);
    const long seen = tokens_of(lengths, lengths_offset, b, n), end = min((block + 1) * TB, n);
    const long ki = k_offset + b * k_batch + s.group * k_group + s.c;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
    const long dki = dk_offset + b * dk_batch + s.group * dk_group + s.c;
    const long dxi = dx_offset + b * dx_batch + s.group * dx_group + s.c;
    const long ti = terms_offset + b * terms_batch + s.group * terms_group + s.c;
    const long from = (b * blocks + (CAUSAL ? block : 0)) * pitch + s.slot;
    V scale[NV], run[NV], dot[NV];
    EACH_VECTOR {
        scale[v] = position_of(position, position_offset, s, v, head_size);
        run[v] = RAW_LOAD(sums + sums_offset + from + v * VW);
        dot[v] = (V)(0.0f);
    }
    for (long j = end - 1; j >= block * TB; j--) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            V key = (V)(0.0f), value = (V)(0.0f);
            if (j < seen) {
                key = load_lanes(k, ki + j * k_row + v * VW, lanes);
                value = load_lanes(x, xi + j * x_row + v * VW, lanes);
#if CAUSAL
                run[v] += load_float(terms, ti + j * terms_row + v * VW, lanes);
#endif
            }
            dot[v] = fma(key * value, run[v], dot[v]);
            store_x(dk, dki + j * dk_row + v * VW, lanes, scale[v] * run[v] * value);
            store_x(dx, dxi + j * dx_row + v * VW, lanes, scale[v] * run[v] * key);
        }
    }
    EACH_VECTOR RAW_STORE(dot[v], parts + parts_offset + (b * blocks + block) * pitch + s.slot + v * VW);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_channels(__global float *parts, const long parts_offset, const long count, const int strip_count,
                      const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const long first = parts_offset + (long)get_global_id(0) * STRIP;
    EACH_VECTOR {
        V sum = (V)(0.0f);
        for (long part = 0; part < count; part++) sum += RAW_LOAD(parts + first + part * pitch + v * VW);
        RAW_STORE(sum, parts + first + v * VW);
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_position(__global const float *parts, const long parts_offset, __global STORAGE(TYPE_G) * dp,
                      const long dp_offset, const int heads, const int head_size, const long head_pitch,
                      const int add) {
    const int h = get_global_id(0);
    if (h >= heads) return;
    float sum = add ? LOAD(TYPE_G, dp, dp_offset + h) : 0.0f;
    for (int c = 0; c < head_size; c++) sum += parts[parts_offset + h * head_pitch + c];
    STORE(TYPE_G, dp, dp_offset + h, sum);
}
