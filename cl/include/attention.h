// The steps of attention over a block of BM queries and BN keys at a time; dense, assa and cjar are made of them.
//
//   query_block    Q rows, scaled, into SHARED memory
//   score_block    S = Q K^T from packed key panels
//   softmax_block  running maximum m, sum l and rescaling factor c of each row; S becomes P
//   value_block    O = c O + P V, accumulators in the work-item that owns the micro-tile
//
// Scores are in units of log2: scale * log2(e) is folded into Q. Keys are packed in panels (tile.h), a value
// row is padded to DVP floats; padding may hold anything.
//
// Defines: those of tile.h; D, DV 1..256 head sizes; BM a multiple of TM, BN a multiple of PW; TYPE_Q, TYPE_O.
// Local memory (WG > 1): BM*D + BM*SLD + 5*BM floats.
#ifndef CLATTN_ATTENTION_H
#define CLATTN_ATTENTION_H

#include "port.h"
#include "tile.h"
#include "mask.h"

#if !defined(D) || !defined(DV) || !defined(BM) || !defined(BN) || !defined(TYPE_Q) || !defined(TYPE_O)
#error "D, DV, BM, BN, TYPE_Q, TYPE_O: see attention.h"
#endif

#define DVP ROUND_UP(DV, TN)
#define ROW_TILES (BM / TM)
#define SCORE_TILES (ROW_TILES * (BN / TN))
#define VALUE_COLUMNS (DVP / TN)
#define VALUE_TILES (ROW_TILES * VALUE_COLUMNS)
#define VALUE_TILES_EACH CEIL_DIV(VALUE_TILES, WG)
#if WG == 1
#define SLD BN
#else
#define SLD (BN + 1) // rows in different banks
#endif

#ifndef HIDDEN_INSIDE
#define HIDDEN_INSIDE 0 // 1: a row may also hide keys inside its interval (by a bias of -inf)
#endif

// 2^x of weights and their kin: x is at most 127, and below -126 the result is 0. A CPU's vectors are served by a polynomial of
// the fraction (8e-8 of the result); the sum with `whole` leaves the whole part, plus an exponent's bias, in the last bits.
inline V weights_of(const V x) {
#if WG == 1
    const float whole = 12582912.0f + 127.0f;
    const V rounded = x + whole, f = x - (rounded - whole), ff = f * f;
    const V a = fma((V)(0.6931472f), f, (V)(1.0f)), b = fma((V)(0.055503324f), f, (V)(0.24022648f));
    const V c = fma(ff, (V)(0.00015353362f), fma((V)(0.0013398875f), f, (V)(0.009618437f)));
    const V y = fma(ff, fma(ff, c, b), a);
    return SELECT(y * AS_V(AS_VU(rounded) << 23), (V)(0.0f), x < -126.0f);
#else
    return EXP2(x);
#endif
}

// The first `count` lanes of x, at most VW.
inline void store_some(__global STORAGE(TYPE_O) *to, const V x, const int count) {
    if (count >= VW) {
        VSTORE(TYPE_O, to, 0, x);
        return;
    }
    float lane[VW];
    RAW_STORE(x, lane);
    for (int e = 0; e < count; e++)
        STORE(TYPE_O, to, e, lane[e]);
}

// State of a block's rows.
typedef struct rows {
    SHARED float *m, *l, *c;  // maximum, sum, rescaling factor
    SHARED int2 *visible;     // keys that each row sees
} rows;

inline void rows_init(const rows r, const int lid) {
    for (int i = lid; i < BM; i += WG) {
        r.m[i] = -INFINITY;
        r.l[i] = 0.0f;
    }
}

// Rows past `count` are zero.
inline void query_block(SHARED float *qs, __global const STORAGE(TYPE_Q) *q, const long row_stride, const int count,
                        const float scale, const int lid) {
    for (int i = 0; i < BM; i++)
        for (int d = lid; d < D; d += WG)
            qs[i * D + d] = i < count ? LOAD(TYPE_Q, q, i * row_stride + d) * scale : 0.0f;
}

// Scores of keys first .. first+columns, rounded up to whole micro-tiles; first is a multiple of PW.
inline void score_block(SHARED float *s, SHARED const float *qs, __global const float *panels, const int first,
                        const int columns, const int lid) {
    const int column_tiles = CEIL_DIV(columns, TN);
    for (int t = lid; t < ROW_TILES * column_tiles; t += WG) {
        const int mi = TILE_ROW(t, ROW_TILES, column_tiles) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, column_tiles) * TN, key = first + column;
        V c[TM][TNV];
        tile_zero(c);
        tile_fma(c, qs + mi * D, D, panels + (long)(key / PW) * D * PW + key % PW, PW, D);
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) { RAW_STORE(c[i][j], s + (mi + i) * SLD + column + j * VW); }
        }
    }
}

