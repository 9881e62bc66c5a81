// The steps of assa's backward pass over all pairs, in blocks of BM queries and BN keys, queries down.
//
//   load_rows        a block's queries into SHARED memory: Q, scaled, and dO
//   score_rows       S = Q K^T and G = dO V^T, from packed panels
//   sum_rows         sums of P, P G and relu(S)^2 G, between start_terms and finish_terms
//   weigh_rows       S becomes A, G becomes dS; both exactly 0 where hidden
//   product_columns  acc += W^T B, B = rows of the queries
//   table_rows       dS summed into the entries of a bias table
//   store_tokens     accumulators times a factor, each row to its token
//
//   FORM SOFTMAX  A = P                       dS = P (G - D1)
//   FORM MIXED    A = w0 P + w1 relu(S)^2     dS = w0 P (G - D1) + 2 w1 relu(S) G
//   FORM REST     no A                        dS = -P c, what top-k over all keys' softmax adds to its lists
//
// A query's terms, four floats: L, its log-sum-exp in units of log2 (+inf: it sees nothing), D1 = sum P G, a factor with which
// 2^(S - L) becomes w0 P, P or -P c, so that P sums to 1 however large L is, and D2 = sum relu(S)^2 G.
// Operands are packed in the order of windows (cl/pack.cl, cl/assa_window.cl); padding may hold anything.
//
// Defines: those of attention_backward.h, TYPE_Q = 0; BN a multiple of TM; FORM; WINDOW 0|1 (1: parts are windows of grids).
// Local memory (WG > 1): BM*(D + DV) + 2*BM*SLD + (6 + 3*ROW_ITEMS)*BM + 2*BN + 2*VW floats.
#ifndef CLATTN_ASSA_BACKWARD_H
#define CLATTN_ASSA_BACKWARD_H

#include "attention_backward.h"
#include "assa.h"

#define SOFTMAX 0
#define MIXED 1
#define REST 2

#if !defined(FORM) || !defined(WINDOW) || BN % TM != 0
#error "FORM, WINDOW, BN a multiple of TM: see assa_backward.h"
#endif

// Work-items that share a row, and columns that each of them has.
#define ROW_ITEMS (WG > BM ? WG / BM : 1)
#define ROW_COLUMNS ROUND_UP(CEIL_DIV(BN, ROW_ITEMS), TN)
#define FIRST_ROW(lid) (WG > BM ? (lid) % BM : (lid))
#define ROW_ITEM(lid) (WG > BM ? (lid) / BM : 0)

// Rows that are worked on row by row: those of micro-tiles that have one of `count`. A GPU's work-items go over all of them:
// where the last row decides, PoCL 3.1 loses the loop.
#define BLOCK_ROWS(count) (WG == 1 ? ROUND_UP(count, TM) : BM)

#define KEY_ROWS (BN / TM)

// One head of one part: a sequence, or a window of one.
typedef struct scene {
    __global const float *q, *o; // rows
    __global const float *k, *v; // panels
    __global const float *table;
    __global float *terms;
    window w;
    sequence seq;
    int right;
    float scale;
    float2 mix; // softmax(w); the second times ln(2)^2, for scores in units of log2
} scene;

#define SCENE_PARAMETERS                                                                                               \
    __global const float *q_rows, const long q_rows_offset, __global const float *o_rows, const long o_rows_offset,    \
        __global const float *k_panels, const long k_panels_offset, __global const float *v_panels,                    \
        const long v_panels_offset, __global float *terms, const long terms_offset, __global const float *mix,         \
        const long mix_offset, __global const float *table, const long table_offset, __global const int *key_lengths,  \
        const long key_lengths_offset, __global const int *query_lengths, const long query_lengths_offset,             \
        const int queries, const int keys, const int heads, const int heads_per_kv, const float scale,                 \
        const int right, const int bottom_right, WINDOW_PARAMETERS
#define GRADIENT_PARAMETERS(x)                                                                                         \
    __global STORAGE(TYPE_O) *x, const long x##_offset, const long x##_batch, const long x##_head, const long x##_row

#if WINDOW
#define TOKEN(w, t) window_token(w, t)
#define WINDOWS windows_of(side, grid_rows, grid_columns)
#define PLACE(part) window_at((int)((part) % WINDOWS), side, grid_rows, grid_columns, shift)
#define TABLE(h) (table + table_offset + (h) * (2 * side - 1) * (2 * side - 1))
#else
#define TOKEN(w, t) ((long)(t))
#define WINDOWS 1
#define PLACE(part) ((window){1, 1, 1, 0, 0, 0, 0})
#define TABLE(h) table
#endif

inline long panels_of(const long head, const int rows, const int width) {
    return head * (CEIL_DIV((long)rows, PW) * PW * width);
}

