/* The backward passes of the assa cores as stages of a plan. */
#ifndef CLATTN_VARIANT_ASSA_BACKWARD_H
#define CLATTN_VARIANT_ASSA_BACKWARD_H

#include "variant/assa.h"
#include "variant/attention_backward.h"

/* What every pair needs. q, k, v: rows, whole grids where there are windows.
 * sizes  as the forward core's: with windows a batch of windows, queries = keys = side * side
 * lse    [B, H, tokens], natural, written by forward
 * mix, table  what clattn__assa_mix and clattn__assa_table wrote; mix NONE: softmax alone */
typedef struct clattn__assa_pairs {
    clattn__sizes sizes;
    int64_t tokens; /* of a whole sequence */
    clattn__view q, k, v;
    clattn__operand lse, mix, table, key_lengths, query_lengths;
    float scale;
    int64_t right;
    bool bottom_right;
    clattn__assa_window window;
    clattn_type grad_type; /* of table and w */
    bool accumulate;
} clattn__assa_pairs;

/* grad_table, grad_mix: slot NONE where there are none. */
void clattn__assa_pairs_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                                 const clattn__core_gradients *gradients, clattn__operand grad_table,
                                 clattn__operand grad_mix);

/* What every visible pair gives q and k where top-k is normalised over all keys, in f32. sums [B, H, M]: of each query, over its
 * kept keys, P times dO . V. */
void clattn__assa_rest_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                                const clattn__core_gradients *gradients, clattn__operand sums);

/* indices, scores [B, H, M, k], contiguous, written by forward; pairs tells the rest (no windows, no mix). */
void clattn__assa_topk_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                                clattn__operand indices, clattn__operand scores, int64_t k, bool normalise_all,
                                const clattn__core_gradients *gradients);

/* The kept pairs of a head are counted in 32 bits, those of all heads (of all sequences) fit a plan. Errors:
 * UNSUPPORTED. */
clattn_status clattn__assa_backward_check(int64_t heads, int64_t queries, int64_t k, clattn__error *error);

/* Layouts of the gradients of a problem that trains, and of what backward reads of the caller's. Errors:
 * INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE, UNSUPPORTED. */
clattn_status clattn__assa_gradients_check(const clattn_assa_problem *problem, clattn__error *error);

/* clattn__variant.core_trains, core_backward */
bool clattn__assa_core_trains(const void *problem);
clattn_status clattn__assa_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                         clattn__error *error);

#endif
