// aft, modes gated and gated-matrix, not causal: what x is to itself.
//
// With a column of ones behind x and the biases behind the weights' columns, K_jc = wk_c . x_j, V_je = wv_e . x_j, so
//     sum_j K_jc V_je = wk_c^T G wv_e,   G = sum_j x_j x_j^T   (symmetric, [d + 1, d + 1])
// which is one half of a product of x with itself, instead of two products with weights. docs/aft.md has the rest.
//
//   panels of G, TN columns each           aft_gram      part of the tokens: its own sum of the blocks pa <= pb
//          pb                              aft_gram_sum  block: the parts' sums added, and mirrored: plain rows
//        +--+--+--+
//     pa | x| x| x|
//        +--+--+--+      aft_gram packs BN tokens at a time as panels [panel][token][TN], which both operands read:
//        |  | x| x|      one as vectors, one as broadcast elements. Work-items of one part take panels pb
//        +--+--+--+      group, group + groups, ... each with packed tokens of its own.
//        |  |  | x|
//        +--+--+--+
//
// Padding (tokens past a length) is never read. Local memory: none; a CPU's kernels, WG is 1.
// Defines: tile.h with TN a multiple of TM; BN tokens of a packed block; TYPE_X, LENGTHS.
#include "tile.h"

#if WG != 1 || !defined(BN) || !defined(TYPE_X) || !defined(LENGTHS)
#error "WG = 1, BN, TYPE_X, LENGTHS: see aft_gram.cl"
#endif

#define KERNEL __attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void

// Token x as panels, BN*TN floats apart: its d elements, 1, zeros.
inline void pack_token(__global const STORAGE(TYPE_X) * x, const long i, const long d, const long columns,
                       __global float *to) {
    for (long c = 0; c < columns; c += VW) {
        __global float *at = to + c / TN * (BN * TN) + c % TN;
        if (c + VW <= d) {
            RAW_STORE(VLOAD(TYPE_X, x, i + c), at);
            continue;
        }
        for (long l = c; l < c + VW; l++) at[l - c] = l < d ? LOAD(TYPE_X, x, i + l) : l == d ? 1.0f : 0.0f;
    }
}

// c[TM][TN] += a^T b over count tokens; both are rows of TN floats.
inline void gram_tile(__global float *c, __global const float *a, __global const float *b, const int count) {
    V s[TM][TNV];
    UNROLL for (int i = 0; i < TM; i++) {
        UNROLL for (int j = 0; j < TNV; j++) s[i][j] = RAW_LOAD(c + i * TN + j * VW);
    }
    for (int k = 0; k < count; k++) {
        V bk[TNV];
        UNROLL for (int j = 0; j < TNV; j++) bk[j] = RAW_LOAD(b + k * TN + j * VW);
        UNROLL for (int i = 0; i < TM; i++) {
            const V ak = (V)(a[k * TN + i]);
            UNROLL for (int j = 0; j < TNV; j++) s[i][j] = fma(ak, bk[j], s[i][j]);
        }
    }
    UNROLL for (int i = 0; i < TM; i++) {
        UNROLL for (int j = 0; j < TNV; j++) RAW_STORE(s[i][j], c + i * TN + j * VW);
    }
}

// Block (pa, pb) of a part's sums: TN*TN floats, blocks of a panel one after another.
inline long block_at(const long pa, const long pb) { return (pb * (pb + 1) / 2 + pa) * (TN * TN); }

KERNEL aft_gram(__global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch, const long x_row,
                __global float *packed, const long packed_offset, __global float *sums, const long sums_offset,
                __global const int *lengths, const long lengths_offset, const long n, const long d,
                const long columns, const long part_tokens) {
    const long group = get_group_id(0), groups = get_num_groups(0), part = get_group_id(1);
    const long parts = get_num_groups(1), b = get_group_id(2), panels = columns / TN, place = b * parts + part;
#if LENGTHS
    const long seen = clamp((long)lengths[lengths_offset + b], 0L, n);
#else
    const long seen = n;
#endif
    const long end = min((part + 1) * part_tokens, seen);
    __global float *own = packed + packed_offset + (place * groups + group) * columns * BN;
    __global float *sum = sums + sums_offset + place * block_at(0, panels);
    for (long pb = group; pb < panels; pb += groups) {
        for (long i = block_at(0, pb); i < block_at(0, pb + 1); i += VW) RAW_STORE((V)(0.0f), sum + i);
    }
    for (long begin = part * part_tokens; begin < end; begin += BN) {
        const int count = (int)min((long)BN, end - begin);
        for (int k = 0; k < count; k++)
            pack_token(x, x_offset + b * x_batch + (begin + k) * x_row, d, columns, own + k * TN);
        for (long pb = group; pb < panels; pb += groups) {
            for (long pa = 0; pa <= pb; pa++) {
                for (int i = 0; i < TN; i += TM)
                    gram_tile(sum + block_at(pa, pb) + i * TN, own + pa * (BN * TN) + i, own + pb * (BN * TN), count);
            }
        }
    }
}

// gram [b][size][size].
KERNEL aft_gram_sum(__global const float *sums, const long sums_offset, __global float *gram, const long gram_offset,
                    const long size, const long parts) {
    const long pa = get_group_id(0), pb = get_group_id(1), b = get_group_id(2), panels = get_num_groups(0);
    if (pa > pb) return;
    const long all = block_at(0, panels), column = pb * TN, count = min((long)TN, size - column);
    __global const float *from = sums + sums_offset + b * parts * all + block_at(pa, pb);
    __global float *to = gram + gram_offset + b * size * size;
    for (long row = pa * TN; row < min((pa + 1) * TN, size); row++, from += TN) {
        float sum[TN];
        for (int j = 0; j < TN; j += VW) {
            V s = (V)(0.0f);
            for (long part = 0; part < parts; part++) s += RAW_LOAD(from + part * all + j);
            RAW_STORE(s, sum + j);
        }
        for (int j = 0; j < TN && count == TN; j += VW) RAW_STORE(RAW_LOAD(sum + j), to + row * size + column + j);
        for (int j = 0; j < count && count < TN; j++) to[row * size + column + j] = sum[j];
        for (int j = 0; j < count && pa < pb; j++) to[(column + j) * size + row] = sum[j];
    }
}
