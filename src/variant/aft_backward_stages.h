/* What the files of aft's backward pass share. */
#ifndef CLATTN_VARIANT_AFT_BACKWARD_STAGES_H
#define CLATTN_VARIANT_AFT_BACKWARD_STAGES_H

#include "variant/aft_backward.h"
#include "variant/aft_division.h"

/* A core and its gradients. terms: scratch, see cl/include/aft_backward.h; second: floats from row to row of a token's
 * traces (and terms, of gated-matrix). */
typedef struct clattn__aft_pass {
    clattn__plan *plan;
    const clattn__target *target;
    const clattn__aft *aft;
    const clattn__aft_gradients *grad;
    bool by_head;
    clattn__aft_view terms;
    int64_t second;
} clattn__aft_pass;

clattn__aft_pass clattn__aft_pass_start(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                                        const clattn__aft_gradients *grad);

clattn__aft_division clattn__aft_pass_divide(const clattn__aft_pass *p, int vectors, int64_t tb);

/* QUERIES_PARAMETERS of aft_backward.h. */
void clattn__aft_pass_queries(const clattn__aft_pass *p, clattn__stage *stage);

/* TAPS_PARAMETERS of aft_backward_taps.h. */
void clattn__aft_pass_taps(const clattn__aft_pass *p, clattn__stage *stage);

/* Sums over queries: cl/aft_backward_scan.cl. */
clattn__aft_scans clattn__aft_backward_scans(const clattn__aft_pass *p, const clattn__aft_division *d);

/* terms, and what is known of dQ from them. */
void clattn__aft_backward_terms(const clattn__aft_pass *p);

/* parts [batch][blocks][pitch], one block at least; append what sums them to dp. */
clattn__operand clattn__aft_backward_parts(const clattn__aft_pass *p, const clattn__aft_division *d);
void clattn__aft_backward_position(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand parts);

/* sums [batch][blocks][rows of pitch]: of later blocks where causal, else the total. */
void clattn__aft_backward_later(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand sums,
                                int64_t rows);

/* FULL, LOCAL: dK, dV, and what stands beside the keys. */
void clattn__aft_backward_full(const clattn__aft_pass *p);

/* SIMPLE, CONV: dK and dV; and of CONV, its taps. */
void clattn__aft_backward_average(const clattn__aft_pass *p);
void clattn__aft_backward_taps(const clattn__aft_pass *p);

/* GATED_MATRIX. */
void clattn__aft_backward_matrix(const clattn__aft_pass *p);

#endif
