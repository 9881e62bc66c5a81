// The steps of attention's backward pass, in blocks of BM rows that a work-group owns and BN rows that it streams.
// The owned side is the queries or the keys, the streamed side the other one.
//
//   own_rows       rows of the owned side into SHARED memory: Q and dO, or K and V; Q scaled
//   pair_block     P = 2^(S - L) and G = P (dP - delta) of BM x BN pairs, S = Q K^T and dP = dO V^T; exactly 0 where hidden
//   product_block  acc += W B, W = P or G, B = rows of the streamed side
//   add_columns    streamed rows += W^T B, B = rows of the owned side (WG = 1)
//   store_rows     accumulators times a factor
//
// Then dQ = scale G K, dK = scale G^T Q and dV = P^T dO. Probabilities are computed again from L, the log-sum-exp of a query
// in units of log2: +inf for one that sees nothing. delta is the query's dO . O (cl/attention.cl writes both).
// S is computed as in forward, product by product (Q carries the scale, owned or streamed), and so is dP as delta is: where
// one key has all the weight, P is exactly 1 and G exactly 0, however large the scores.
// Streamed panels and rows are packed as pack.cl has them; padding may hold anything.
//
// Defines: those of attention.h; HAS_BIAS 0|1.
// Local memory (WG > 1): BM*(D + DV) + 2*BM*SLD + 4*BM floats.
#ifndef CLATTN_ATTENTION_BACKWARD_H
#define CLATTN_ATTENTION_BACKWARD_H

#include "attention.h"

#ifndef HAS_BIAS
#define HAS_BIAS 0
#endif

#define DP ROUND_UP(D, TN)
#define KEY_TILES_EACH CEIL_DIV(ROW_TILES * (DP / TN), WG)

// L and delta of a head's queries: rows of `padded` floats, a multiple of PW.
typedef struct terms {
    __global const float *l, *delta;
} terms;

inline terms terms_of(__global const float *t, const long head, const int queries) {
    const long padded = ROUND_UP((long)queries, PW);
    return (terms){t + head * 2 * padded, t + (head * 2 + 1) * padded};
}

// One side's packed operands of one head.
typedef struct streamed {
    __global const float *first, *second; // panels of K and V, or of Q and dO
} streamed;

// Queries that see key j, as an interval: mask.h the other way round. Padding keys are seen by none.
inline int2 visible_queries(const sequence s, const int j, const int left, const int right) {
    const long p = (long)j - s.shift;
    const int lo = right < 0 ? 0 : (int)clamp(p - right, 0L, (long)s.queries);
    const int hi = left < 0 ? s.queries : (int)clamp(p + left + 1, 0L, (long)s.queries);
    return j < s.keys && lo < hi ? (int2)(lo, hi) : (int2)(0, 0);
}

// Rows past `count` are zero; `width` floats a row.
inline void own_rows(SHARED float *to, __global const STORAGE(TYPE_Q) *from, const long row_stride, const int width,
                     const int count, const float scale, const int lid) {
    for (int i = 0; i < BM; i++)
        for (int d = lid; d < width; d += WG)
            to[i * width + d] = i < count ? LOAD(TYPE_Q, from, i * row_stride + d) * scale : 0.0f;
}

// What a block of owned rows is made of. l, delta: of the owned queries; NULL where keys are owned.
typedef struct owned {
    SHARED const float *first, *second; // [BM, D] and [BM, DV]
    SHARED const float *l, *delta;
    SHARED const int2 *visible; // streamed rows that each row sees
} owned;
#define NONE_OWNED (SHARED const float *)0

// Floats of a head's panels and rows.
inline long panels_size(const long rows, const int width) { return CEIL_DIV(rows, PW) * PW * width; }
inline long rows_size(const long rows, const int width) { return rows * ROUND_UP(width, TN); }

typedef struct bias_view {
    __global const float *first; // of the block's first owned row, streamed row 0
    long own_stride, stream_stride;
} bias_view;
#define NO_BIAS ((bias_view){0, 0, 0})

#if HAS_BIAS
// Lanes outside [lo, hi) are not read.
inline V bias_lanes(__global const float *row, const long stride, const int at, const int2 visible) {
    float lane[VW];
    for (int e = 0; e < VW; e++)
        lane[e] = at + e >= visible.x && at + e < visible.y ? row[(at + e) * stride] * LOG2E : 0.0f;
    return RAW_LOAD(lane);
}
#endif

