// Gradients of dense attention, each by a kernel of its own; the steps are those of attention_backward.h.
//
//   dense_backward_queries  dQ: a work-group owns BM queries of one head and streams the keys
//   dense_backward_keys     dK and dV: a work-group owns BM keys of one head of keys, and streams the queries of all heads that
//                           read it, one head after another
//   dense_backward_bias     dBias: a work-group owns BM x BN pairs of one batch entry and head of the gradient, and sums
//                           over what it has but one of
//
// Each gradient has one writer, which adds in one order: the same bits every time.
// Defines and local memory: attention_backward.h (dense_backward_bias has its sums where P would be); HIDDEN_INSIDE =
// HAS_BIAS.
#include "dense_backward.h"

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_backward_queries(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const STORAGE(TYPE_Q) *grad_o,
                       const long grad_o_offset, __global const float *k_panels, const long k_panels_offset,
                       __global const float *v_panels, const long v_panels_offset, __global const float *k_rows,
                       const long k_rows_offset, __global STORAGE(TYPE_O) *grad_q, const long grad_q_offset,
                       MASK_PARAMETERS, const long q_batch, const long q_head, const long q_row, const long o_batch,
                       const long o_head, const long o_row, const long grad_batch, const long grad_head,
                       const long grad_row) {
    SHARED float qs[BM * D] ALIGNED, os[BM * DV] ALIGNED, g[BM * SLD] ALIGNED, l[BM], delta[BM];
    SHARED int2 visible[BM];
    V acc[KEY_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, queries - row0);
    const long h = get_group_id(1), b = get_group_id(2), heads = get_num_groups(1);
    const long kv = b * (heads / heads_per_kv) + h / heads_per_kv;
    const sequence seq = SEQUENCE;
    const terms t = terms_of(terms_ + terms_offset, b * heads + h, queries);
    const int real = min(count, seq.queries - row0);

    for (int i = lid; i < BM; i += WG) {
        visible[i] = visible_keys(seq, row0 + i, left, right);
        l[i] = i < count ? t.l[row0 + i] : INFINITY;
        delta[i] = i < count ? t.delta[row0 + i] : 0.0f;
    }
    own_rows(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, D, real, scale * LOG2E, lid);
    own_rows(os, grad_o + grad_o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, DV, real, 1.0f, lid);
    clear_rows(acc, KEY_TILES_EACH);
    SYNC;

    const int4 u = visible_union(visible, BM);
    const owned own = {qs, os, l, delta, visible};
    const streamed other = {k_panels + k_panels_offset + kv * panels_size(keys, D),
                            v_panels + v_panels_offset + kv * panels_size(keys, DV)};
    const bias_view of = {bias + bias_offset + b * bias_batch + h * bias_head + row0 * bias_row, bias_row, bias_key};
    __global const float *rows_of_k = k_rows + k_rows_offset + kv * rows_size(keys, D);
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        pair_block((SHARED float *)0, g, own, t, other, of, first, columns, lid);
        SYNC;
        product_block(acc, DP / TN, g, visible, rows_of_k + (long)first * DP, first, columns, lid);
        SYNC;
    }
    store_rows(acc, DP / TN, scale, grad_q + grad_q_offset + b * grad_batch + h * grad_head + row0 * grad_row, grad_row, D,
               count, lid);
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_backward_keys(__global const STORAGE(TYPE_Q) *k, const long k_offset, __global const STORAGE(TYPE_Q) *v,
                    const long v_offset, __global const float *q_panels, const long q_panels_offset,
                    __global const float *o_panels, const long o_panels_offset, __global const float *q_rows,
                    const long q_rows_offset, __global const float *o_rows, const long o_rows_offset,
                    __global STORAGE(TYPE_O) *grad_k, const long grad_k_offset, __global STORAGE(TYPE_O) *grad_v,
                    const long grad_v_offset, MASK_PARAMETERS, const long k_batch, const long k_head, const long k_row,
                    const long v_batch, const long v_head, const long v_row, const long grad_k_batch,
                    const long grad_k_head, const long grad_k_row, const long grad_v_batch, const long grad_v_head,
                    const long grad_v_row) {
    SHARED float ks[BM * D] ALIGNED, vs[BM * DV] ALIGNED, p[BM * SLD] ALIGNED, g[BM * SLD] ALIGNED;
    SHARED int2 visible[BM];
    V acc_k[KEY_TILES_EACH][TM][TNV], acc_v[VALUE_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, keys - row0);
    const long kv = get_group_id(1), b = get_group_id(2), heads = get_num_groups(1) * heads_per_kv;
    const sequence seq = SEQUENCE;
    const int real = min(count, seq.keys - row0);

    for (int i = lid; i < BM; i += WG)
        visible[i] = visible_queries(seq, row0 + i, left, right);
    own_rows(ks, k + k_offset + b * k_batch + kv * k_head + row0 * k_row, k_row, D, real, 1.0f, lid);
    own_rows(vs, v + v_offset + b * v_batch + kv * v_head + row0 * v_row, v_row, DV, real, 1.0f, lid);
    clear_rows(acc_k, KEY_TILES_EACH);
    clear_rows(acc_v, VALUE_TILES_EACH);
    SYNC;

    const int4 u = visible_union(visible, BM);
    const owned own = {ks, vs, NONE_OWNED, NONE_OWNED, visible};
    for (long h = kv * heads_per_kv; h < (kv + 1) * heads_per_kv; h++) {
        const long head = b * heads + h;
        const terms t = terms_of(terms_ + terms_offset, head, queries);
        const streamed other = {q_panels + q_panels_offset + head * panels_size(queries, D),
                                o_panels + o_panels_offset + head * panels_size(queries, DV)};
        const bias_view of = {bias + bias_offset + b * bias_batch + h * bias_head + row0 * bias_key, bias_key, bias_row};
        __global const float *rows_of_q = q_rows + q_rows_offset + head * rows_size(queries, D);
        __global const float *rows_of_o = o_rows + o_rows_offset + head * rows_size(queries, DV);
        for (int first = u.x / PW * PW; first < u.y; first += BN) {
            const int columns = min(BN, u.y - first);
            pair_block(p, g, own, t, other, of, first, columns, lid);
            SYNC;
            product_block(acc_v, DVP / TN, p, visible, rows_of_o + (long)first * DVP, first, columns, lid);
            product_block(acc_k, DP / TN, g, visible, rows_of_q + (long)first * DP, first, columns, lid);
            SYNC;
        }
    }
    store_rows(acc_k, DP / TN, scale, grad_k + grad_k_offset + b * grad_k_batch + kv * grad_k_head + row0 * grad_k_row,
               grad_k_row, D, count, lid);
    store_rows(acc_v, DVP / TN, 1.0f, grad_v + grad_v_offset + b * grad_v_batch + kv * grad_v_head + row0 * grad_v_row,
               grad_v_row, DV, count, lid);
}

