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

// One row's scores become weights 2^(s - maximum); columns outside [lo, hi) become 0. width is a multiple of VW.
inline void softmax_row(SHARED float *s, const int lo, const int hi, const int width, SHARED float *m, SHARED float *l,
                        SHARED float *c) {
    V most = (V)(-INFINITY);
    for (int j = 0; j < width; j += VW) {
        V x = RAW_LOAD(s + j);
        if (j < lo || j + VW > hi) {
            const VI at = j + LANES;
            x = SELECT((V)(-INFINITY), x, at >= lo && at < hi);
            RAW_STORE(x, s + j);
        }
        most = fmax(most, x);
    }
    const float before = *m, now = fmax(before, vmax(most));
    const float base = now == -INFINITY ? 0.0f : now; // nothing seen yet: all weights are 2^-inf = 0
    V sum = (V)(0.0f);
    for (int j = 0; j < width; j += VW) {
        const V x = EXP2(RAW_LOAD(s + j) - base);
        sum += x;
        RAW_STORE(x, s + j);
    }
    *c = EXP2(before - base);
    *l = *l * *c + vsum(sum);
    *m = now;
}

inline void softmax_block(SHARED float *s, const rows r, const int first, const int columns, const int lid) {
    const int width = ROUND_UP(columns, TN);
    for (int i = lid; i < BM; i += WG) {
        const int lo = r.visible[i].x - first, hi = min(r.visible[i].y - first, columns);
        softmax_row(s + i * SLD, lo, hi, width, r.m + i, r.l + i, r.c + i);
    }
}

// values: the row of key `first`, DVP floats a row. Rows that no query of a micro-tile sees are not read.
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
        const int4 u = visible_union(r.visible + mi, TM) - first;
        const int lo = max(u.x, 0), hi = min(u.y, columns);
        const int all_lo = HIDDEN_INSIDE ? hi : clamp(u.z, lo, max(lo, hi)), all_hi = clamp(u.w, all_lo, max(all_lo, hi));
        SHARED const float *a = p + mi * SLD;
        __global const float *b = values + column;
        tile_fma_visible(c, a + lo, SLD, b + (long)lo * DVP, DVP, min(all_lo, hi) - lo);
        tile_fma(c, a + all_lo, SLD, b + (long)all_lo * DVP, DVP, all_hi - all_lo);
        tile_fma_visible(c, a + all_hi, SLD, b + (long)all_hi * DVP, DVP, hi - all_hi);
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
