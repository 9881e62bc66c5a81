// Scores of convolutional additive attention, straight from x.
//
// Softmax over keys needs of conv_k only the sum of a head's channels, so each head keeps one filter of KERNEL
// taps over the D channels of x. A *column* is one head's filter at one tap, column = tap * HG + head:
//
//     c[row, column] = sum_ch x[first + row, ch] * filter[column, ch]       one product, columns in lanes
//     score[j, head] = sum_tap c[j + tap, tap * HG + head]
//
// A work-group owns BT tokens (rows of c: BT + KERNEL - 1, with the halo) and HG heads. Tokens outside the
// sequence count as zero and are never read.
// Filters lie in panels [PANELS][D][TN], zero past the last column.
//
// Shared memory: CAS_ROWS * CAS_STRIDE floats for c.
// Defines beside tile.h's: D >= 1, HG 1..32, KERNEL 1|3|5|7|9, LEFT (taps before the token), BT >= 1,
// TYPE_X 0|1|2.
#ifndef CLATTN_CAS_SCORE_H
#define CLATTN_CAS_SCORE_H

#include "cas.h"

#if !defined(D) || !defined(HG) || !defined(KERNEL) || !defined(LEFT) || !defined(BT) || !defined(TYPE_X)
#error "D, HG, KERNEL, LEFT, BT, TYPE_X: see cas_score.h"
#endif

#define HEAD_VECTORS ((HG + VW - 1) / VW)
#define HP (HEAD_VECTORS * VW)
#define PANELS ((HG * KERNEL + TN - 1) / TN)
#define CAS_ROWS ROUND_UP(BT + KERNEL - 1, TM)
// A row of c is read HP wide at every tap, so it ends in zeros where that reaches past the panels.
#define CAS_REACH ROUND_UP((KERNEL - 1) * HG + HP, VW)
#define CAS_STRIDE (CAS_REACH > PANELS * TN ? CAS_REACH : PANELS * TN)
// Floats of a head group's filters.
#define CAS_FILTERS ((long)PANELS * D * TN)
// Channels of one pass: a panel's part stays in the nearest cache for all rows.
#define CAS_CHANNELS 128

inline void cas_clear_ends(SHARED float *c, const int lid) {
    for (int row = lid; row < CAS_ROWS; row += WG)
        for (int i = PANELS * TN; i < CAS_STRIDE; i += VW)
            RAW_STORE((V)(0.0f), c + row * CAS_STRIDE + i);
}

// TM rows and one panel, channels d0..d0+count.
inline void cas_column_tile(SHARED float *c, __global const STORAGE(TYPE_X) * x, const long x0,
                            __global const float *filters, const long first, const long len, const int row,
                            const int panel, const int d0, const int count) {
    V acc[TM][TNV];
    long at[TM];
    UNROLL for (int i = 0; i < TM; i++) {
        at[i] = x0 + clamp(first + row + i, 0L, len - 1) * D + d0;
        UNROLL for (int j = 0; j < TNV; j++) {
            acc[i][j] = d0 ? RAW_LOAD(c + (row + i) * CAS_STRIDE + panel * TN + j * VW) : (V)(0.0f);
        }
    }
    __global const float *f = filters + ((long)panel * D + d0) * TN;
    for (int k = 0; k < count; k++) {
        V fk[TNV];
        UNROLL for (int j = 0; j < TNV; j++) { fk[j] = RAW_LOAD(f + k * TN + j * VW); }
        UNROLL for (int i = 0; i < TM; i++) {
            const V xi = (V)(LOAD(TYPE_X, x, at[i] + k));
            UNROLL for (int j = 0; j < TNV; j++) { acc[i][j] = fma(xi, fk[j], acc[i][j]); }
        }
    }
    UNROLL for (int i = 0; i < TM; i++) {
        const bool inside = first + row + i >= 0 && first + row + i < len;
        UNROLL for (int j = 0; j < TNV; j++) {
            RAW_STORE(inside ? acc[i][j] : (V)(0.0f), c + (row + i) * CAS_STRIDE + panel * TN + j * VW);
        }
    }
}

// c for tokens first .. first+rows of a sequence of len > 0 tokens, whose token 0 is at element x0 of x.
inline void cas_columns(SHARED float *c, __global const STORAGE(TYPE_X) * x, const long x0,
                        __global const float *filters, const long first, const int rows, const long len,
                        const int lid) {
    const int tiles = (rows + TM - 1) / TM;
    for (int d0 = 0; d0 < D; d0 += CAS_CHANNELS)
        for (int u = lid; u < tiles * PANELS; u += WG)
            cas_column_tile(c, x, x0, filters, first, len, u % tiles * TM, u / tiles, d0, min(CAS_CHANNELS, D - d0));
}

// Scores of VW heads, from head vector hv on, of token j of the block.
inline V cas_score(SHARED const float *c, const int j, const int hv) {
    V s = (V)(0.0f);
    UNROLL for (int tap = 0; tap < KERNEL; tap++) { s += RAW_LOAD(c + (j + tap) * CAS_STRIDE + tap * HG + hv * VW); }
    return s;
}

#endif
