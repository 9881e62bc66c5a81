/* aft's core, backwards: the maths is in cl/include/aft_backward.h. */
#ifndef CLATTN_VARIANT_AFT_BACKWARD_H
#define CLATTN_VARIANT_AFT_BACKWARD_H

#include "variant/aft.h"

/* Rows of a gradient, or of a weight; slot NONE: not wanted. */
typedef struct clattn__aft_table {
    clattn__operand at;
    int64_t rows, row; /* row: elements from row to row */
} clattn__aft_table;

/* Where gradients come from (y) and go to. q, k, v have the core's x_type, y its y_type, the others `type`; these are
 * added to where accumulate. k of CONV has one channel a head.
 * position     [heads]
 * w            [rows, rows], FULL and LOCAL without factors
 * left, right  [rows, rank], FULL and LOCAL where w is made of factors of `rank`; left_rows are those of the left factor, right_columns the
 *              right one transposed, rows of at least the length, in whole vectors; F32
 * taps         [heads, 2 reach + 1] of the taps themselves; with gamma.slot set, of what they were made of:
 *              raw_taps, raw_gamma, F32 */
typedef struct clattn__aft_gradients {
    clattn__aft_view y, q, k, v;
    clattn_type type;
    bool accumulate;
    int64_t rank;
    clattn__operand position;
    clattn__aft_table w, left, right, taps;
    clattn__aft_rows left_rows, right_columns;
    clattn__operand gamma, beta, raw_taps, raw_gamma;
} clattn__aft_gradients;

/* No gradient wanted yet. */
clattn__aft_gradients clattn__aft_gradients_none(clattn_type type, bool accumulate);

/* Append the stages; without tokens, those that write zeros. The core is the one of the forward pass: it left y (GATED)
 * and traces (modes that average). */
void clattn__aft_backward(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                          const clattn__aft_gradients *gradients);

#endif
