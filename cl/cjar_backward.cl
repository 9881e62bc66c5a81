// Gradients of cjar; the steps are those of attention_backward.h.
//
//   cjar_backward_queries  dQ: a work-group owns BM queries of one head; memory, window and links one after another
//   cjar_backward_keys     dK and dV: a work-group owns BM keys of one head; the queries of their windows, then those linked
//                          to them, from the list by key (cjar_links.cl)
//   cjar_backward_memory   dK and dV of BM memory rows from SPAN queries of one head of one sequence: a part
//   cjar_backward_gather   the sum of the parts: a work-item owns one memory row of one head
//
// MULTIPLY: a key that is hidden from query i has the constant weight z_i = 2^-L_i, so that it takes z_i dO_i and gives nothing
// to dQ and dK. For each key these are running sums of z_i dO_i over what may see it, less its window, less its links.
//   cjar_backward_zeros    z of each query, 0 where nothing is hidden: a work-item owns PW queries of one head
//   cjar_backward_prefix   the running sums: a work-item owns VW columns of one head
//
// Defines and local memory: attention_backward.h, plus 6*BM ints; MEMORY >= 0; HAS_LINKS, MULTIPLY 0|1; SPAN a multiple of PW.
// D = DV.
#include "attention_backward.h"
#include "cjar.h"

#if !defined(MEMORY) || !defined(HAS_LINKS) || !defined(MULTIPLY) || !defined(SPAN)
#error "MEMORY, HAS_LINKS, MULTIPLY, SPAN: see the head of cjar_backward.cl"
#endif

#define SEQUENCE sequence_of(b, n, n, lengths, lengths_offset, lengths, lengths_offset, 0)
#define HEAD (b * get_num_groups(1) + h)

#if HAS_LINKS
// P and G of links e .. e + VW of an owned row whose dot products are s and d; 0 where number is -1.
inline void link_pairs(SHARED float *p, SHARED float *g, const V s, const V d, const V l, const V delta, const VI number) {
    const V x = SELECT((V)(0.0f), EXP2(s - l), number >= 0);
    if (p)
        RAW_STORE(x, p);
    RAW_STORE(SELECT(x * (d - delta), (V)(0.0f), x == 0.0f), g);
}

