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

/* Can this device sum G? */
bool clattn__aft_gram_possible(const clattn__target *target);

/* Channels and the rows of G; floats of a sequence's channels. */
clattn__aft_division clattn__aft_gram_divide(const clattn__aft *aft, const clattn__target *target);

/* to [batch, d + 1, d + 1] = G; x [batch, length, d] contiguous. */
void clattn__aft_gram(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft, clattn__operand x,
                      clattn_type x_type, clattn__operand to);

/* sums = sum_j K_j V_j; keys [d + 1, d]: Wk and its bias, transposed; values [batch, d + 1, d]: G [Wv, bias]^T. */
void clattn__aft_form(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft, clattn__operand keys,
                      clattn__operand values, const clattn__aft_channels *sums);

/* y = gate * position * sums: the last stage of GATED, alone. */
void clattn__aft_gate(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                      const clattn__aft_channels *sums);

/* ---- backward ---- */

/* Append dQ from the gradient of y, and what every key's gradient is made of: sum_i P_i. */
clattn__aft_channels clattn__aft_backward_gate(const clattn__aft_pass *p);

/* to [batch, d + 1, d] = keys times position times later; and the gradient of position. */
void clattn__aft_gram_scale(const clattn__aft_pass *p, clattn__operand keys, const clattn__aft_channels *later,
                            const clattn__aft_channels *sums, clattn__operand to);

/* The gradient of a weight and its bias from G [the other weight, its bias]^T. */
void clattn__aft_gram_weight(const clattn__aft_pass *p, clattn__operand products, const clattn__aft_channels *later,
                             clattn__operand dw, clattn__operand db);

/* to: rows of x, 1, `row` floats apart. */
void clattn__aft_gram_beside(const clattn__aft_pass *p, clattn__operand x, clattn_type x_type, clattn__operand to,
                             int64_t row);

/* The weight [2 d + 1 deep, d] of dx in each sequence, `to_batch` floats apart. */
void clattn__aft_gram_mix(const clattn__aft_pass *p, clattn__operand wq, clattn__operand half, clattn__operand to,
                          int64_t to_batch);

#endif
