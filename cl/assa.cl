// The adaptive mode: softmax and squared ReLU of the same scores, mixed. One pass over the keys. A work-group owns BM
// queries of one head of one sequence, or of one window of it.
//
//   S = Q K^T + bias   ->   P = online softmax, R = relu(S)^2   ->   O = mix0 P V / l + mix1 R V
//
// Where all keys fit one block, P and R are mixed before a single product with V. Without RELU this is softmax
// attention, which is what the top-k mode is where k leaves nothing out.
// Defines: those of attention.h; RELU 0|1; WINDOW 0|1 (1 with RELU: windows of a grid, a bias table, no lengths);
// ONE_BLOCK 0|1 (with WINDOW: side * side <= BN); HAS_LSE 0|1. Local memory (WG > 1): that of attention.h, with RELU
// another BM*SLD + BM floats.
#include "attention.h"
#include "assa.h"

#if !defined(RELU) || !defined(WINDOW) || !defined(ONE_BLOCK) || !defined(HAS_LSE)
#error "RELU, WINDOW, ONE_BLOCK, HAS_LSE: 0 or 1"
#endif

#if WINDOW
inline void query_tokens(SHARED float *qs, __global const STORAGE(TYPE_Q) *q, const long row_stride, const window w,
                         const int row0, const int count, const float scale, const int lid) {
    for (int i = 0; i < BM; i++) {
        const long row = i < count ? window_token(w, row0 + i) * row_stride : 0;
        for (int d = lid; d < D; d += WG)
            qs[i * D + d] = i < count ? LOAD(TYPE_Q, q, row + d) * scale : 0.0f;
    }
}
#endif

#if RELU
// squares = relu(S)^2, 0 where a row does not see; S there is set to -inf.
inline void square_block(SHARED float *squares, SHARED float *s, const rows r, const int first, const int columns,
                         const int lid) {
    const int width = ROUND_UP(columns, TN);
    for (int i = lid; i < BM; i += WG) {
        const int lo = r.visible[i].x - first, hi = min(r.visible[i].y - first, columns);
        for (int j = 0; j < width; j += VW) {
            V x = RAW_LOAD(s + i * SLD + j);
            if (j < lo || j + VW > hi) {
                const VI at = j + LANES;
                x = SELECT((V)(-INFINITY), x, at >= lo && at < hi);
            }
            const V positive = fmax(x, (V)(0.0f));
            RAW_STORE(positive * positive, squares + i * SLD + j);
        }
    }
}

#if ONE_BLOCK
// The whole matrix of weights, in s.
inline void mix_block(SHARED float *s, SHARED const float *squares, const rows r, const float2 mix, const int columns,
                      const int lid) {
    const int width = ROUND_UP(columns, TN);
    for (int i = lid; i < BM; i += WG) {
        const float soft = r.l[i] == 0.0f ? 0.0f : mix.x / r.l[i];
        for (int j = i * SLD; j < i * SLD + width; j += VW)
            RAW_STORE(RAW_LOAD(s + j) * soft + RAW_LOAD(squares + j) * mix.y, s + j);
        r.l[i] = r.l[i] == 0.0f ? 0.0f : 1.0f;
    }
}
#else
inline void mix_values(V acc[VALUE_TILES_EACH][TM][TNV], V squared[VALUE_TILES_EACH][TM][TNV], const rows r,
                       const float2 mix, const int lid) {
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM;
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) {
                if (t < VALUE_TILES)
                    acc[n][i][j] = acc[n][i][j] * mix.x + squared[n][i][j] * (mix.y * r.l[mi + i]);
            }
        }
    }
}
#endif
#endif

