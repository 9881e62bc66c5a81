// aft, backwards, mode gated-matrix. With S_i = sum_j k_j v_j^T as in forward, R_j = sum_i g_i dY_i^T over i >= j (all i where
// not causal), p the head's weight, g = sigmoid(q):
//
//   KIND 0   dg_i = p S_i dY_i,  dq_i = dg_i g_i (1 - g_i)      M = S^T = sum v_j k_j^T,   out_i = dY_i^T M
//   KIND 1   dv_j = p R_j^T k_j                                 M = R   = sum g_i dY_i^T,  out_j = k_j^T M
//   KIND 2   dk_j = p R_j v_j,  dp = sum k_j . R_j v_j          M = R^T = sum dY_i g_i^T,  out_j = v_j^T M
//
// so all three are one thing (and where not causal, M may be the sum over other tokens than those that it multiplies): a work-item owns NV vectors of M's columns, all DH rows of them, and a block of TB tokens,
// as in aft_matrix.cl, whose aft_outer makes each block's M; prefixes by aft_total, suffixes by aft_backward_later.
//
//   aft_backward_matrix  block, strip: out; KIND 2: parts[b][block][slot] = sum of k_j R_j v_j, without p
//
// Where causal, M grows token by token: KIND 0 from the first on, the others from the last back. Gradients at padding are 0.
// Local memory: none; DH * NV vectors of private memory.
// Defines: see include/aft.h; CAUSAL, POSITION 0|1, KIND 0..2, DH 1..256 channels of a head (= width).
#include "aft_backward.h"

#if !defined(CAUSAL) || !defined(POSITION) || !defined(KIND) || !defined(DH)
#error "CAUSAL, POSITION, KIND, DH: see aft_backward_matrix.cl"
#endif

// Types of what M is made of, of what it multiplies, and of what stands beside the result (g, or k).
#if KIND == 0
#define TYPE_M TYPE_X
#define TYPE_B 0
#define TYPE_S 0
#else
#define TYPE_M 0
#define TYPE_B TYPE_X
#define TYPE_S TYPE_X
#endif

LANES_LOAD(load_m, TYPE_M)
LANES_LOAD(load_b, TYPE_B)
LANES_LOAD(load_s, TYPE_S)

// A token's DH channels, padded to whole vectors.
#define ROW ((DH + VW - 1) / VW * VW)

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_matrix(__global const STORAGE(TYPE_M) * left, const long left_offset, const long left_batch,
                    const long left_row, const long left_group, __global const STORAGE(TYPE_M) * right,
                    const long right_offset, const long right_batch, const long right_row, const long right_group,
                    __global const STORAGE(TYPE_B) * by, const long by_offset, const long by_batch, const long by_row,
                    const long by_group, __global const STORAGE(TYPE_S) * side, const long side_offset,
                    const long side_batch, const long side_row, const long side_group, __global STORAGE(TYPE_X) * to,
                    const long to_offset, const long to_batch, const long to_row, const long to_group,
                    __global const float *states, const long states_offset, __global float *parts,
                    const long parts_offset, __global const float *position, const long position_offset,
                    __global const int *lengths, const long lengths_offset, const long n, const int strips,
                    const int strip_count, const long pitch, const long states_batch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(DH, strips);
    const long block = get_group_id(1), blocks = get_num_groups(1), b = get_group_id(2);
    const long begin = block * TB, end = min(begin + TB, n), stop = min(end, tokens_of(lengths, lengths_offset, b, n));
    const long bi = by_offset + b * by_batch + s.group * by_group;
    const long ti = to_offset + b * to_batch + s.group * to_group + s.c;
    const long from = states_offset + b * states_batch + (CAUSAL ? block : 0) * DH * pitch + s.slot;
    const float scale = POSITION ? position[position_offset + s.group] : 1.0f;
    V m[DH][NV];
    for (int a = 0; a < DH; a++) EACH_VECTOR m[a][v] = RAW_LOAD(states + from + a * pitch + v * VW);
#if CAUSAL
    const long li = left_offset + b * left_batch + s.group * left_group;
    const long ri = right_offset + b * right_batch + s.group * right_group + s.c;
#endif
#if KIND != 1
    const long si = side_offset + b * side_batch + s.group * side_group + s.c;
#endif
#if KIND == 2
    V dot[NV];
    EACH_VECTOR dot[v] = (V)(0.0f);
#endif
    for (long step = begin; step < stop; step++) {
        const long i = KIND == 0 ? step : stop - 1 - (step - begin);
        float row[ROW];
        V sum[NV];
        for (int a = 0; a < DH; a += VW)
            RAW_STORE(load_b(by, bi + i * by_row + a, min(DH - a, VW)), row + a);
        EACH_VECTOR sum[v] = (V)(0.0f);
#if CAUSAL
        float grow[ROW];
        V across[NV];
        for (int a = 0; a < DH; a += VW)
            RAW_STORE(load_m(left, li + i * left_row + a, min(DH - a, VW)), grow + a);
        EACH_VECTOR across[v] = load_m(right, ri + i * right_row + v * VW, strip_lanes(s, v));
#endif
        for (int a = 0; a < DH; a++) {
            EACH_VECTOR {
#if CAUSAL
                m[a][v] = fma((V)(grow[a]), across[v], m[a][v]);
#endif
                sum[v] = fma((V)(row[a]), m[a][v], sum[v]);
            }
        }
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
#if KIND == 0
            const V g = load_s(side, si + i * side_row + v * VW, lanes);
            sum[v] *= g * (1.0f - g);
#elif KIND == 2
            dot[v] = fma(load_s(side, si + i * side_row + v * VW, lanes), sum[v], dot[v]);
#endif
            store_x(to, ti + i * to_row + v * VW, lanes, sum[v] * scale);
        }
    }
    for (long i = max(stop, begin); i < end; i++) {
        EACH_VECTOR store_x(to, ti + i * to_row + v * VW, strip_lanes(s, v), (V)(0.0f));
    }
#if KIND == 2
    EACH_VECTOR RAW_STORE(dot[v], parts + parts_offset + (b * blocks + block) * pitch + s.slot + v * VW);
#endif
}
