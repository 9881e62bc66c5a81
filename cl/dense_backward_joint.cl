// Gradients of q, k and v in one pass over the pairs, for devices of work-group 1: five products of BM keys and BN queries.
//
//   dense_backward_joint  a work-item owns one head of keys, of its blocks of BM keys every shares-th; for each block it streams
//                         the queries of all heads that read it. It finishes the block's dK and dV, and adds to its part of dQ
//   dense_backward_sum    dQ = scale * the sum of the parts: a work-item owns PW queries of one head
//
//   S^T = K Q^T    dP^T = V dO^T    P = 2^(S - L)    G = P (dP - delta)      [BM, BN], keys down
//   dV += P^T dO   dK += G^T Q      by rows of P^T and G^T
//   dQ += G K                       by columns of G^T
//
// parts [shares, B, H, M, DP]: each has one writer, which adds in one order: the same bits every time.
// Defines: attention_backward.h; WG = 1; BN a multiple of TM too; HIDDEN_INSIDE = HAS_BIAS.
#include "dense_backward.h"

#if WG != 1 || BN % TM != 0
#error "WG = 1, BN a multiple of TM: see the head of dense_backward_joint.cl"
#endif

// A block of pairs: weights and gradients of scores, keys down; the keys' and the queries' views of each other.
typedef struct block {
    float *p, *g;
    const int2 *visible; // queries that each key has
} block;

// Columns of a [count, width] matrix, BM apart: the operand whose rows are the block's keys. Rows past `count` are zero.
inline void own_columns(float *to, __global const STORAGE(TYPE_Q) *from, const long row_stride, const int width,
                        const int count) {
    for (int i = 0; i < BM; i++)
        for (int d = 0; d < width; d++)
            to[d * BM + i] = i < count ? LOAD(TYPE_Q, from, i * row_stride + d) : 0.0f;
}

// to = own times the panels' rows first .. first + columns. Micro-tiles that nobody sees are left as they are.
inline void pair_product(float *to, const float *own, const int2 *visible, const int count,
                         __global const float *panels, const int depth, const int first, const int columns) {
    const int column_tiles = CEIL_DIV(columns, TN);
    for (int t = 0; t < ROW_TILES * column_tiles; t++) {
        const int mi = TILE_ROW(t, ROW_TILES, column_tiles) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, column_tiles) * TN, at = first + column;
        const int4 u = visible_union(visible + mi, TM);
        if (mi >= count || u.x >= at + TN || u.y <= at)
            continue;
        V c[TM][TNV];
        tile_zero(c);
        tile_fma_steps(c, own + mi, 1, BM, panels + (long)(at / PW) * depth * PW + at % PW, PW, depth);
        UNROLL for (int i = 0; i < TM; i++) {
            UNROLL for (int j = 0; j < TNV; j++) { RAW_STORE(c[i][j], to + (mi + i) * BN + column + j * VW); }
        }
    }
}

// Scores in p become weights, gradients of weights in g those of scores; exactly 0 where hidden. Differences are written as fma:
// PoCL's compiler takes one of two loads apart into pairs of lanes.
inline void weigh(const block pairs, const int count, const terms t, const bias_view bias, const int first,
                  const int columns) {
    const int width = ROUND_UP(columns, TN);
    for (int i = 0; i < ROUND_UP(count, TM); i++) {
        const int2 visible = pairs.visible[i];
        const int inside = visible.x <= first && visible.y >= first + width;
        float *p = pairs.p + i * BN, *g = pairs.g + i * BN;
        for (int j = 0; j < width; j += TN) {
            V x[TNV];
            UNROLL for (int e = 0; e < TNV; e++) {
                const int at = first + j + e * VW;
                x[e] = RAW_LOAD(p + j + e * VW);
#if HAS_BIAS
                const V b = bias_lanes(bias.first + i * bias.own_stride, bias.stream_stride, at, visible);
                x[e] = SELECT(x[e] + b, (V)(-INFINITY), b == (V)(-INFINITY));
#endif
                x[e] = weights_of(fma(RAW_LOAD(t.l + at), (V)(-1.0f), x[e]));
            }
            UNROLL for (int e = 0; e < TNV; e++) {
                const int at = first + j + e * VW;
                if (!inside)
                    x[e] = SELECT((V)(0.0f), x[e], at + LANES >= visible.x && at + LANES < visible.y);
                const V y = x[e] * fma(RAW_LOAD(t.delta + at), (V)(-1.0f), RAW_LOAD(g + j + e * VW));
                RAW_STORE(x[e], p + j + e * VW);
                RAW_STORE(SELECT(y, (V)(0.0f), x[e] == 0.0f), g + j + e * VW);
            }
        }
    }
}

