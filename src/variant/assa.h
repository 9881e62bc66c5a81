/* The assa cores as stages of a plan; layers give operands of their own. */
#ifndef CLATTN_VARIANT_ASSA_H
#define CLATTN_VARIANT_ASSA_H

#include <clattn/assa.h>

#include "variant/attention.h"

/* A validated top-k core. Slot NONE for what is absent.
 * k      at least 1
 * right  0: causal, -1: all keys */
typedef struct clattn__assa_topk {
    clattn__sizes sizes;
    clattn__view q, o;
    clattn__packed packed;
    clattn__operand indices, scores, lse, key_lengths, query_lengths;
    int64_t indices_stride[3], scores_stride[3], lse_stride[3];
    float scale;
    int64_t k, right;
    bool bottom_right, normalise_all;
} clattn__assa_topk;

void clattn__assa_topk_append(clattn__plan *plan, const clattn__target *target, const clattn__assa_topk *topk);

/* Windows of a grid. side 0: none. */
typedef struct clattn__assa_window {
    int64_t side, rows, columns, shift;
} clattn__assa_window;

/* A validated adaptive core. With windows the sizes' batch counts windows, queries = keys = side * side, and q and o
 * are views of whole sequences.
 * mix, table  what clattn__assa_mix and clattn__assa_table wrote; mix NONE: softmax attention alone, which takes
 *             lengths, causal and lse */
typedef struct clattn__assa_mixed {
    clattn__sizes sizes;
    clattn__view q, o;
    clattn__packed packed;
    clattn__operand mix, table, lse, key_lengths, query_lengths;
    int64_t lse_stride[3];
    float scale;
    int64_t right;
    bool bottom_right;
    clattn__assa_window window;
} clattn__assa_mixed;

void clattn__assa_mixed_append(clattn__plan *plan, const clattn__target *target, const clattn__assa_mixed *mixed);

/* Sequences of whole grids -> windows of them. */
clattn__sizes clattn__assa_window_sizes(const clattn__sizes *sizes, const clattn__assa_window *window);

/* As clattn__packed_keys and clattn__packed_values, in window order: sizes are those of clattn__assa_window_sizes, k
 * and v whole sequences. */
void clattn__assa_window_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                              const clattn__assa_window *window, const clattn__view *k, const clattn__packed *packed);
void clattn__assa_window_values(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                                const clattn__assa_window *window, const clattn__view *v,
                                const clattn__packed *packed);

/* Floats of the prepared mix and table, and the stages that write them. */
enum { CLATTN__ASSA_MIX_FLOATS = 2 };
int64_t clattn__assa_table_floats(int64_t side, int64_t heads);
void clattn__assa_mix(clattn__plan *plan, const clattn__target *target, clattn__operand w, clattn__operand to);
void clattn__assa_table(clattn__plan *plan, const clattn__target *target, int64_t side, int64_t heads,
                        clattn__operand table, clattn__operand to);

/* window, grid (0, 0: one window) and shift, settled into *window. Errors: INVALID_ARGUMENT with both values. */
clattn_status clattn__assa_window_check(int64_t side, const int64_t grid[2], int64_t shift, clattn__assa_window *window,
                                        clattn__error *error);

/* The grid has this many tokens; true of no window. */
clattn_status clattn__assa_length_check(const clattn__assa_window *window, int64_t length, clattn__error *error);

/* A checked problem: bind its tensors; its sizes and scale. */
void clattn__assa_bind(clattn__plan *plan, const clattn_assa_problem *problem);
clattn__sizes clattn__assa_sizes(const clattn_assa_problem *problem);
float clattn__assa_scale(const clattn_assa_problem *problem);

/* What forward writes beside o: the caller's own tensors, and, where it trains, what else backward reads, saved. Slot
 * NONE: not written. listed: backward goes by the lists, else by all pairs. */
typedef struct clattn__assa_left {
    clattn__operand indices, scores, lse;
    bool listed;
} clattn__assa_left;

clattn__assa_left clattn__assa_leave(clattn__plan *plan, const clattn_assa_problem *problem);

/* Append the stages that prepare mix and table (NONE without windows) in the workspace. */
void clattn__assa_prepare(clattn__plan *plan, const clattn__target *target, const clattn_assa_problem *problem,
                          clattn__operand *mix, clattn__operand *table);

/* clattn__variant.core */
clattn_status clattn__assa_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                clattn__error *error);

#endif