#define HEAD(h, part) ((part) * heads + (h))
#define KV_HEAD(h, part) ((part) * (heads / heads_per_kv) + (h) / heads_per_kv)
#define SCENE(h, part)                                                                                                 \
    (scene) {                                                                                                          \
        q_rows + q_rows_offset + HEAD(h, part) * queries * DP, o_rows + o_rows_offset + HEAD(h, part) * queries * DVP, \
            k_panels + k_panels_offset + panels_of(KV_HEAD(h, part), keys, D),                                         \
            v_panels + v_panels_offset + panels_of(KV_HEAD(h, part), keys, DV), TABLE(h),                              \
            terms + terms_offset + HEAD(h, part) * queries * 4, PLACE(part),                                           \
            sequence_of((part) / WINDOWS, queries, keys, query_lengths, query_lengths_offset, key_lengths,             \
                        key_lengths_offset, bottom_right),                                                             \
            right, scale, FORM == MIXED ? (float2)(mix[mix_offset], mix[mix_offset + 1]) : (float2)(1.0f, 0.0f)        \
    }

// A block of pairs: s is S, then A; g is G, then dS (REST: the same memory).
typedef struct block {
    SHARED float *qs, *os, *s, *g;
    SHARED float4 *terms;
    SHARED int2 *visible; // keys of each row; rows behind the last are as the last
} block;

#if FORM == REST
#define BLOCK_MEMORY                                                                                                   \
    SHARED float first_rows[BM * D] ALIGNED, gradients[BM * SLD + 2 * VW] ALIGNED;                                     \
    SHARED float *second_rows = first_rows, *scores = gradients + VW
#else
#define BLOCK_MEMORY                                                                                                   \
    SHARED float first_rows[BM * D] ALIGNED, second_rows[BM * DV] ALIGNED, scores[BM * SLD] ALIGNED,                   \
        gradients[BM * SLD + 2 * VW] ALIGNED
#endif
// At the head of a kernel. Before and behind g lie VW floats more.
#define BLOCK(b)                                                                                                       \
    BLOCK_MEMORY;                                                                                                      \
    SHARED float4 terms_of_rows[BM];                                                                                   \
    SHARED int2 visible[BM];                                                                                           \
    const block b = {first_rows, second_rows, scores, gradients + VW, terms_of_rows, visible}

// All but the terms.
inline void load_rows(const block b, const scene s, const int row0, const int count, const int lid) {
    const int real = min(count, s.seq.queries - row0);
    for (int i = lid; i < BM; i += WG)
        b.visible[i] = visible_keys(s.seq, row0 + min(i, count - 1), -1, s.right);
    own_rows(b.qs, s.q + (long)row0 * DP, DP, D, real, s.scale * LOG2E, lid);
    if (FORM != REST)
        own_rows(b.os, s.o + (long)row0 * DVP, DVP, DV, real, 1.0f, lid);
}

inline void load_terms(const block b, const scene s, const int row0, const int count, const int lid) {
    for (int i = lid; i < BM; i += WG)
        b.terms[i] = i < count ? vload4(row0 + i, s.terms) : (float4)(INFINITY, 0.0f, 0.0f, 0.0f);
}

// to = own times the panels' keys first .. first + columns. Micro-tiles that nobody sees are 0.
inline void pair_product(SHARED float *to, SHARED const float *own, const int depth, SHARED const int2 *visible,
                         const int count, __global const float *panels, const int first, const int columns,
                         const int lid) {
    const int column_tiles = CEIL_DIV(columns, TN);
    for (int t = lid; t < ROW_TILES * column_tiles; t += WG) {
        const int mi = TILE_ROW(t, ROW_TILES, column_tiles) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, column_tiles) * TN, at = first + column;
        const int4 u = visible_union(visible + mi, TM);
        if (mi >= BLOCK_ROWS(count))
            continue;
        V c[TM][TNV];
        tile_zero(c);
        if (u.x < at + TN && u.y > at)
            tile_fma(c, own + mi * depth, depth, panels + (long)(at / PW) * depth * PW + at % PW, PW, depth);
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) { RAW_STORE(c[i][j], to + (mi + i) * SLD + column + j * VW); }
        }
    }
}

inline void score_rows(const block b, const scene s, const int count, const int first, const int columns,
                       const int lid) {
    pair_product(b.s, b.qs, D, b.visible, count, s.k, first, columns, lid);
    if (FORM != REST)
        pair_product(b.g, b.os, DV, b.visible, count, s.v, first, columns, lid);
}

// The columns of a row that a work-item has.
inline int2 own_columns(const int columns, const int lid) {
    const int from = ROW_ITEM(lid) * ROW_COLUMNS;
    return (int2)(from, min(from + ROW_COLUMNS, ROUND_UP(columns, TN)));
}

