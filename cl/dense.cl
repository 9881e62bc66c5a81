// Dense softmax attention, one pass over the keys. A work-group owns BM queries of one head of one sequence.
//
// Defines and local memory: attention.h; HAS_BIAS, HAS_LSE (lse or saved is wanted) 0|1; HIDDEN_INSIDE = HAS_BIAS.
#include "attention.h"

#if !defined(HAS_BIAS) || !defined(HAS_LSE)
#error "HAS_BIAS, HAS_LSE: 0 or 1"
#endif

typedef struct bias_rows {
    __global const float *row; // of the block's first query
    long query_stride, key_stride;
} bias_rows;

#if HAS_BIAS
inline void add_bias(SHARED float *s, const bias_rows bias, const rows r, const int first, const int columns,
                     const int lid) {
    for (int i = 0; i < BM; i++) {
        const int lo = max(r.visible[i].x - first, 0), hi = min(r.visible[i].y - first, columns);
        for (int j = lo + lid; j < hi; j += WG)
            s[i * SLD + j] += bias.row[i * bias.query_stride + (first + j) * bias.key_stride] * LOG2E;
    }
    SYNC;
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
dense_forward(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const float *k_panels,
              const long k_offset, __global const float *v_rows, const long v_offset, __global STORAGE(TYPE_O) *o,
              const long o_offset, __global const float *bias, const long bias_offset, __global float *lse,
              const long lse_offset, __global float *saved, const long saved_offset, __global const int *key_lengths, const long key_lengths_offset,
              __global const int *query_lengths, const long query_lengths_offset, const int queries, const int keys,
              const int heads_per_kv, const float scale, const int left, const int right, const int bottom_right,
              const long q_batch, const long q_head, const long q_row, const long k_batch, const long k_head,
              const long v_batch, const long v_head, const long o_batch, const long o_head, const long o_row,
              const long bias_batch, const long bias_head, const long bias_row, const long bias_key,
              const long lse_batch, const long lse_head, const long lse_row) {
    SHARED float qs[BM * D] ALIGNED, s[BM * SLD] ALIGNED, m[BM], l[BM], c[BM];
    SHARED int2 visible[BM];
    V acc[VALUE_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, queries - row0);
    const long h = get_group_id(1), b = get_group_id(2), kv = h / heads_per_kv;
    const sequence seq = sequence_of(b, queries, keys, query_lengths, query_lengths_offset, key_lengths,
                                     key_lengths_offset, bottom_right);
    const rows r = {m, l, c, visible};

    for (int i = lid; i < BM; i += WG)
        visible[i] = visible_keys(seq, row0 + i, left, right);
    rows_init(r, lid);
    query_block(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, min(count, seq.queries - row0),
                scale * LOG2E, lid);
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) tile_zero(acc[n]);
    SYNC;

    const int4 u = visible_union(visible, BM);
    __global const float *panels = k_panels + k_offset + b * k_batch + kv * k_head;
    __global const float *values = v_rows + v_offset + b * v_batch + kv * v_head;
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        score_block(s, qs, panels, first, columns, lid);
        SYNC;
#if HAS_BIAS
        const bias_rows rows_of = {bias + bias_offset + b * bias_batch + h * bias_head + row0 * bias_row, bias_row,
                                   bias_key};
        add_bias(s, rows_of, r, first, columns, lid);
#endif
        softmax_block(s, r, first, columns, lid);
        SYNC;
        value_block(acc, s, r, values + (long)first * DVP, first, columns, lid);
        SYNC;
    }
    output_block(acc, r, o + o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, count, lid);
#if HAS_LSE
    for (int i = lid; i < count; i += WG) {
        const float x = l[i] == 0.0f ? -INFINITY : m[i] + log2(l[i]);
        if (lse)
            lse[lse_offset + b * lse_batch + h * lse_head + (row0 + i) * lse_row] = x * LN2;
        if (saved)
            saved[saved_offset + (b * get_num_groups(1) + h) * queries + row0 + i] = x;
    }
#endif
}
