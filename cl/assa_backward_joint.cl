// All gradients of parts whose keys fit one block, such as the usual windows, for devices of work-group 1: five products of BM
// queries and BN keys, where the kernels of assa_backward_pairs.cl take nine.
//
//   assa_backward_joint  terms, dQ, dK, dV, and the bias table's gradient in parts: a work-item owns a share of the parts of one head
//                        of keys
//
// Each gradient has one writer, which adds in one order: the same bits every time.
// Defines: assa_backward.h; WG = 1; FORM SOFTMAX or MIXED; keys <= BN.
#include "assa_backward.h"

#if WG != 1 || FORM == REST
#error "WG = 1, FORM SOFTMAX or MIXED: see the head of assa_backward_joint.cl"
#endif

#define KEY_TILES (KEY_ROWS * (DP / TN))
#define KEY_VALUE_TILES (KEY_ROWS * VALUE_COLUMNS)

// tables [H, shares, 2 side - 1, TABLE_LINE], NULL where no table is learnt. lse [B, H, tokens].
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
assa_backward_joint(SCENE_PARAMETERS, __global const float *lse, const long lse_offset, const long tokens,
                    __global const float *k_rows, const long k_rows_offset, __global float *tables,
                    const long tables_offset, GRADIENT_PARAMETERS(grad_q), GRADIENT_PARAMETERS(grad_k),
                    GRADIENT_PARAMETERS(grad_v), const long parts) {
    BLOCK(b);
    float sums[BM * 3];
    int2 seen[BN];
    V acc_q[KEY_TILES_EACH][TM][TNV], acc_k[KEY_TILES][TM][TNV], acc_v[KEY_VALUE_TILES][TM][TNV];
    const long share = get_group_id(0), shares = get_num_groups(0), kv = get_group_id(1), first_head = kv * heads_per_kv;
#if WINDOW
    const long table_size = (2 * side - 1) * TABLE_LINE(side);
    __global float *to = tables + tables_offset + share * table_size;
    for (long h = first_head; tables && h < first_head + heads_per_kv; h++)
        for (long e = h * shares * table_size; e < (h * shares + 1) * table_size; e++)
            to[e] = 0.0f;
    clear_gradients(b, 0);
#endif
    for (long part = parts * share / shares; part < parts * (share + 1) / shares; part++) {
        const long batch = part / WINDOWS;
        const window w = PLACE(part);
        const sequence seq = SCENE(first_head, part).seq;
        __global const float *rows_of_k = k_rows + k_rows_offset + KV_HEAD(first_head, part) * keys * DP;
        for (int j = 0; j < BN; j++) // keys behind the last are as the last
            seen[j] = visible_queries(seq, min(j, keys - 1), -1, right);
        clear_rows(acc_k, KEY_TILES);
        clear_rows(acc_v, KEY_VALUE_TILES);
        for (long h = first_head; h < first_head + heads_per_kv; h++) {
            const scene s = SCENE(h, part);
            for (int row0 = 0; row0 < queries; row0 += BM) {
                const int count = min(BM, queries - row0);
                load_rows(b, s, row0, count, 0);
                start_terms(b, s, sums, lse + lse_offset + (batch * heads + h) * tokens, row0, count, 0);
                score_rows(b, s, count, 0, keys, 0);
                sum_rows(b, s, sums, row0, count, 0, keys, 0);
                finish_terms(b, s, sums, 0, row0, count, 0);
                weigh_rows(b, s, row0, count, 0, keys, 1, 0);
                clear_rows(acc_q, KEY_TILES_EACH);
                product_block(acc_q, DP / TN, b.g, b.visible, rows_of_k, 0, keys, 0);
                store_tokens(acc_q, ROW_TILES, DP / TN, scale, grad_q + grad_q_offset + batch * grad_q_batch + h * grad_q_head,
                             grad_q_row, D, w, row0, count, 0);
                product_columns(acc_k, DP / TN, b.g, seen, s.q + (long)row0 * DP, row0, count, keys, 0);
                product_columns(acc_v, VALUE_COLUMNS, b.s, seen, s.o + (long)row0 * DVP, row0, count, keys, 0);
#if WINDOW
                if (tables)
                    table_rows(to + h * shares * table_size, b.g, side, row0, count, 0, keys, 0);
#endif
            }
        }
        store_tokens(acc_k, KEY_ROWS, DP / TN, scale, grad_k + grad_k_offset + batch * grad_k_batch + kv * grad_k_head,
                     grad_k_row, D, w, 0, keys, 0);
        store_tokens(acc_v, KEY_ROWS, VALUE_COLUMNS, 1.0f, grad_v + grad_v_offset + batch * grad_v_batch + kv * grad_v_head,
                     grad_v_row, DV, w, 0, keys, 0);
    }
}