// Numbers at places of a list that is read lane by lane; 0 where the place is -1.
inline V float_lanes(__global const float *x, const VI place) {
    int at[VW];
    float lane[VW];
    RAW_STORE(place, at);
    UNROLL for (int u = 0; u < VW; u++) lane[u] = at[u] < 0 ? 0.0f : x[at[u]];
    return RAW_LOAD(lane);
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cjar_backward_queries(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const STORAGE(TYPE_Q) *grad_o,
                      const long grad_o_offset, __global const float *k_panels, const long k_panels_offset,
                      __global const float *v_panels, const long v_panels_offset, __global const float *k_rows,
                      const long k_rows_offset, __global const float *v_rows, const long v_rows_offset,
                      __global const float *memory_k_panels, const long memory_k_panels_offset,
                      __global const float *memory_v_panels, const long memory_v_panels_offset,
                      __global const float *memory_k_rows, const long memory_k_rows_offset,
                      __global const long *link_starts, const long link_starts_offset, __global const int *link_keys,
                      const long link_keys_offset, __global const float *terms_, const long terms_offset,
                      __global const int *lengths, const long lengths_offset, __global STORAGE(TYPE_O) *grad_q,
                      const long grad_q_offset, const int n, const float scale, const int left, const int right,
                      const int causal, const long link_count, const long q_batch, const long q_head, const long q_row,
                      const long o_batch, const long o_head, const long o_row, const long grad_batch,
                      const long grad_head, const long grad_row) {
    SHARED float qs[BM * D] ALIGNED, os[BM * D] ALIGNED, g[BM * SLD] ALIGNED, l[BM], delta[BM];
    SHARED int2 visible[BM], visible_memory[BM];
    V acc[KEY_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, n - row0);
    const long h = get_group_id(1), b = get_group_id(2);
    const sequence seq = SEQUENCE;
    const terms t = terms_of(terms_ + terms_offset, HEAD, n);
    const int real = min(count, seq.queries - row0);

    for (int i = lid; i < BM; i += WG) {
        visible[i] = visible_keys(seq, row0 + i, left, right);
        visible_memory[i] = row0 + i < seq.queries ? (int2)(0, MEMORY) : (int2)(0, 0);
        l[i] = i < count ? t.l[row0 + i] : INFINITY;
        delta[i] = i < count ? t.delta[row0 + i] : 0.0f;
    }
    own_rows(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, D, real, scale * LOG2E, lid);
    own_rows(os, grad_o + grad_o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, D, real, 1.0f, lid);
    clear_rows(acc, KEY_TILES_EACH);
    SYNC;

#if MEMORY > 0
    const owned with_memory = {qs, os, l, delta, visible_memory};
    const streamed memory = {memory_k_panels + memory_k_panels_offset + h * panels_size(MEMORY, D),
                             memory_v_panels + memory_v_panels_offset + h * panels_size(MEMORY, D)};
    for (int first = 0; first < MEMORY; first += BN) {
        const int columns = min(BN, MEMORY - first);
        pair_block((SHARED float *)0, g, with_memory, t, memory, NO_BIAS, first, columns, lid);
        SYNC;
        product_block(acc, DP / TN, g, visible_memory,
                      memory_k_rows + memory_k_rows_offset + (h * MEMORY + first) * DP, first, columns, lid);
        SYNC;
    }
#endif
    const owned own = {qs, os, l, delta, visible};
    const streamed other = {k_panels + k_panels_offset + HEAD * panels_size(n, D),
                            v_panels + v_panels_offset + HEAD * panels_size(n, D)};
    __global const float *rows_of_k = k_rows + k_rows_offset + HEAD * n * DP;
    const int4 u = visible_union(visible, BM);
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        pair_block((SHARED float *)0, g, own, t, other, NO_BIAS, first, columns, lid);
        SYNC;
        product_block(acc, DP / TN, g, visible, rows_of_k + (long)first * DP, first, columns, lid);
        SYNC;
    }
#if HAS_LINKS
    SHARED link_range links[BM];
    const link_list list = {link_starts + link_starts_offset, link_keys + link_keys_offset, link_count};
    __global const float *rows_of_v = v_rows + v_rows_offset + HEAD * n * DP;
    for (int i = lid; i < count; i += WG)
        links[i] = links_of(list, row0 + i, allowed_keys(seq, row0 + i, causal));
    SYNC;
    const long most = most_links(links, count);
    for (long first = 0; first < most; first += LINKS_AT_ONCE) {
        for (int number = lid; number < count * LINK_GROUPS; number += WG) {
            const link_task task = link_task_of(links, first, number);
            if (!task.some)
                continue;
            const int i = task.row, to = i * SLD + task.at;
            const VI key = counted_keys(list, links[i], task.e, visible[i], allowed_keys(seq, row0 + i, causal));
            const V score = dot_rows(qs + i * D, rows_of_k, key), of_o = dot_rows(os + i * D, rows_of_v, key);
            link_pairs((SHARED float *)0, g + to, score, of_o, (V)(l[i]), (V)(delta[i]), key);
        }
        SYNC;
        gather_rows(acc, g, (SHARED const float *)0, rows_of_k, list.keys, links, first, count, lid);
        SYNC;
    }
#endif
    store_rows(acc, DP / TN, scale, grad_q + grad_q_offset + b * grad_batch + h * grad_head + row0 * grad_row, grad_row, D,
               count, lid);
}

#if HAS_LINKS
// Queries linked to key j that may see it at all, in the list by key.
inline link_range queries_of(__global const int *by_key, __global const int *linked, const int j, const sequence seq,
                             const int causal) {
    link_range r = {by_key[j], j < seq.keys ? by_key[j + 1] : by_key[j]};
    if (causal)
        r.begin = first_at_least(linked, r, j);
    r.end = first_at_least(linked, r, seq.queries);
    return r;
}
#endif