// One row's scores become weights 2^(s - maximum); columns outside [lo, hi) become 0. width is a multiple of TN.
inline void softmax_row(SHARED float *s, const int lo, const int hi, const int width, SHARED float *m, SHARED float *l,
                        SHARED float *c) {
    V most[TNV], sum[TNV];
    UNROLL for (int e = 0; e < TNV; e++) {
        most[e] = (V)(-INFINITY);
        sum[e] = (V)(0.0f);
    }
    for (int j = 0; j < width; j += TN) {
        UNROLL for (int e = 0; e < TNV; e++) {
            const int at = j + e * VW;
            V x = RAW_LOAD(s + at);
            if (at < lo || at + VW > hi) {
                x = SELECT((V)(-INFINITY), x, at + LANES >= lo && at + LANES < hi);
                RAW_STORE(x, s + at);
            }
            most[e] = SELECT(most[e], x, x > most[e]);
        }
    }
    UNROLL for (int e = 1; e < TNV; e++) { most[0] = fmax(most[0], most[e]); }
    const float before = *m, now = fmax(before, vmax(most[0]));
    const float base = now == -INFINITY ? 0.0f : now; // nothing seen yet: all weights are 2^-inf = 0
    for (int j = 0; j < width; j += TN) {
        V x[TNV];
        UNROLL for (int e = 0; e < TNV; e++) { x[e] = weights_of(RAW_LOAD(s + j + e * VW) - base); }
        UNROLL for (int e = 0; e < TNV; e++) {
            sum[e] += x[e];
            RAW_STORE(x[e], s + j + e * VW);
        }
    }
    UNROLL for (int e = 1; e < TNV; e++) { sum[0] += sum[e]; }
    *c = EXP2(before - base);
    *l = *l * *c + vsum(sum[0]);
    *m = now;
}

inline void softmax_block(SHARED float *s, const rows r, const int first, const int columns, const int lid) {
    const int width = ROUND_UP(columns, TN);
    for (int i = lid; i < BM; i += WG) {
        const int lo = r.visible[i].x - first, hi = min(r.visible[i].y - first, columns);
        softmax_row(s + i * SLD, lo, hi, width, r.m + i, r.l + i, r.c + i);
    }
}

// c += a b over `count` rows of b, of which a row of the micro-tile sees those in u (visible_union, from the first row of b).
// Rows of b that none sees are not read. Element (i, k) of a: as in tile_fma_steps.
inline void tile_fma_some(V c[TM][TNV], SHARED const float *a, const int row, const int step, const int4 u,
                          __global const float *b, const long ldb, const int count) {
    const int lo = max(u.x, 0), hi = min(u.y, count);
    const int all_lo = HIDDEN_INSIDE ? hi : clamp(u.z, lo, max(lo, hi)), all_hi = clamp(u.w, all_lo, max(all_lo, hi));
    tile_fma_visible(c, a + lo * step, row, step, b + lo * ldb, ldb, min(all_lo, hi) - lo);
    tile_fma_steps(c, a + all_lo * step, row, step, b + all_lo * ldb, ldb, all_hi - all_lo);
    tile_fma_visible(c, a + all_hi * step, row, step, b + all_hi * ldb, ldb, hi - all_hi);
}

// The same; where all is seen the micro-tile stays in registers.
inline void tile_fma_seen(V c[TM][TNV], SHARED const float *a, const int row, const int step, const int4 u,
                          __global const float *b, const long ldb, const int count) {
    if (!HIDDEN_INSIDE && u.z <= 0 && u.w >= count) {
        tile_fma_steps(c, a, row, step, b, ldb, count);
    } else {
        V some[TM][TNV];
        tile_copy(some, c);
        tile_fma_some(some, a, row, step, u, b, ldb, count);
        tile_copy(c, some);
    }
}

// values: the row of key `first`, DVP floats a row.
inline void value_block(V acc[VALUE_TILES_EACH][TM][TNV], SHARED const float *p, const rows r,
                        __global const float *values, const int first, const int columns, const int lid) {
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, VALUE_COLUMNS) * TN;
        if (t >= VALUE_TILES)
            continue;
        V c[TM][TNV];
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) { c[i][j] = acc[n][i][j] * r.c[mi + i]; }
        }
        tile_fma_seen(c, p + mi * SLD, SLD, 1, visible_union(r.visible + mi, TM) - first, values + column, DVP, columns);
        tile_copy(acc[n], c);
    }
}

// O rows = acc / l, zero where nothing was seen; rows past `count` do not exist.
inline void output_block(V acc[VALUE_TILES_EACH][TM][TNV], const rows r, __global STORAGE(TYPE_O) *o,
                         const long row_stride, const int count, const int lid) {
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, VALUE_COLUMNS) * TN;
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) {
                const int row = mi + i, first = column + j * VW;
                if (t < VALUE_TILES && row < count && first < DV) {
                    const V x = r.l[row] == 0.0f ? (V)(0.0f) : acc[n][i][j] / r.l[row];
                    store_some(o + row * row_stride + first, x, DV - first);
                }
            }
        }
    }
}

#endif
