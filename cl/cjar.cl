// cjar: local window, global memory and random links in one softmax. A work-group owns BM queries of one head.
//
// A query's keys come in three parts, one after another, into one running softmax:
//   memory   MEMORY rows that every query sees, packed once with the weights
//   window   an interval of the sequence (mask.h), tiles as in dense attention
//   links    single keys of a sorted list for each query, a few at a time: rows gathered one by one (cjar.h)
// MULTIPLY: a hidden key that causal and padding allow takes part with score 0. All of them enter first, as a
// count and a difference of running sums of V (cjar_prefix) less the links' rows. The count is exact: where nothing is
// hidden nothing of it is left, however small the weights of what is seen.
//
// Defines and local memory: attention.h, plus 6*BM ints; MEMORY >= 0; HAS_LINKS, MULTIPLY 0|1.
#include "attention.h"
#include "cjar.h"

#if !defined(MEMORY) || !defined(HAS_LINKS) || !defined(MULTIPLY)
#error "MEMORY, HAS_LINKS, MULTIPLY: see the head of cjar.cl"
#endif

// sums[j] = V[0] + … + V[j-1] of one head, j = 0 … its length; a work-item owns VW columns. The rounding error of each
// step is carried along, so that differences of far sums stay exact to float32.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_prefix(__global const float *values, const long values_offset, __global float *sums, const long sums_offset,
            __global const int *lengths, const long lengths_offset, const int n, const long v_batch,
            const long v_head, const long heads) {
    const long h = get_group_id(1), b = get_group_id(2), column = get_group_id(0) * VW;
    const int length = lengths ? clamp(lengths[lengths_offset + b], 0, n) : n;
    __global const float *v = values + values_offset + b * v_batch + h * v_head + column;
    __global float *to = sums + sums_offset + (b * heads + h) * (n + 1) * DVP + column;
    V sum = (V)(0.0f), lost = (V)(0.0f);
    RAW_STORE(sum, to);
    for (long j = 0; j < length; j++) {
        const V x = RAW_LOAD(v + j * DVP) - lost, next = sum + x;
        lost = (next - sum) - x;
        sum = next;
        RAW_STORE(sum, to + (j + 1) * DVP);
    }
}

#if HAS_LINKS
#define LINKS const link_list list, __global const float *values,
#else
#define LINKS
#endif

#if MULTIPLY
// The state after all hidden keys, each with score 0; links are not hidden.
inline void hidden_block(V acc[VALUE_TILES_EACH][TM][TNV], const rows r, __global const float *sums, const sequence seq,
                         const int row0, const int count, const int causal, LINKS const int lid) {
    for (int i = lid; i < count; i += WG) {
        const int allowed = allowed_keys(seq, row0 + i, causal);
        int hidden = allowed - (r.visible[i].y - r.visible[i].x);
#if HAS_LINKS
        const link_range links = links_of(list, row0 + i, allowed);
        for (long e = links.begin; e < links.end; e++)
            hidden -= link_counts(list, links, e, r.visible[i], allowed);
#endif
        r.m[i] = hidden > 0 ? 0.0f : -INFINITY;
        r.l[i] = hidden;
    }
    SYNC;
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM;
        const int column = TILE_COLUMN(t, ROW_TILES, VALUE_COLUMNS) * TN;
        UNROLL_GPU for (int i = 0; i < TM; i++) {
            if (t >= VALUE_TILES || mi + i >= count || r.l[mi + i] == 0.0f)
                continue;
            const int2 window = r.visible[mi + i];
            const int allowed = allowed_keys(seq, row0 + mi + i, causal);
            __global const float *all = sums + (long)allowed * DVP + column, *lo = sums + (long)window.x * DVP + column,
                                 *hi = sums + (long)window.y * DVP + column;
            V c[TNV];
            UNROLL for (int j = 0; j < TNV; j++) {
                c[j] = (RAW_LOAD(all + j * VW) - RAW_LOAD(hi + j * VW)) + RAW_LOAD(lo + j * VW);
            }
#if HAS_LINKS
            const link_range links = links_of(list, row0 + mi + i, allowed);
            for (long e = links.begin; e < links.end; e++)
                if (link_counts(list, links, e, window, allowed)) {
                    __global const float *v = values + (long)list.keys[e] * DVP + column;
                    UNROLL for (int j = 0; j < TNV; j++) { c[j] -= RAW_LOAD(v + j * VW); }
                }
#endif
            UNROLL for (int j = 0; j < TNV; j++) { acc[n][i][j] = c[j]; }
        }
    }
}
#endif

// One block of keys: scores, weights, values.
inline void attend(V acc[VALUE_TILES_EACH][TM][TNV], SHARED float *s, SHARED const float *qs, const rows r,
                   __global const float *panels, __global const float *values, const int first, const int columns,
                   const int lid) {
    score_block(s, qs, panels, first, columns, lid);
    SYNC;
    softmax_block(s, r, first, columns, lid);
    SYNC;
    value_block(acc, s, r, values + (long)first * DVP, first, columns, lid);
    SYNC;
}

