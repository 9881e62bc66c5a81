// aft, mode gated-matrix: per head y_i = sigmoid(q_i)^T S_i, S_i = position * sum_j k_j v_j^T, a DH x DH matrix.
//
// A work-item owns NV vectors of S's columns, all DH rows of them, and a block of TB tokens:
//
//             v channels of the strip
//           [ ................ ]
//   k, q    [   S, private     ]  DH rows          aft_outer   S of the block alone, to states[b][block][row][slot]
//   channel [ ................ ]                   (aft_total of aft.cl: sums or prefixes over the blocks)
//                                                  aft_matrix  y; CAUSAL 1: S grows token by token
// One read and write of S a token (a fourth where S stands still): O(n * d * DH), no token-by-token products.
// Padding is never read; its rows of y are 0. y must not be q's memory.
// Local memory: none; DH * NV vectors of private memory.
// Defines: see include/aft.h; GATE, CAUSAL, POSITION 0|1, DH 1..256 channels of a head (= width).
#include "aft.h"

#if !defined(GATE) || !defined(CAUSAL) || !defined(POSITION) || !defined(DH)
#error "GATE, CAUSAL, POSITION, DH: see aft_matrix.cl"
#endif

// A token's DH channels, padded to whole vectors.
#define ROW ((DH + VW - 1) / VW * VW)
#define TOKENS 4

inline void read_row(float *row, __global const STORAGE(TYPE_X) * p, const long i) {
    for (int a = 0; a < DH; a += VW) RAW_STORE(load_lanes(p, i + a, min(DH - a, VW)), row + a);
}

inline void read_gate(float *row, __global const STORAGE(TYPE_X) * p, const long i) {
    for (int a = 0; a < DH; a += VW) RAW_STORE(OPEN(load_lanes(p, i + a, min(DH - a, VW))), row + a);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_outer(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
          const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
          const long x_row, const long x_group, __global float *states, const long states_offset,
          __global const int *lengths, const long lengths_offset, const long n, const int strips,
          const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(DH, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, tokens_of(lengths, lengths_offset, b, n));
    const long ki = k_offset + b * k_batch + s.group * k_group;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
    V m[DH][NV];
    for (int a = 0; a < DH; a++) EACH_VECTOR m[a][v] = (V)(0.0f);
    for (long j = block * TB; j < end; j += TOKENS) {
        float kr[TOKENS][ROW];
        V xr[TOKENS][NV];
        UNROLL for (int r = 0; r < TOKENS; r++) {
            const bool there = j + r < end;
            const long token = there ? j + r : j;
            read_row(kr[r], k, ki + token * k_row);
            EACH_VECTOR {
                const V value = load_lanes(x, xi + token * x_row + v * VW, strip_lanes(s, v));
                xr[r][v] = there ? value : (V)(0.0f);
            }
        }
        for (int a = 0; a < DH; a++) {
            EACH_VECTOR {
                V sum = m[a][v];
                UNROLL for (int r = 0; r < TOKENS; r++) sum = fma((V)(kr[r][a]), xr[r][v], sum);
                m[a][v] = sum;
            }
        }
    }
    const long to = states_offset + (b * get_num_groups(1) + block) * DH * pitch + s.slot;
    for (int a = 0; a < DH; a++) EACH_VECTOR RAW_STORE(m[a][v], states + to + a * pitch + v * VW);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_matrix(__global const STORAGE(TYPE_X) * q, const long q_offset, const long q_batch, const long q_row,
           const long q_group, __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch,
           const long k_row, const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset,
           const long x_batch, const long x_row, const long x_group, __global STORAGE(TYPE_Y) * y,
           const long y_offset, const long y_batch, const long y_row, const long y_group,
           __global const float *states, const long states_offset, __global const float *position,
           const long position_offset, __global const int *lengths, const long lengths_offset, const long n,
           const int strips, const int strip_count, const long pitch, const long blocks) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(DH, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, n), stop = min(end, tokens_of(lengths, lengths_offset, b, n));
    const long qi = q_offset + b * q_batch + s.group * q_group;
    const long yi = y_offset + b * y_batch + s.group * y_group + s.c;
    const long from = states_offset + (b * blocks + (CAUSAL ? block : 0)) * DH * pitch + s.slot;
    const float scale = POSITION ? position[position_offset + s.group] : 1.0f;
    V m[DH][NV];
    for (int a = 0; a < DH; a++) EACH_VECTOR m[a][v] = RAW_LOAD(states + from + a * pitch + v * VW);
    long i = block * TB;
#if CAUSAL
    const long ki = k_offset + b * k_batch + s.group * k_group;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
    for (; i < stop; i++) {
        float gate[ROW], kr[ROW];
        V xr[NV], sum[NV];
        read_gate(gate, q, qi + i * q_row);
        read_row(kr, k, ki + i * k_row);
        EACH_VECTOR {
            xr[v] = load_lanes(x, xi + i * x_row + v * VW, strip_lanes(s, v));
            sum[v] = (V)(0.0f);
        }
        for (int a = 0; a < DH; a++) {
            EACH_VECTOR {
                m[a][v] = fma((V)(kr[a]), xr[v], m[a][v]);
                sum[v] = fma((V)(gate[a]), m[a][v], sum[v]);
            }
        }
        EACH_VECTOR store_lanes(y, yi + i * y_row + v * VW, strip_lanes(s, v), sum[v] * scale);
    }
#else
    for (; i < stop; i += TOKENS) {
        const int count = (int)min(stop - i, (long)TOKENS);
        float gate[TOKENS][ROW];
        V sum[TOKENS][NV];
        UNROLL for (int r = 0; r < TOKENS; r++) {
            read_gate(gate[r], q, qi + (i + (r < count ? r : 0)) * q_row);
            EACH_VECTOR sum[r][v] = (V)(0.0f);
        }
        for (int a = 0; a < DH; a++) {
            EACH_VECTOR {
                const V row = m[a][v];
                UNROLL for (int r = 0; r < TOKENS; r++) sum[r][v] = fma((V)(gate[r][a]), row, sum[r][v]);
            }
        }
        UNROLL for (int r = 0; r < TOKENS; r++) {
            if (r < count) {
                EACH_VECTOR store_lanes(y, yi + (i + r) * y_row + v * VW, strip_lanes(s, v), sum[r][v] * scale);
            }
        }
    }
#endif
    for (i = max(stop, block * (long)TB); i < end; i++) {
        EACH_VECTOR store_lanes(y, yi + i * y_row + v * VW, strip_lanes(s, v), (V)(0.0f));
    }
}