#if WINDOW
// As output_block, each row to its token.
inline void output_tokens(V acc[VALUE_TILES_EACH][TM][TNV], const rows r, __global STORAGE(TYPE_O) *o,
                          const long row_stride, const window w, const int row0, const int count, const int lid) {
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, VALUE_COLUMNS) * TN;
        UNROLL for (int i = 0; i < TM; i++) {
            const int row = mi + i;
            const long at = row < count ? window_token(w, row0 + row) * row_stride + column : 0;
            UNROLL for (int j = 0; j < TNV; j++) {
                if (t < VALUE_TILES && row < count && column + j * VW < DV)
                    store_some(o + at + j * VW, acc[n][i][j] / r.l[row], DV - column - j * VW);
            }
        }
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
assa_mixed(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const float *k_panels, const long k_offset,
           __global const float *v_rows, const long v_offset, __global STORAGE(TYPE_O) *o, const long o_offset,
           __global const float *mix, const long mix_offset, __global const float *table, const long table_offset,
           __global float *lse, const long lse_offset, __global const int *key_lengths, const long key_lengths_offset,
           __global const int *query_lengths, const long query_lengths_offset, const int queries, const int keys,
           const int heads_per_kv, const float scale, const int right, const int bottom_right, WINDOW_PARAMETERS,
           const long q_batch, const long q_head, const long q_row, const long k_batch, const long k_head,
           const long v_batch, const long v_head, const long o_batch, const long o_head, const long o_row,
           const long lse_batch, const long lse_head, const long lse_row) {
    SHARED float qs[BM * D] ALIGNED, s[BM * SLD] ALIGNED, m[BM], l[BM], c[BM];
    SHARED int2 visible[BM];
#if HAS_LSE
    SHARED float total[BM];
    for (int i = get_local_id(0); i < BM; i += WG)
        total[i] = 0.0f;
#endif
    V acc[VALUE_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, queries - row0);
    const long h = get_group_id(1), part = get_group_id(2), kv = h / heads_per_kv;
    const rows r = {m, l, c, visible};
#if WINDOW
    const int windows = windows_of(side, grid_rows, grid_columns);
    const window w = window_at((int)(part % windows), side, grid_rows, grid_columns, shift);
    const long b = part / windows;
#else
    const long b = part;
#endif
    const sequence seq = sequence_of(b, queries, keys, query_lengths, query_lengths_offset, key_lengths,
                                     key_lengths_offset, bottom_right);
    q += q_offset + b * q_batch + h * q_head;
    o += o_offset + b * o_batch + h * o_head;

    for (int i = lid; i < BM; i += WG)
        visible[i] = visible_keys(seq, row0 + i, -1, right);
    rows_init(r, lid);
#if WINDOW
    query_tokens(qs, q, q_row, w, row0, count, scale * LOG2E, lid);
#else
    query_block(qs, q + row0 * q_row, q_row, min(count, seq.queries - row0), scale * LOG2E, lid);
#endif
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) tile_zero(acc[n]);
#if RELU
    SHARED float squares[BM * SLD] ALIGNED, one[BM];
    const float2 mixed = (float2)(mix[mix_offset], mix[mix_offset + 1]);
#if !ONE_BLOCK
    const rows unscaled = {m, l, one, visible};
    V squared[VALUE_TILES_EACH][TM][TNV];
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) tile_zero(squared[n]);
#endif
    for (int i = lid; i < BM; i += WG)
        one[i] = 1.0f;
#endif
    SYNC;

    const int4 u = visible_union(visible, BM);
    __global const float *panels = k_panels + k_offset + part * k_batch + kv * k_head;
    __global const float *values = v_rows + v_offset + part * v_batch + kv * v_head;
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        score_block(s, qs, panels, first, columns, lid);
        SYNC;
#if WINDOW
        const int line = 2 * side - 1;
        for (int i = lid; i < count; i += WG)
            add_bias_row(s + i * SLD, table + table_offset + h * line * line, w, row0 + i, first, columns);
        SYNC; // rows stay with their work-items, but LLVM 15 drops the loop above from the same region as those below
#endif
#if RELU
        square_block(squares, s, r, first, columns, lid); // the rows of a work-item are its own until the next SYNC
#endif
        softmax_block(s, r, first, columns, lid);
#if HAS_LSE
        for (int i = lid; i < BM; i += WG)
            total[i] = l[i]; // mix_block changes l
#endif
#if RELU && ONE_BLOCK
        mix_block(s, squares, r, mixed, columns, lid);
#endif
        SYNC;
        value_block(acc, s, r, values + (long)first * DVP, first, columns, lid);
#if RELU && !ONE_BLOCK
        value_block(squared, squares, unscaled, values + (long)first * DVP, first, columns, lid);
#endif
        SYNC;
    }
#if RELU && !ONE_BLOCK
    mix_values(acc, squared, r, mixed, lid);
#endif
#if WINDOW
    output_tokens(acc, r, o, o_row, w, row0, count, lid);
#else
    output_block(acc, r, o + row0 * o_row, o_row, count, lid);
#endif
#if HAS_LSE
    for (int i = lid; i < count; i += WG) {
#if WINDOW
        const long row = window_token(w, row0 + i);
#else
        const long row = row0 + i;
#endif
        lse[lse_offset + b * lse_batch + h * lse_head + row * lse_row] =
            total[i] == 0.0f ? -INFINITY : (m[i] + log2(total[i])) * LN2;
    }
#endif
}