#if MULTIPLY
// What the keys of a micro-tile take from the queries that they are hidden from, links not yet excepted.
inline void hidden_values(V (*acc)[TM][TNV], __global const float *sums, SHARED const int2 *visible, const sequence seq,
                          const int row0, const int count, const int causal, const int lid) {
    UNROLL_GPU for (int t = 0; t < KEY_TILES_EACH; t++) {
        const int tile = t * WG + lid, mi = TILE_ROW(tile, ROW_TILES, DP / TN) * TM;
        const int column = TILE_COLUMN(tile, ROW_TILES, DP / TN) * TN;
        UNROLL_GPU for (int i = 0; i < TM; i++) {
            if (tile >= ROW_TILES * (DP / TN) || mi + i >= count || row0 + mi + i >= seq.keys)
                continue;
            const int2 window = visible[mi + i];
            __global const float *end = sums + (long)seq.queries * DP + column, *hi = sums + (long)window.y * DP + column,
                                 *lo = sums + (long)window.x * DP + column,
                                 *begin = sums + (causal ? (long)(row0 + mi + i) * DP : 0L) + column;
            UNROLL for (int j = 0; j < TNV; j++) {
                acc[t][i][j] = (RAW_LOAD(end + j * VW) - RAW_LOAD(hi + j * VW)) +
                               (RAW_LOAD(lo + j * VW) - RAW_LOAD(begin + j * VW));
            }
        }
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cjar_backward_keys(__global const STORAGE(TYPE_Q) *k, const long k_offset, __global const STORAGE(TYPE_Q) *v,
                   const long v_offset, __global const float *q_panels, const long q_panels_offset,
                   __global const float *o_panels, const long o_panels_offset, __global const float *q_rows,
                   const long q_rows_offset, __global const float *o_rows, const long o_rows_offset,
                   __global const float *sums, const long sums_offset, __global const float *zeros,
                   const long zeros_offset, __global const int *by_key, const long by_key_offset,
                   __global const int *linked, const long linked_offset, __global const float *terms_,
                   const long terms_offset, __global const int *lengths, const long lengths_offset,
                   __global STORAGE(TYPE_O) *grad_k, const long grad_k_offset, __global STORAGE(TYPE_O) *grad_v,
                   const long grad_v_offset, const int n, const float scale, const int left, const int right,
                   const int causal, const long k_batch, const long k_head, const long k_row, const long v_batch,
                   const long v_head, const long v_row, const long grad_k_batch, const long grad_k_head,
                   const long grad_k_row, const long grad_v_batch, const long grad_v_head, const long grad_v_row) {
    SHARED float ks[BM * D] ALIGNED, vs[BM * D] ALIGNED, p[BM * SLD] ALIGNED, g[BM * SLD] ALIGNED;
    SHARED int2 visible[BM];
    V acc_k[KEY_TILES_EACH][TM][TNV], acc_v[KEY_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, n - row0);
    const long h = get_group_id(1), b = get_group_id(2);
    const sequence seq = SEQUENCE;
    const terms t = terms_of(terms_ + terms_offset, HEAD, n);
    const int real = min(count, seq.keys - row0);

    for (int i = lid; i < BM; i += WG)
        visible[i] = visible_queries(seq, row0 + i, left, right);
    own_rows(ks, k + k_offset + b * k_batch + h * k_head + row0 * k_row, k_row, D, real, 1.0f, lid);
    own_rows(vs, v + v_offset + b * v_batch + h * v_head + row0 * v_row, v_row, D, real, 1.0f, lid);
    clear_rows(acc_k, KEY_TILES_EACH);
    clear_rows(acc_v, KEY_TILES_EACH);
    SYNC;

#if MULTIPLY
    hidden_values(acc_v, sums + sums_offset + HEAD * (n + 1) * DP, visible, seq, row0, count, causal, lid);
#endif
    const owned own = {ks, vs, NONE_OWNED, NONE_OWNED, visible};
    const streamed other = {q_panels + q_panels_offset + HEAD * panels_size(n, D),
                            o_panels + o_panels_offset + HEAD * panels_size(n, D)};
    __global const float *rows_of_q = q_rows + q_rows_offset + HEAD * n * DP;
    __global const float *rows_of_o = o_rows + o_rows_offset + HEAD * n * DP;
    const int4 u = visible_union(visible, BM);
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        pair_block(p, g, own, t, other, NO_BIAS, first, columns, lid);
        SYNC;
        product_block(acc_v, DP / TN, p, visible, rows_of_o + (long)first * DP, first, columns, lid);
        product_block(acc_k, DP / TN, g, visible, rows_of_q + (long)first * DP, first, columns, lid);
        SYNC;
    }
#if HAS_LINKS
    SHARED link_range links[BM];
    linked += linked_offset;
    for (int i = lid; i < count; i += WG)
        links[i] = queries_of(by_key + by_key_offset, linked, row0 + i, seq, causal);
    SYNC;
    const long most = most_links(links, count);
    for (long first = 0; first < most; first += LINKS_AT_ONCE) {
        for (int number = lid; number < count * LINK_GROUPS; number += WG) {
            const link_task task = link_task_of(links, first, number);
            if (!task.some)
                continue;
            const int i = task.row, to = i * SLD + task.at;
            VI query = list_lanes(linked, task.e, links[i]);
            query = SELECT(query, (VI)(-1), query >= visible[i].x && query < visible[i].y);
            const V score = dot_rows(ks + i * D, rows_of_q, query) * (scale * LOG2E);
            const V of_o = dot_rows(vs + i * D, rows_of_o, query);
            link_pairs(p + to, g + to, score, of_o, float_lanes(t.l, query), float_lanes(t.delta, query), query);
#if MULTIPLY
            RAW_STORE(RAW_LOAD(p + to) - float_lanes(zeros + zeros_offset + HEAD * n, query), p + to);
#endif
        }
        SYNC;
        gather_rows(acc_v, p, (SHARED const float *)0, rows_of_o, linked, links, first, count, lid);
        gather_rows(acc_k, g, (SHARED const float *)0, rows_of_q, linked, links, first, count, lid);
        SYNC;
    }
#endif
    store_rows(acc_k, DP / TN, scale, grad_k + grad_k_offset + b * grad_k_batch + h * grad_k_head + row0 * grad_k_row,
               grad_k_row, D, count, lid);
    store_rows(acc_v, DP / TN, 1.0f, grad_v + grad_v_offset + b * grad_v_batch + h * grad_v_head + row0 * grad_v_row,
               grad_v_row, D, count, lid);
}

#if MULTIPLY
// zeros [B, H, n]
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_backward_zeros(__global const float *terms_, const long terms_offset, __global const long *link_starts,
                    const long link_starts_offset, __global const int *link_keys, const long link_keys_offset,
                    __global const int *lengths, const long lengths_offset, __global float *zeros,
                    const long zeros_offset, const int n, const int left, const int right, const int causal,
                    const long link_count) {
    const long h = get_group_id(1), b = get_group_id(2);
    const int first = get_group_id(0) * PW;
    const sequence seq = SEQUENCE;
    const terms t = terms_of(terms_ + terms_offset, HEAD, n);
    for (int i = first; i < min(first + PW, n); i++) {
        const int allowed = allowed_keys(seq, i, causal);
        const int2 window = visible_keys(seq, i, left, right);
        int hidden = allowed - (window.y - window.x);
#if HAS_LINKS
        const link_list list = {link_starts + link_starts_offset, link_keys + link_keys_offset, link_count};
        const link_range links = links_of(list, i, allowed);
        for (long e = links.begin; e < links.end; e++)
            hidden -= link_counts(list, links, e, window, allowed);
#endif
        zeros[zeros_offset + HEAD * n + i] = hidden > 0 ? EXP2(-t.l[i]) : 0.0f;
    }
}

// sums[i] = z[0] dO[0] + ... + z[i-1] dO[i-1] of one head, i = 0 ... its length. The rounding error of each step is carried
// along, so that differences of far sums stay exact to float32.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_backward_prefix(__global const float *o_rows, const long o_rows_offset, __global const float *zeros,
                     const long zeros_offset, __global float *sums, const long sums_offset, __global const int *lengths,
                     const long lengths_offset, const int n) {
    const long h = get_group_id(1), b = get_group_id(2), column = get_group_id(0) * VW;
    const sequence seq = SEQUENCE;
    __global const float *rows_of_o = o_rows + o_rows_offset + HEAD * n * DP + column;
    __global const float *z = zeros + zeros_offset + HEAD * n;
    __global float *to = sums + sums_offset + HEAD * (n + 1) * DP + column;
    V sum = (V)(0.0f), lost = (V)(0.0f);
    RAW_STORE(sum, to);
    for (long i = 0; i < seq.queries; i++) {
        const V x = (z[i] == 0.0f ? (V)(0.0f) : z[i] * RAW_LOAD(rows_of_o + i * DP)) - lost, next = sum + x;
        lost = (next - sum) - x;
        sum = next;
        RAW_STORE(sum, to + (i + 1) * DP);
    }
}
#endif