// Query `row`, in the block's row i.
inline void bias_row(const block b, const scene s, const int i, const int row, const int first, const int columns,
                     const int2 own) {
#if WINDOW
    const int count = min(own.y, columns) - own.x;
    if (count > 0 && row < s.w.side * s.w.side)
        add_bias_row(b.s + i * SLD + own.x, s.table, s.w, row, first + own.x, count);
#endif
}

// Lanes of x that see their key; the others are 0.
inline V seen_lanes(const V x, const int at, const int2 visible) {
    if (at >= visible.x && at + VW <= visible.y)
        return x;
    return SELECT((V)(0.0f), x, at + LANES >= visible.x && at + LANES < visible.y);
}

// lse: of the head's tokens. sums: 3 floats of each row and work-item.
inline void start_terms(const block b, const scene s, SHARED float *sums, __global const float *lse, const int row0,
                        const int count, const int lid) {
    for (int i = lid; i < BM; i += WG) {
        const float l = i < count ? lse[TOKEN(s.w, row0 + i)] : -INFINITY;
        b.terms[i] = (float4)(l == -INFINITY ? INFINITY : l * LOG2E, 0.0f, 0.0f, 0.0f);
    }
    for (int e = lid; e < BM * ROW_ITEMS * 3; e += WG)
        sums[e] = 0.0f;
}

// Of one row: sums of P, P G and relu(S)^2 G.
inline void sum_row(const block b, SHARED float *sums, const int i, const int first, const int2 own) {
    const float l = b.terms[i].x;
    V p_sum = (V)(0.0f), pg_sum = (V)(0.0f), rg_sum = (V)(0.0f);
    for (int j = i * SLD + own.x; j < i * SLD + own.y; j += VW) {
        const int at = first + j - i * SLD;
        const V x = RAW_LOAD(b.s + j), p = seen_lanes(weights_of(x - l), at, b.visible[i]);
        p_sum += p;
#if FORM != REST
        const V g = seen_lanes(RAW_LOAD(b.g + j), at, b.visible[i]);
        pg_sum = fma(p, g, pg_sum);
#endif
#if FORM == MIXED
        const V r = seen_lanes(fmax(x, (V)(0.0f)), at, b.visible[i]);
        rg_sum = fma(r * r, g, rg_sum);
#endif
    }
    sums[0] += vsum(p_sum);
    sums[1] += vsum(pg_sum);
    sums[2] += vsum(rg_sum);
}

// S gets its bias.
inline void sum_rows(const block b, const scene s, SHARED float *sums, const int row0, const int count, const int first,
                     const int columns, const int lid) {
    const int2 own = own_columns(columns, lid);
    for (int i = FIRST_ROW(lid); i < BLOCK_ROWS(count); i += WG) {
        bias_row(b, s, i, row0 + i, first, columns, own);
        sum_row(b, sums + (i * ROW_ITEMS + ROW_ITEM(lid)) * 3, i, first, own);
    }
}

// The terms, to SHARED memory and to the scene's. chosen: of REST, of the head's tokens.
inline void finish_terms(const block b, const scene s, SHARED const float *sums, __global const float *chosen,
                         const int row0, const int count, const int lid) {
    for (int i = lid; i < count; i += WG) {
        float total = 0.0f, d1 = 0.0f, d2 = 0.0f;
        for (int e = i * ROW_ITEMS * 3; e < (i + 1) * ROW_ITEMS * 3; e += 3) {
            total += sums[e];
            d1 += sums[e + 1];
            d2 += sums[e + 2];
        }
        const float factor = FORM == REST ? -chosen[TOKEN(s.w, row0 + i)] : s.mix.x;
        b.terms[i] = (float4)(b.terms[i].x, total == 0.0f ? 0.0f : d1 / total, total == 0.0f ? 0.0f : factor / total,
                              d2 * (LN2 * LN2));
        vstore4(b.terms[i], row0 + i, s.terms);
    }
}

inline void weigh_row(const block b, const scene s, const int i, const int first, const int2 own) {
    const float4 t = b.terms[i];
    const float slope = 2.0f * LOG2E * s.mix.y;
    SHARED float *scores = b.s + i * SLD, *gradients = b.g + i * SLD;
    for (int j = own.x; j < own.y; j += TN) {
        V a[TNV], ds[TNV];
        UNROLL for (int e = 0; e < TNV; e++) {
            const V x = RAW_LOAD(scores + j + e * VW), p = weights_of(x - t.x) * t.z;
#if FORM == REST
            ds[e] = p;
#else
            const V g = RAW_LOAD(gradients + j + e * VW);
            a[e] = p;
            ds[e] = p * (g - t.y);
#endif
#if FORM == MIXED
            const V r = fmax(x, (V)(0.0f));
            a[e] = fma(r * r, (V)(s.mix.y), p);
            ds[e] = fma(r * slope, g, ds[e]);
#endif
        }
        UNROLL for (int e = 0; e < TNV; e++) {
            const int at = first + j + e * VW;
            if (FORM != REST)
                RAW_STORE(seen_lanes(a[e], at, b.visible[i]), scores + j + e * VW);
            RAW_STORE(seen_lanes(ds[e], at, b.visible[i]), gradients + j + e * VW);
        }
    }
}