#if HAS_LINKS
inline void link_scores(SHARED float *s, SHARED const float *qs, const rows r, const link_list list,
                        SHARED const link_range *links, __global const float *key_rows, const sequence seq,
                        const int row0, const int count, const int causal, const long first, const int lid) {
    for (int number = lid; number < count * LINK_GROUPS; number += WG) {
        const link_task t = link_task_of(links, first, number);
        if (!t.some)
            continue;
        const int i = t.row, allowed = allowed_keys(seq, row0 + i, causal);
        const VI key = counted_keys(list, links[i], t.e, r.visible[i], allowed);
        RAW_STORE(SELECT((V)(-INFINITY), dot_rows(qs + i * D, key_rows, key), key >= 0), s + i * SLD + t.at);
    }
}

inline void link_softmax(SHARED float *s, const rows r, SHARED const link_range *links, const int count,
                         const long first, const int lid) {
    for (int i = lid; i < count; i += WG) {
        const link_range chunk = link_chunk(links[i], first);
        const int columns = chunk.end - chunk.begin;
        softmax_row(s + i * SLD, 0, columns, ROUND_UP(columns, TN), r.m + i, r.l + i, r.c + i);
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cjar_forward(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const float *k_panels,
             const long k_offset, __global const float *v_rows, const long v_offset, __global STORAGE(TYPE_O) *o,
             const long o_offset, __global const float *memory_panels, const long memory_panels_offset,
             __global const float *memory_rows, const long memory_rows_offset, __global const float *k_rows,
             const long k_rows_offset, __global const float *sums, const long sums_offset,
             __global const long *link_starts, const long link_starts_offset,
             __global const int *link_keys, const long link_keys_offset, __global const int *lengths,
             const long lengths_offset, __global float *saved, const long saved_offset, const int n, const float scale,
             const int left, const int right, const int causal, const long link_count, const long q_batch, const long q_head,
             const long q_row, const long k_batch, const long k_head, const long v_batch, const long v_head,
             const long o_batch, const long o_head, const long o_row) {
    SHARED float qs[BM * D] ALIGNED, s[BM * SLD] ALIGNED, m[BM], l[BM], c[BM];
    SHARED int2 visible[BM], visible_memory[BM];
    V acc[VALUE_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, n - row0);
    const long h = get_group_id(1), b = get_group_id(2);
    const sequence seq =
        sequence_of(b, n, n, lengths, lengths_offset, lengths, lengths_offset, 0);
    const rows r = {m, l, c, visible};
#if HAS_LINKS
    SHARED link_range links[BM];
    const link_list list = {link_starts + link_starts_offset, link_keys + link_keys_offset, link_count};
    for (int i = lid; i < count; i += WG)
        links[i] = links_of(list, row0 + i, allowed_keys(seq, row0 + i, causal));
#endif

    for (int i = lid; i < BM; i += WG) {
        visible[i] = visible_keys(seq, row0 + i, left, right);
        visible_memory[i] = row0 + i < seq.queries ? (int2)(0, MEMORY) : (int2)(0, 0);
    }
    rows_init(r, lid);
    query_block(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, min(count, seq.queries - row0),
                scale * LOG2E, lid);
    UNROLL_GPU for (int t = 0; t < VALUE_TILES_EACH; t++) tile_zero(acc[t]);
    SYNC;

    __global const float *panels = k_panels + k_offset + b * k_batch + h * k_head;
    __global const float *values = v_rows + v_offset + b * v_batch + h * v_head;
#if MULTIPLY
    __global const float *sums_h = sums + sums_offset + (b * get_num_groups(1) + h) * (n + 1) * DVP;
#if HAS_LINKS
    hidden_block(acc, r, sums_h, seq, row0, count, causal, list, values, lid);
#else
    hidden_block(acc, r, sums_h, seq, row0, count, causal, lid);
#endif
    SYNC;
#endif
#if MEMORY > 0
    const rows with_memory = {m, l, c, visible_memory};
    __global const float *panels_m = memory_panels + memory_panels_offset + h * ROUND_UP(MEMORY, PW) * D;
    __global const float *values_m = memory_rows + memory_rows_offset + h * MEMORY * DVP;
    for (int first = 0; first < MEMORY; first += BN)
        attend(acc, s, qs, with_memory, panels_m, values_m, first, min(BN, MEMORY - first), lid);
#endif
    const int4 u = visible_union(visible, BM);
    for (int first = u.x / PW * PW; first < u.y; first += BN)
        attend(acc, s, qs, r, panels, values, first, min(BN, u.y - first), lid);
#if HAS_LINKS
    __global const float *key_rows = k_rows + k_rows_offset + b * v_batch + h * v_head;
    const long most = most_links(links, count);
    for (long first = 0; first < most; first += LINKS_AT_ONCE) {
        link_scores(s, qs, r, list, links, key_rows, seq, row0, count, causal, first, lid);
        SYNC;
        link_softmax(s, r, links, count, first, lid);
        SYNC;
        gather_rows(acc, s, c, values, list.keys, links, first, count, lid);
        SYNC;
    }
#endif
    output_block(acc, r, o + o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, count, lid);
    for (int i = lid; saved && i < count; i += WG)
        saved[saved_offset + (b * get_num_groups(1) + h) * n + row0 + i] = l[i] == 0.0f ? -INFINITY : m[i] + log2(l[i]);
}