// acc += w B, rows of w by keys. b: B's panels of TN columns from row `first`, `panel` floats apart.
inline void add_keys(V (*acc)[TM][TNV], const int tiles_across, const float *w, const int2 *visible, const int count,
                     __global const float *b, const long panel, const int first, const int columns) {
    for (int t = 0; t < ROW_TILES * tiles_across; t++) {
        const int mi = TILE_ROW(t, ROW_TILES, tiles_across) * TM;
        if (mi < count)
            tile_fma_seen(acc[t], w + mi * BN, BN, 1, visible_union(visible + mi, TM) - first,
                          b + TILE_COLUMN(t, ROW_TILES, tiles_across) * panel, TN, columns);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
dense_backward_joint(__global const STORAGE(TYPE_Q) *k, const long k_offset, __global const STORAGE(TYPE_Q) *v,
                     const long v_offset, __global const float *k_columns, const long k_columns_offset,
                     __global const float *q_panels, const long q_panels_offset, __global const float *o_panels,
                     const long o_panels_offset, __global const float *q_columns, const long q_columns_offset,
                     __global const float *o_columns, const long o_columns_offset, __global float *parts,
                     const long parts_offset, __global STORAGE(TYPE_O) *grad_k, const long grad_k_offset,
                     __global STORAGE(TYPE_O) *grad_v, const long grad_v_offset, MASK_PARAMETERS, const long k_batch,
                     const long k_head, const long k_row, const long v_batch, const long v_head, const long v_row,
                     const long grad_k_batch, const long grad_k_head, const long grad_k_row, const long grad_v_batch,
                     const long grad_v_head, const long grad_v_row) {
    float ks[D * BM] ALIGNED, vs[DV * BM] ALIGNED, p[BM * BN] ALIGNED, g[BM * BN] ALIGNED;
    int2 visible[BM], seen[BN];
    V acc_k[KEY_TILES_EACH][TM][TNV], acc_v[VALUE_TILES_EACH][TM][TNV];
    const long share = get_group_id(0), shares = get_num_groups(0), kv = get_group_id(1), b = get_group_id(2);
    const long heads = get_num_groups(1) * heads_per_kv;
    const sequence seq = SEQUENCE;
    const block pairs = {p, g, visible};
    const long part = parts_offset + (share * get_num_groups(2) + b) * heads * queries * DP;

    for (long e = part + kv * heads_per_kv * queries * DP; e < part + (kv + 1) * heads_per_kv * queries * DP; e++)
        parts[e] = 0.0f;
    for (long row0 = share * BM; row0 < keys; row0 += shares * BM) {
        const int count = min((long)BM, keys - row0), real = min((long)count, seq.keys - row0);
        for (int i = 0; i < BM; i++) // rows past the last are as the last, and stored nowhere; a bias has no such rows
            visible[i] = visible_queries(seq, (int)row0 + (HAS_BIAS ? i : min(i, count - 1)), left, right);
        own_columns(ks, k + k_offset + b * k_batch + kv * k_head + row0 * k_row, k_row, D, real);
        own_columns(vs, v + v_offset + b * v_batch + kv * v_head + row0 * v_row, v_row, DV, real);
        clear_rows(acc_k, KEY_TILES_EACH);
        clear_rows(acc_v, VALUE_TILES_EACH);
        const int4 u = visible_union(visible, BM);
        __global const float *columns_of_k =
            k_columns + k_columns_offset + (b * get_num_groups(1) + kv) * rows_size(keys, D) + row0 * TN;
        for (long h = kv * heads_per_kv; h < (kv + 1) * heads_per_kv; h++) {
            const long head = b * heads + h;
            const terms t = terms_of(terms_ + terms_offset, head, queries);
            const bias_view of = {bias + bias_offset + b * bias_batch + h * bias_head + row0 * bias_key, bias_key, bias_row};
            for (int first = u.x / PW * PW; first < u.y; first += BN) {
                const int columns = min(BN, u.y - first);
                for (int i = 0; i < ROUND_UP(columns, TM); i++)
                    seen[i] = visible_keys(seq, first + min(i, columns - 1), left, right);
                pair_product(p, ks, visible, count, q_panels + q_panels_offset + head * panels_size(queries, D), D, first, columns);
                pair_product(g, vs, visible, count, o_panels + o_panels_offset + head * panels_size(queries, DV), DV, first, columns);
                weigh(pairs, count, t, of, first, columns);
                add_keys(acc_v, DVP / TN, p, visible, count,
                         o_columns + o_columns_offset + head * rows_size(queries, DV) + first * TN, (long)queries * TN, first,
                         columns);
                add_keys(acc_k, DP / TN, g, visible, count,
                         q_columns + q_columns_offset + head * rows_size(queries, D) + first * TN, (long)queries * TN, first,
                         columns);
                add_columns(parts + part + (h * queries + first) * DP, g, seen, columns_of_k, TN, (long)keys * TN, row0,
                            columns, count);
            }
        }
        store_rows(acc_k, DP / TN, scale, grad_k + grad_k_offset + b * grad_k_batch + kv * grad_k_head + row0 * grad_k_row,
                   grad_k_row, D, count, 0);
        store_rows(acc_v, DVP / TN, 1.0f, grad_v + grad_v_offset + b * grad_v_batch + kv * grad_v_head + row0 * grad_v_row,
                   grad_v_row, DV, count, 0);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
dense_backward_sum(__global const float *parts, const long parts_offset, __global STORAGE(TYPE_O) *grad_q,
                   const long grad_q_offset, const int queries, const int shares, const float scale,
                   const long grad_batch, const long grad_head, const long grad_row) {
    const long first = get_group_id(0) * PW, last = min(first + PW, (long)queries);
    const long h = get_group_id(1), heads = get_num_groups(1), b = get_group_id(2), batch = get_num_groups(2);
    for (long i = first; i < last; i++) {
        for (int d = 0; d < D; d += VW) {
            V sum = (V)(0.0f);
            for (long share = 0; share < shares; share++)
                sum += RAW_LOAD(parts + parts_offset + (((share * batch + b) * heads + h) * queries + i) * DP + d);
            store_some(grad_q + grad_q_offset + b * grad_batch + h * grad_head + i * grad_row + d, sum * scale, D - d);
        }
    }
}
