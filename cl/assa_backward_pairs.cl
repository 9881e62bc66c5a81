// Gradients that every visible pair has a part in; the steps are those of assa_backward.h.
//
//   assa_backward_pairs_sums     a query's terms: a work-group owns BM queries of one head and streams the keys
//   assa_backward_pairs_queries  dQ, and the bias table's gradient in parts: a work-group owns a share of the blocks of BM queries of
//                                one head, of all sequences or windows, and streams the keys
//   assa_backward_pairs_keys     dK and dV: a work-group owns BN keys of one head of keys and streams the queries of the heads
//                                that share it
//   assa_backward_pairs_table    the bias table: a work-item owns an entry of a head and sums the parts
//   assa_backward_pairs_mix      w, through its softmax: one work-item
//
// Each gradient has one writer, which adds in one order: the same bits every time.
// Defines and local memory: assa_backward.h; table and mix: TYPE_G storage of their gradients.
#include "assa_backward.h"

#ifndef TYPE_G
#error "TYPE_G: see the head of assa_backward_pairs.cl"
#endif

// lse, chosen (REST: what assa_backward_weights summed): [B, H, tokens].
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
assa_backward_pairs_sums(SCENE_PARAMETERS, __global const float *lse, const long lse_offset,
                         __global const float *chosen, const long chosen_offset, const long tokens) {
    BLOCK(b);
    SHARED float sums[BM * ROW_ITEMS * 3];
    const int lid = get_local_id(0), row0 = get_group_id(0) * BM, count = min(BM, queries - row0);
    const long h = get_group_id(1), part = get_group_id(2), head = (part / WINDOWS * heads + h) * tokens;
    const scene s = SCENE(h, part);
    load_rows(b, s, row0, count, lid);
    start_terms(b, s, sums, lse + lse_offset + head, row0, count, lid);
    SYNC;
    const int4 u = visible_union(b.visible, BM);
    for (int first = u.x / PW * PW; first < u.y; first += BN) {
        const int columns = min(BN, u.y - first);
        score_rows(b, s, count, first, columns, lid);
        SYNC;
        sum_rows(b, s, sums, row0, count, first, columns, lid);
        SYNC;
    }
    finish_terms(b, s, sums, chosen + chosen_offset + head, row0, count, lid);
}