// biased: S has its bias already.
inline void weigh_rows(const block b, const scene s, const int row0, const int count, const int first,
                       const int columns, const int biased, const int lid) {
    const int2 own = own_columns(columns, lid);
    for (int i = FIRST_ROW(lid); i < BLOCK_ROWS(count); i += WG) {
        if (!biased)
            bias_row(b, s, i, row0 + i, first, columns, own);
        weigh_row(b, s, i, first, own);
    }
}

// acc += w^T b over `count` rows, from row0. visible: of each column. b: row row0, tiles_across micro-tiles a row.
inline void product_columns(V (*acc)[TM][TNV], const int tiles_across, SHARED const float *w,
                            SHARED const int2 *visible, __global const float *b, const int row0, const int count,
                            const int columns, const int lid) {
    const int tiles = KEY_ROWS * tiles_across;
    UNROLL_GPU for (int n = 0; n < CEIL_DIV(tiles, WG); n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, KEY_ROWS, tiles_across) * TM;
        if (t < tiles && mi < columns)
            tile_fma_seen(acc[n], w + mi, 1, SLD, visible_union(visible + mi, TM) - row0,
                          b + TILE_COLUMN(t, KEY_ROWS, tiles_across) * TN, tiles_across * TN, count);
    }
}

// acc has row_tiles rows of micro-tiles, tiles_across in each; `size` columns of `count` rows are stored, from row0.
inline void store_tokens(V (*acc)[TM][TNV], const int row_tiles, const int tiles_across, const float scale,
                         __global STORAGE(TYPE_O) *to, const long row_stride, const int size, const window w,
                         const int row0, const int count, const int lid) {
    const int tiles = row_tiles * tiles_across;
    UNROLL_GPU for (int n = 0; n < CEIL_DIV(tiles, WG); n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, row_tiles, tiles_across) * TM;
        const int column = TILE_COLUMN(t, row_tiles, tiles_across) * TN;
        UNROLL for (int i = 0; i < TM; i++) {
            const int row = mi + i;
            const long at = t < tiles && row < count ? TOKEN(w, row0 + row) * row_stride + column : 0;
            UNROLL for (int j = 0; j < TNV; j++) {
                if (t < tiles && row < count && column + j * VW < size)
                    store_some(to + at + j * VW, acc[n][i][j] * scale, size - column - j * VW);
            }
        }
    }
}

#if WINDOW
// Behind and before a row's columns lie floats that table_rows reads and drops.
inline void clear_gradients(const block b, const int lid) {
    for (int e = lid - VW; e < BM * SLD + VW; e += WG)
        b.g[e] = 0.0f;
}

// Floats of a line of a table that is being summed: whole vectors.
#define TABLE_LINE(side) ROUND_UP(2 * (side) - 1, VW)

// table [2 side - 1, TABLE_LINE], lines as in the prepared one: a work-item owns vectors of entries. g: dS of queries
// row0 .. row0 + count and keys first .. first + columns.
inline void table_rows(__global float *to, SHARED const float *g, const int side, const int row0, const int count,
                       const int first, const int columns, const int lid) {
    const int low = row0 / side - (first + columns - 1) / side, high = (row0 + count - 1) / side - first / side;
    const int vectors = TABLE_LINE(side) / VW;
    for (int e = lid; e < (high - low + 1) * vectors; e += WG) {
        const int dy = low + e / vectors, column = e % vectors * VW;
        V sum = (V)(0.0f);
        int y = row0 / side, x = row0 % side;
        for (int i = 0; i < count; i++) {
            const int key_x = x + column - (side - 1), at = (y - dy) * side + key_x - first;
            if (y >= dy && y - dy < side && key_x > -VW && key_x < side && at > -VW && at < columns) {
                const VI lane = key_x + LANES, key = at + LANES;
                sum += SELECT((V)(0.0f), RAW_LOAD(g + i * SLD + at),
                              lane >= 0 && lane < side && key >= 0 && key < columns);
            }
            x++;
            if (x == side) {
                x = 0;
                y++;
            }
        }
        __global float *entries = to + (long)(dy + side - 1) * TABLE_LINE(side) + column;
        RAW_STORE(RAW_LOAD(entries) + sum, entries);
    }
}
#endif

#endif