#if HAS_BIAS
typedef struct axis {
    long first, count; // of the problem's extent, that this group sums over
} axis;

// A gradient that has `blocks` of an axis's `extent`: one element each, or the sum over all.
inline axis axis_of(const long extent, const long blocks, const long at) {
    return blocks == extent ? (axis){at, 1} : (axis){0, extent};
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_backward_bias(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const STORAGE(TYPE_Q) *grad_o,
                    const long grad_o_offset, __global const float *k_panels, const long k_panels_offset,
                    __global const float *v_panels, const long v_panels_offset, __global float *grad,
                    const long grad_offset, MASK_PARAMETERS, const long q_batch, const long q_head, const long q_row,
                    const long o_batch, const long o_head, const long o_row, const long batch, const long batch_blocks,
                    const long grad_batch, const long heads, const long head_blocks, const long grad_head,
                    const long rows, const long row_blocks, const long grad_row, const long columns_, const long key_blocks,
                    const long grad_key) {
    SHARED float qs[BM * D] ALIGNED, os[BM * DV] ALIGNED, g[BM * SLD] ALIGNED, sum[BM * SLD] ALIGNED, l[BM], delta[BM];
    SHARED int2 visible[BM];
    const int lid = get_local_id(0), sum_rows = row_blocks != rows, sum_keys = key_blocks != columns_;
    const long out_b = get_group_id(2) / head_blocks, out_h = get_group_id(2) % head_blocks;
    const axis bs = axis_of(batch, batch_blocks, out_b), hs = axis_of(heads, head_blocks, out_h);
    const int row_first = sum_rows ? 0 : get_group_id(1) * BM, row_end = sum_rows ? queries : min(row_first + BM, queries);
    const int key_first = sum_keys ? 0 : get_group_id(0) * BN, key_end = sum_keys ? keys : min(key_first + BN, keys);

    for (int e = lid; e < BM * SLD; e += WG)
        sum[e] = 0.0f;
    for (long b = bs.first; b < bs.first + bs.count; b++) {
        const sequence seq = SEQUENCE;
        for (long h = hs.first; h < hs.first + hs.count; h++) {
            const terms t = terms_of(terms_ + terms_offset, b * heads + h, queries);
            const long kv = b * (heads / heads_per_kv) + h / heads_per_kv;
            const streamed other = {k_panels + k_panels_offset + kv * panels_size(keys, D),
                                    v_panels + v_panels_offset + kv * panels_size(keys, DV)};
            for (int row0 = row_first; row0 < row_end; row0 += BM) {
                const int count = min(BM, row_end - row0), real = min(count, seq.queries - row0);
                SYNC;
                for (int i = lid; i < BM; i += WG) {
                    visible[i] = i < count ? visible_keys(seq, row0 + i, left, right) : (int2)(0, 0);
                    l[i] = i < count ? t.l[row0 + i] : INFINITY;
                    delta[i] = i < count ? t.delta[row0 + i] : 0.0f;
                }
                own_rows(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, D, real, scale * LOG2E, lid);
                own_rows(os, grad_o + grad_o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, DV, real, 1.0f, lid);
                SYNC;
                const owned own = {qs, os, l, delta, visible};
                const bias_view of = {bias + bias_offset + b * bias_batch + h * bias_head + row0 * bias_row, bias_row,
                                      bias_key};
                const int4 u = visible_union(visible, BM);
                for (int first = key_first; first < key_end; first += BN) {
                    if (u.x >= first + BN || u.y <= first)
                        continue;
                    const int columns = min(BN, key_end - first);
                    for (int e = lid; e < BM * SLD; e += WG)
                        g[e] = 0.0f;
                    SYNC;
                    pair_block((SHARED float *)0, g, own, t, other, of, first, columns, lid);
                    SYNC;
                    for (int e = lid; e < BM * SLD; e += WG)
                        sum[e] += g[e];
                    SYNC;
                }
            }
        }
    }
    SYNC;
    const int count = sum_rows ? min(BM, queries) : row_end - row_first;
    const int columns = sum_keys ? min(BN, keys) : key_end - key_first;
    for (int j = lid; j < columns && sum_rows; j += WG)
        for (int i = 1; i < count; i++)
            sum[j] += sum[i * SLD + j];
    SYNC;
    const int out_rows = sum_rows ? 1 : count, out_keys = sum_keys ? 1 : columns;
    grad += grad_offset + out_b * grad_batch + out_h * grad_head + row_first * grad_row + key_first * grad_key;
    for (int e = lid; e < out_rows * out_keys; e += WG) {
        const int i = e / out_keys, j = e % out_keys;
        float total = count > 0 && columns > 0 ? sum[i * SLD + j] : 0.0f;
        for (int c = 1; c < columns && sum_keys; c++)
            total += sum[i * SLD + c];
        grad[i * grad_row + j * grad_key] = total;
    }
}
#endif
