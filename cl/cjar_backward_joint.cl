// Gradients of cjar in one pass over the pairs, for devices of work-group 1: five products of BM queries and BN keys, and each
// link's rows read once.
//
//   cjar_backward_joint  a work-item owns one head of queries, of its blocks of BM queries every shares-th: memory, window and
//                        links one after another. It finishes the block's dQ, and adds to its part of dK and dV
//   cjar_backward_sum    dK and dV, each the sum of the parts: a work-item owns PW keys of one head
//
// parts [shares, B, H, 2, N + MEMORY, DP], dK and dV: each has one writer, which adds in one order: the same bits every time.
// cjar_backward_gather (cjar_backward.cl) adds up the memory's rows. dK is yet to be multiplied by the scale.
// Defines: attention_backward.h; WG = 1; BN a multiple of TM too; MEMORY >= 0; HAS_LINKS 0|1. D = DV.
#include "attention_backward.h"

// So few that what a block's rows name, of K and V and of both parts, stays in a CPU's second cache.
#define LINKS_AT_ONCE (BN < 16 ? BN : 16)
#include "cjar.h"

#if !defined(MEMORY) || !defined(HAS_LINKS) || WG != 1 || BN % TM != 0
#error "MEMORY, HAS_LINKS; WG = 1, BN a multiple of TM: see the head of cjar_backward_joint.cl"
#endif

#define HEAD (b * heads + h)
#define PART_ROWS ((long)n + MEMORY)