#if MEMORY > 0
// parts [B, ceil(n / SPAN), H, MEMORY, 2, D]: dK, yet to be multiplied by the scale, dV.
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
cjar_backward_memory(__global const float *k_rows, const long k_rows_offset, __global const float *v_rows,
                     const long v_rows_offset, __global const float *q_panels, const long q_panels_offset,
                     __global const float *o_panels, const long o_panels_offset, __global const float *q_rows,
                     const long q_rows_offset, __global const float *o_rows, const long o_rows_offset,
                     __global const float *terms_, const long terms_offset, __global const int *lengths,
                     const long lengths_offset, __global float *parts, const long parts_offset, const int n) {
    SHARED float ks[BM * D] ALIGNED, vs[BM * D] ALIGNED, p[BM * SLD] ALIGNED, g[BM * SLD] ALIGNED;
    SHARED int2 visible[BM];
    V acc_k[KEY_TILES_EACH][TM][TNV], acc_v[KEY_TILES_EACH][TM][TNV];
    const int blocks = CEIL_DIV(MEMORY, BM), lid = get_local_id(0), row0 = get_group_id(0) % blocks * BM;
    const int part = get_group_id(0) / blocks, count = min(BM, MEMORY - row0);
    const long h = get_group_id(1), b = get_group_id(2), spans = get_num_groups(0) / blocks;
    const sequence seq = SEQUENCE;
    const terms t = terms_of(terms_ + terms_offset, HEAD, n);
    const int begin = part * SPAN, end = min(begin + SPAN, seq.queries);

    for (int i = lid; i < BM; i += WG)
        visible[i] = i < count && begin < end ? (int2)(begin, end) : (int2)(0, 0);
    own_rows(ks, k_rows + k_rows_offset + (h * MEMORY + row0) * DP, DP, D, count, 1.0f, lid);
    own_rows(vs, v_rows + v_rows_offset + (h * MEMORY + row0) * DP, DP, D, count, 1.0f, lid);
    clear_rows(acc_k, KEY_TILES_EACH);
    clear_rows(acc_v, KEY_TILES_EACH);
    SYNC;

    const owned own = {ks, vs, NONE_OWNED, NONE_OWNED, visible};
    const streamed other = {q_panels + q_panels_offset + HEAD * panels_size(n, D),
                            o_panels + o_panels_offset + HEAD * panels_size(n, D)};
    for (int first = begin; first < end; first += BN) {
        const int columns = min(BN, end - first);
        pair_block(p, g, own, t, other, NO_BIAS, first, columns, lid);
        SYNC;
        product_block(acc_v, DP / TN, p, visible, o_rows + o_rows_offset + (HEAD * n + first) * DP, first, columns, lid);
        product_block(acc_k, DP / TN, g, visible, q_rows + q_rows_offset + (HEAD * n + first) * DP, first, columns, lid);
        SYNC;
    }
    parts += parts_offset + (((b * spans + part) * get_num_groups(1) + h) * MEMORY + row0) * 2 * D;
    store_rows(acc_k, DP / TN, 1.0f, parts, 2 * D, D, count, lid);
    store_rows(acc_v, DP / TN, 1.0f, parts + D, 2 * D, D, count, lid);
}