// tables [H, shares, 2 side - 1, TABLE_LINE], NULL where no table is learnt.
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
assa_backward_pairs_queries(SCENE_PARAMETERS, __global const float *k_rows, const long k_rows_offset,
                            __global float *tables, const long tables_offset, GRADIENT_PARAMETERS(grad_q),
                            const long parts) {
    BLOCK(b);
    V acc[KEY_TILES_EACH][TM][TNV];
    const int lid = get_local_id(0);
    const long share = get_group_id(0), shares = get_num_groups(0), h = get_group_id(1);
    const long blocks = CEIL_DIV(queries, BM), tasks = parts * blocks;
#if WINDOW
    const long table_size = (2 * side - 1) * TABLE_LINE(side);
    __global float *to = tables + tables_offset + (h * shares + share) * table_size;
    for (long e = lid; tables && e < table_size; e += WG)
        to[e] = 0.0f;
    clear_gradients(b, lid);
#endif
    SYNC_GLOBAL;
    for (long task = tasks * share / shares; task < tasks * (share + 1) / shares; task++) {
        const long part = task / blocks;
        const int row0 = task % blocks * BM, count = min(BM, queries - row0);
        const scene s = SCENE(h, part);
        load_rows(b, s, row0, count, lid);
        load_terms(b, s, row0, count, lid);
        clear_rows(acc, KEY_TILES_EACH);
        SYNC;
        const int4 u = visible_union(b.visible, BM);
        __global const float *rows_of_k = k_rows + k_rows_offset + KV_HEAD(h, part) * keys * DP;
        for (int first = u.x / PW * PW; first < u.y; first += BN) {
            const int columns = min(BN, u.y - first);
            score_rows(b, s, count, first, columns, lid);
            SYNC;
            weigh_rows(b, s, row0, count, first, columns, 0, lid);
            SYNC;
            product_block(acc, DP / TN, b.g, b.visible, rows_of_k + (long)first * DP, first, columns, lid);
#if WINDOW
            if (tables)
                table_rows(to, b.g, side, row0, count, first, columns, lid);
            SYNC_GLOBAL;
#else
            SYNC;
#endif
        }
        store_tokens(acc, ROW_TILES, DP / TN, scale, grad_q + grad_q_offset + part / WINDOWS * grad_q_batch + h * grad_q_head,
                     grad_q_row, D, s.w, row0, count, lid);
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
assa_backward_pairs_keys(SCENE_PARAMETERS, GRADIENT_PARAMETERS(grad_k), GRADIENT_PARAMETERS(grad_v)) {
    BLOCK(b);
    SHARED int2 seen[BN]; // queries that each key has; keys behind the last are as the last
    V acc_k[CEIL_DIV(KEY_ROWS * (DP / TN), WG)][TM][TNV];
#if FORM != REST
    V acc_v[CEIL_DIV(KEY_ROWS * VALUE_COLUMNS, WG)][TM][TNV];
    clear_rows(acc_v, CEIL_DIV(KEY_ROWS * VALUE_COLUMNS, WG));
#endif
    clear_rows(acc_k, CEIL_DIV(KEY_ROWS * (DP / TN), WG));
    const int lid = get_local_id(0), first = get_group_id(0) * BN, columns = min(BN, keys - first);
    const long kv = get_group_id(1), part = get_group_id(2), batch = part / WINDOWS;
    const window w = PLACE(part);
    const sequence seq = SCENE(kv * heads_per_kv, part).seq;
    for (int j = lid; j < BN; j += WG)
        seen[j] = visible_queries(seq, first + min(j, columns - 1), -1, right);
    SYNC;
    const int4 u = visible_union(seen, BN);
    for (long h = kv * heads_per_kv; h < (kv + 1) * heads_per_kv; h++) {
        const scene s = SCENE(h, part);
        for (int row0 = u.x / BM * BM; row0 < u.y; row0 += BM) {
            const int count = min(BM, queries - row0);
            load_rows(b, s, row0, count, lid);
            load_terms(b, s, row0, count, lid);
            SYNC;
            score_rows(b, s, count, first, columns, lid);
            SYNC;
            weigh_rows(b, s, row0, count, first, columns, 0, lid);
            SYNC;
            product_columns(acc_k, DP / TN, b.g, seen, s.q + (long)row0 * DP, row0, count, columns, lid);
#if FORM != REST
            product_columns(acc_v, VALUE_COLUMNS, b.s, seen, s.o + (long)row0 * DVP, row0, count, columns, lid);
#endif
            SYNC;
        }
    }
    store_tokens(acc_k, KEY_ROWS, DP / TN, scale, grad_k + grad_k_offset + batch * grad_k_batch + kv * grad_k_head, grad_k_row,
                 D, w, first, columns, lid);
#if FORM != REST
    store_tokens(acc_v, KEY_ROWS, VALUE_COLUMNS, 1.0f, grad_v + grad_v_offset + batch * grad_v_batch + kv * grad_v_head,
                 grad_v_row, DV, w, first, columns, lid);
#endif
}

#if WINDOW
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_table(__global const float *tables, const long tables_offset, __global STORAGE(TYPE_G) *grad,
                          const long grad_offset, const int side, const long shares, const int add) {
    const int line = 2 * side - 1, entry = get_group_id(0), y = entry / line, x = entry % line;
    const long h = get_group_id(1), heads = get_num_groups(1), at = grad_offset + (long)entry * heads + h;
    const long size = line * TABLE_LINE(side);
    tables += tables_offset + h * shares * size + y * TABLE_LINE(side) + line - 1 - x;
    float total = 0.0f;
    for (long share = 0; share < shares; share++)
        total += tables[share * size];
    STORE(TYPE_G, grad, at, add ? LOAD(TYPE_G, grad, at) + total : total);
}
#endif

// terms: of all `count` queries; mix: as assa_mix wrote it.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_pairs_mix(__global const float *terms, const long terms_offset, __global const float *mix,
                        const long mix_offset, __global STORAGE(TYPE_G) *grad, const long grad_offset,
                        const long count, const int add) {
    float2 sum = (float2)(0.0f), lost = (float2)(0.0f);
    for (long i = 0; i < count; i++) { // the rounding error is carried along
        const float4 t = vload4(i, terms + terms_offset);
        const float2 x = t.yw - lost, now = sum + x;
        lost = (now - sum) - x;
        sum = now;
    }
    const float2 both = (float2)(mix[mix_offset], mix[mix_offset + 1] * (LOG2E * LOG2E));
    const float2 g = both * (sum - (both.x * sum.x + both.y * sum.y));
    for (int t = 0; t < 2; t++) {
        const float x = t == 0 ? g.x : g.y;
        STORE(TYPE_G, grad, grad_offset + t, add ? LOAD(TYPE_G, grad, grad_offset + t) + x : x);
    }
}
