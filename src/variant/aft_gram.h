/* aft, not causal, by G = sum_j x_j x_j^T instead of K and V: cl/aft_gram.cl, aft_gram_channels.cl, aft_gram_mix.cl.
 * The products between these stages are linear layers: src/layer/aft_gram.c. */
#ifndef CLATTN_VARIANT_AFT_GRAM_H
#define CLATTN_VARIANT_AFT_GRAM_H

#include "variant/aft_backward_stages.h"

/* A float for each sequence and channel: `batch` floats from sequence to sequence. */
typedef struct clattn__aft_channels {
    clattn__operand at;
    int64_t batch;
} clattn__aft_channels;

/* What stands for K and V. weights [d + 1, d]: Wk and its bias, transposed; values, keys [batch, d + 1, d]: G times Wv and
 * its bias transposed, and the same for Wk, which backward alone reads; sums: sum_j K_j V_j, of GATED. */
typedef struct clattn__aft_kept {
    clattn__operand weights, values, keys;
    clattn__aft_channels sums;
} clattn__aft_kept;

/* Can this device sum G? */
bool clattn__aft_gram_possible(const clattn__target *target);

/* Channels and the rows of G; floats of a sequence's channels. */
clattn__aft_division clattn__aft_gram_divide(const clattn__aft *aft, const clattn__target *target);

/* to [batch, d + 1, d + 1] = G; x [batch, length, d] contiguous. */
void clattn__aft_gram(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft, clattn__operand x,
                      clattn_type x_type, clattn__operand to);

/* The rows of G as tokens, whose keys and values are these. */
clattn__aft clattn__aft_gram_rows(const clattn__aft *aft, clattn__operand weights, clattn__operand values);

/* kept->sums. */
void clattn__aft_form(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                      const clattn__aft_kept *kept);

/* y = gate * position * sums: the last stage of GATED, alone. */
void clattn__aft_gate(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                      const clattn__aft_channels *sums);

/* y of GATED_MATRIX. */
void clattn__aft_gram_matrix(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                             const clattn__aft_kept *kept);

/* ---- backward ---- */

/* GATED. Append dQ from the gradient of y, and what every key's gradient is made of: sum_i P_i. */
clattn__aft_channels clattn__aft_backward_gate(const clattn__aft_pass *p);

/* GATED. scaled [batch, d + 1, d] = weights times position times later; and the gradient of position. */
void clattn__aft_gram_scale(const clattn__aft_pass *p, const clattn__aft_kept *kept, const clattn__aft_channels *later,
                            clattn__operand scaled);

/* GATED_MATRIX. Append dQ, the gradient of position, and with R = position sum_i g_i dY_i^T of each head, [batch, d + 1, d]
 * each: key = values R^T and value = keys R, whose sums over sequences are the gradients of Wk and Wv; scaled = weights R. */
void clattn__aft_gram_matrix_backward(const clattn__aft_pass *p, const clattn__aft_kept *kept, clattn__operand key,
                                      clattn__operand value, clattn__operand scaled);

/* The gradient of a weight and its bias: products summed over sequences, times position times later where given. */
void clattn__aft_gram_weight(const clattn__aft_pass *p, clattn__operand products, const clattn__aft_channels *later,
                             clattn__operand dw, clattn__operand db);

/* to: rows of x, 1, `row` floats apart. */
void clattn__aft_gram_beside(const clattn__aft_pass *p, clattn__operand x, clattn_type x_type, clattn__operand to,
                             int64_t row);

/* The weight [2 d + 1 deep, d] of dx in each sequence, `to_batch` floats apart. */
void clattn__aft_gram_mix(const clattn__aft_pass *p, clattn__operand wq, clattn__operand half, clattn__operand to,
                          int64_t to_batch);

#endif