// Pairs of the owned rows and streamed rows first .. first + columns; first is a multiple of PW. In micro-tiles that nobody
// sees they are 0. p may be NULL.
inline void pair_block(SHARED float *p, SHARED float *g, const owned own, const terms t, const streamed other,
                       const bias_view bias, const int first, const int columns, const int lid) {
    const int column_tiles = CEIL_DIV(columns, TN);
    for (int tile = lid; tile < ROW_TILES * column_tiles; tile += WG) {
        const int mi = TILE_ROW(tile, ROW_TILES, column_tiles) * TM;
        const int column = TILE_COLUMN(tile, ROW_TILES, column_tiles) * TN, at = first + column;
        const int4 u = visible_union(own.visible + mi, TM);
        if (u.x >= at + TN || u.y <= at) {
            UNROLL for (int i = 0; i < TM; i++) {
                UNROLL for (int j = 0; j < TNV; j++) {
                    const int to = (mi + i) * SLD + column + j * VW;
                    if (p)
                        RAW_STORE((V)(0.0f), p + to);
                    RAW_STORE((V)(0.0f), g + to);
                }
            }
            continue;
        }
        V s[TM][TNV], d[TM][TNV];
        tile_zero(s);
        tile_zero(d);
        const long panel = at / PW;
        tile_fma(s, own.first + mi * D, D, other.first + panel * D * PW + at % PW, PW, D);
        tile_fma(d, own.second + mi * DV, DV, other.second + panel * DV * PW + at % PW, PW, DV);
        const int inside = u.z <= at && u.w >= at + TN;
        UNROLL for (int i = 0; i < TM; i++) {
            const int2 visible = own.visible[mi + i];
            UNROLL for (int j = 0; j < TNV; j++) {
                const V l = own.l ? (V)(own.l[mi + i]) : RAW_LOAD(t.l + at + j * VW);
                const V delta = own.l ? (V)(own.delta[mi + i]) : RAW_LOAD(t.delta + at + j * VW);
                V x = s[i][j];
#if HAS_BIAS
                const V b = bias_lanes(bias.first + (mi + i) * bias.own_stride, bias.stream_stride, at + j * VW, visible);
                x = SELECT(x + b, (V)(-INFINITY), b == (V)(-INFINITY));
#endif
                x = weights_of(x - l);
                if (!inside) {
                    const VI place = at + j * VW + LANES;
                    x = SELECT((V)(0.0f), x, place >= visible.x && place < visible.y);
                }
                const int to = (mi + i) * SLD + column + j * VW;
                if (p)
                    RAW_STORE(x, p + to);
                RAW_STORE(SELECT(x * (d[i][j] - delta), (V)(0.0f), x == 0.0f), g + to);
            }
        }
    }
}

// b: the streamed row `first`, tiles_across micro-tiles a row.
inline void product_block(V (*acc)[TM][TNV], const int tiles_across, SHARED const float *w, SHARED const int2 *visible,
                          __global const float *b, const int first, const int columns, const int lid) {
    const int tiles = ROW_TILES * tiles_across, width = tiles_across * TN;
    UNROLL_GPU for (int n = 0; n < CEIL_DIV(tiles, WG); n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, tiles_across) * TM;
        if (t >= tiles)
            continue;
        tile_fma_seen(acc[n], w + mi * SLD, SLD, 1, visible_union(visible + mi, TM) - first,
                      b + TILE_COLUMN(t, ROW_TILES, tiles_across) * TN, width, columns);
    }
}

#if WG == 1
// to, rows of DP floats from streamed row 0 of the block, += W^T B. seen: owned rows that each streamed row has, from the first
// of the sequence; B: `count` owned rows from row0 on, ldb floats apart, TN columns `panel` floats apart.
inline void add_columns(__global float *to, const float *w, const int2 *seen, __global const float *b, const long ldb,
                            const long panel, const int row0, const int columns, const int count) {
    const int tiles = CEIL_DIV(columns, TM);
    for (int t = 0; t < tiles * (DP / TN); t++) {
        const int mi = TILE_ROW(t, tiles, DP / TN) * TM, across = TILE_COLUMN(t, tiles, DP / TN);
        const int4 u = visible_union(seen + mi, TM) - row0;
        if (u.x >= count || u.y <= 0)
            continue;
        __global float *sum = to + (long)mi * DP + across * TN;
        V c[TM][TNV];
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) {
                c[i][j] = mi + i < columns ? RAW_LOAD(sum + i * DP + j * VW) : (V)(0.0f);
            }
        }
        tile_fma_seen(c, w + mi, 1, SLD, u, b + across * panel, ldb, count);
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) {
                if (mi + i < columns)
                    RAW_STORE(c[i][j], sum + i * DP + j * VW);
            }
        }
    }
}
#endif

inline void clear_rows(V (*acc)[TM][TNV], const int each) {
    UNROLL_GPU for (int n = 0; n < each; n++) tile_zero(acc[n]);
}

// `size` columns of rows below `count`, times scale.
inline void store_rows(V (*acc)[TM][TNV], const int tiles_across, const float scale, __global STORAGE(TYPE_O) *to,
                       const long row_stride, const int size, const int count, const int lid) {
    const int tiles = ROW_TILES * tiles_across;
    UNROLL_GPU for (int n = 0; n < CEIL_DIV(tiles, WG); n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, tiles_across) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, tiles_across) * TN;
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) {
                const int row = mi + i, at = column + j * VW;
                if (t < tiles && row < count && at < size)
                    store_some(to + row * row_stride + at, acc[n][i][j] * scale, size - at);
            }
        }
    }
}

#endif