// parts: dK of `count` parts, `step` floats apart, dV `second` floats behind. One output takes both sums where keys and values are
// one memory: grad_v is NULL.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_backward_gather(__global const float *parts, const long parts_offset, __global STORAGE(TYPE_O) *grad_k,
                     const long grad_k_offset, __global STORAGE(TYPE_O) *grad_v, const long grad_v_offset,
                     const long count, const long step, const long part_head, const long part_row, const long second,
                     const float scale, const int add, const long k_head, const long k_row, const long v_head,
                     const long v_row) {
    const long row = get_global_id(0), h = get_global_id(1);
    const long to_k = grad_k_offset + h * k_head + row * k_row, to_v = grad_v_offset + h * v_head + row * v_row;
    parts += parts_offset + h * part_head + row * part_row;
    for (int c = 0; c < D; c++) {
        float of_k = 0.0f, of_v = 0.0f;
        for (long part = 0; part < count; part++) {
            of_k += parts[part * step + c];
            of_v += parts[part * step + second + c];
        }
        of_k = add ? fma(of_k, scale, LOAD(TYPE_O, grad_k, to_k + c)) : of_k * scale;
        if (add && grad_v)
            of_v += LOAD(TYPE_O, grad_v, to_v + c);
        STORE(TYPE_O, grad_k, to_k + c, grad_v ? of_k : of_k + of_v);
        if (grad_v)
            STORE(TYPE_O, grad_v, to_v + c, of_v);
    }
}
#endif