#if HAS_LINKS
// Rows that a list names += their weights times one row; one whose weight is 0 is not touched.
inline void scatter_row(__global float *rows_of, const float *weights, __global const int *list, const link_range links,
                        __global const float *row) {
    for (int column = 0; column < DP; column += GATHER_TILES * TN) {
        V x[GATHER_TILES * TNV];
        UNROLL for (int j = 0; j < GATHER_TILES * TNV; j++) { x[j] = RAW_LOAD(row + column + j * VW); }
        for (long e = links.begin; e < links.end; e++) {
            const float weight = weights[e - links.begin];
            if (weight == 0.0f)
                continue;
            __global float *to = rows_of + (long)list[e] * DP + column;
            UNROLL for (int j = 0; j < GATHER_TILES * TNV; j++) {
                RAW_STORE(fma((V)(weight), x[j], RAW_LOAD(to + j * VW)), to + j * VW);
            }
        }
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_backward_joint(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const STORAGE(TYPE_Q) *grad_o,
                    const long grad_o_offset, __global const float *k_panels, const long k_panels_offset,
                    __global const float *v_panels, const long v_panels_offset, __global const float *k_rows,
                    const long k_rows_offset, __global const float *v_rows, const long v_rows_offset,
                    __global const float *q_rows, const long q_rows_offset, __global const float *o_rows,
                    const long o_rows_offset, __global const float *memory_k_panels, const long memory_k_panels_offset,
                    __global const float *memory_v_panels, const long memory_v_panels_offset,
                    __global const float *memory_k_rows, const long memory_k_rows_offset,
                    __global const long *link_starts, const long link_starts_offset, __global const int *link_keys,
                    const long link_keys_offset, __global const float *terms_, const long terms_offset,
                    __global const int *lengths, const long lengths_offset, __global float *parts,
                    const long parts_offset, __global STORAGE(TYPE_O) *grad_q, const long grad_q_offset, const int n,
                    const float scale, const int left, const int right, const int causal, const long link_count,
                    const long q_batch, const long q_head, const long q_row, const long o_batch, const long o_head,
                    const long o_row, const long grad_batch, const long grad_head, const long grad_row) {
    float qs[BM * D] ALIGNED, os[BM * D] ALIGNED, p[BM * BN] ALIGNED, g[BM * BN] ALIGNED, l[BM], delta[BM];
    int2 visible[BM], visible_memory[BM], seen[BN];
    V acc[KEY_TILES_EACH][TM][TNV];
    const long share = get_group_id(0), shares = get_num_groups(0), h = get_group_id(1), b = get_group_id(2);
    const long heads = get_num_groups(1), batch = get_num_groups(2);
    const sequence seq = sequence_of(b, n, n, lengths, lengths_offset, lengths, lengths_offset, 0);
    const terms t = terms_of(terms_ + terms_offset, HEAD, n);
    const streamed other = {k_panels + k_panels_offset + HEAD * panels_size(n, D),
                            v_panels + v_panels_offset + HEAD * panels_size(n, D)};
    const streamed memory = {memory_k_panels + memory_k_panels_offset + h * panels_size(MEMORY, D),
                             memory_v_panels + memory_v_panels_offset + h * panels_size(MEMORY, D)};
    __global const float *rows_of_k = k_rows + k_rows_offset + HEAD * n * DP;
    __global float *part_k = parts + parts_offset + (share * batch * heads + HEAD) * 2 * PART_ROWS * DP;
    __global float *part_v = part_k + PART_ROWS * DP;

    for (long e = 0; e < 2 * PART_ROWS * DP; e++)
        part_k[e] = 0.0f;
    for (long first_row = share * BM; first_row < n; first_row += shares * BM) {
        const int row0 = first_row, count = min(BM, n - row0), real = min(count, seq.queries - row0);
        const owned own = {qs, os, l, delta, visible}, with_memory = {qs, os, l, delta, visible_memory};
        __global const float *own_q = q_rows + q_rows_offset + (HEAD * n + row0) * DP;
        __global const float *own_o = o_rows + o_rows_offset + (HEAD * n + row0) * DP;
        for (int i = 0; i < BM; i++) {
            visible[i] = visible_keys(seq, row0 + i, left, right);
            visible_memory[i] = row0 + i < seq.queries ? (int2)(0, MEMORY) : (int2)(0, 0);
            l[i] = i < count ? t.l[row0 + i] : INFINITY;
            delta[i] = i < count ? t.delta[row0 + i] : 0.0f;
        }
        own_rows(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, D, real, scale * LOG2E, 0);
        own_rows(os, grad_o + grad_o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, D, real, 1.0f, 0);
        clear_rows(acc, KEY_TILES_EACH);
        for (int first = 0; first < MEMORY; first += BN) {
            const int columns = min(BN, MEMORY - first);
            for (int j = 0; j < ROUND_UP(columns, TM); j++)
                seen[j] = (int2)(0, seq.queries);
            pair_block(p, g, with_memory, t, memory, NO_BIAS, first, columns, 0);
            product_block(acc, DP / TN, g, visible_memory, memory_k_rows + memory_k_rows_offset + (h * MEMORY + first) * DP,
                          first, columns, 0);
            add_columns(part_k + (n + first) * (long)DP, g, seen, own_q, DP, TN, row0, columns, count);
            add_columns(part_v + (n + first) * (long)DP, p, seen, own_o, DP, TN, row0, columns, count);
        }
        const int4 u = visible_union(visible, BM);
        for (int first = u.x / PW * PW; first < u.y; first += BN) {
            const int columns = min(BN, u.y - first);
            for (int j = 0; j < ROUND_UP(columns, TM); j++)
                seen[j] = visible_queries(seq, first + min(j, columns - 1), left, right);
            pair_block(p, g, own, t, other, NO_BIAS, first, columns, 0);
            product_block(acc, DP / TN, g, visible, rows_of_k + (long)first * DP, first, columns, 0);
            add_columns(part_k + (long)first * DP, g, seen, own_q, DP, TN, row0, columns, count);
            add_columns(part_v + (long)first * DP, p, seen, own_o, DP, TN, row0, columns, count);
        }
#if HAS_LINKS
        link_range links[BM];
        const link_list list = {link_starts + link_starts_offset, link_keys + link_keys_offset, link_count};
        __global const float *rows_of_v = v_rows + v_rows_offset + HEAD * n * DP;
        for (int i = 0; i < count; i++)
            links[i] = links_of(list, row0 + i, allowed_keys(seq, row0 + i, causal));
        const long most = most_links(links, count);
        for (long first = 0; first < most; first += LINKS_AT_ONCE) {
            for (int number = 0; number < count * LINK_GROUPS; number++) {
                const link_task task = link_task_of(links, first, number);
                if (!task.some)
                    continue;
                const int i = task.row, to = i * BN + task.at;
                const VI key = counted_keys(list, links[i], task.e, visible[i], allowed_keys(seq, row0 + i, causal));
                const V score = dot_rows(qs + i * D, rows_of_k, key), of_o = dot_rows(os + i * D, rows_of_v, key);
                const V x = SELECT((V)(0.0f), weights_of(score - l[i]), key >= 0);
                RAW_STORE(x, p + to);
                RAW_STORE(SELECT(x * (of_o - delta[i]), (V)(0.0f), x == 0.0f), g + to);
            }
            gather_rows(acc, g, NONE_OWNED, rows_of_k, list.keys, links, first, count, 0);
            for (int i = 0; i < count; i++) {
                const link_range chunk = link_chunk(links[i], first);
                scatter_row(part_k, g + i * BN, list.keys, chunk, own_q + i * DP);
                scatter_row(part_v, p + i * BN, list.keys, chunk, own_o + i * DP);
            }
        }
#endif
        store_rows(acc, DP / TN, scale, grad_q + grad_q_offset + b * grad_batch + h * grad_head + row0 * grad_row, grad_row,
                   D, count, 0);
    }
}

inline V sum_of_parts(__global const float *first, const long shares, const long step) {
    V sum = (V)(0.0f);
    for (long share = 0; share < shares; share++)
        sum += RAW_LOAD(first + share * step);
    return sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_backward_sum(__global const float *parts, const long parts_offset, __global STORAGE(TYPE_O) *grad_k,
                  const long grad_k_offset, __global STORAGE(TYPE_O) *grad_v, const long grad_v_offset, const int n,
                  const long shares, const float scale, const long k_batch, const long k_head, const long k_row,
                  const long v_batch, const long v_head, const long v_row) {
    const int first = get_group_id(0) * PW, last = min(first + PW, n);
    const long h = get_group_id(1), b = get_group_id(2), heads = get_num_groups(1);
    const long part_v = PART_ROWS * DP, step = get_num_groups(2) * heads * 2 * part_v;
    parts += parts_offset + HEAD * 2 * part_v;
    for (int j = first; j < last; j++) {
        for (int d = 0; d < D; d += VW) {
            __global const float *part = parts + (long)j * DP + d;
            store_some(grad_k + grad_k_offset + b * k_batch + h * k_head + j * k_row + d,
                       sum_of_parts(part, shares, step) * scale, D - d);
            store_some(grad_v + grad_v_offset + b * v_batch + h * v_head + j * v_row + d,
                       sum_of_parts(part + part_v, shares, step), D - d);
        }
    }
}
