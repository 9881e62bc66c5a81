/* A test of the cas core as one line of a table: random tensors, and their run on the device. */
#ifndef CLATTN_TESTS_CAS_CASE_H
#define CLATTN_TESTS_CAS_CASE_H

#include <clattn/cas.h>

#include "harness/guarded.h"
#include "reference/reference.h"

/* tokens_first  q, k, v and o lie in memory as [B, n, H, D]
 * with_q        the problem has a q
 * one_k         k has one batch, broadcast
 * k_type, v_type, o_type   storage */
typedef struct core_case {
    int B, H, n, D, DV;
    bool causal, tokens_first, with_q, one_k;
    const int *lengths;
    clattn_type k_type, v_type, o_type;
    double spread, scale;
} core_case;

/* The fields that every case has. */
#define CORE(B_, H_, n_, D_, DV_) .B = B_, .H = H_, .n = n_, .D = D_, .DV = DV_

/* Contiguous [B, H, n, size]; owned. */
typedef struct core_data {
    double *q, *k, *v;
} core_data;

/* Tokens of all heads. */
size_t core_rows(const core_case *c);

/* Where spread is set k holds whole numbers, so that scores are exact however large. Padding is NaN. */
core_data core_data_make(const core_case *c, uint64_t seed);
void core_data_free(core_data *data);

/* What is padding in t [B, H, n, size] becomes NaN. */
void core_fill_padding(const core_case *c, double *t, int size);

clattn_cas_problem core_problem(const core_case *c);

/* The same problem, to train: gradients in the types of what they belong to. */
clattn_cas_problem core_training(const core_case *c);

/* o [B, H, n, DV]; a new array. */
double *run_core(const fixture *f, const core_case *c, const core_data *data);

/* The tensors of a problem that trains, outputs NaN; and what was computed, [B, H, n, size], a new array. */
typedef struct core_tensors {
    guarded buffers[CLATTN_CAS_SLOTS], scratch;
    clattn_tensor tensors[CLATTN_CAS_SLOTS];
} core_tensors;

void core_tensors_make(core_tensors *t, const fixture *f, const core_case *c, const core_data *data,
                       const double *grad_o, const clattn_plan *plan);
double *core_tensors_read(core_tensors *t, const fixture *f, const core_case *c, int slot, const char *name, int size);
void core_tensors_free(core_tensors *t);

/* clattn_enqueue or clattn_enqueue_backward. */
typedef clattn_status core_pass(const clattn_plan *, cl_command_queue, const clattn_tensor *, size_t,
                                const clattn_workspace *, cl_uint, const cl_event *, cl_event *);

void run_core_pass(core_pass *enqueue, const fixture *f, const clattn_plan *plan, core_tensors *t);

#endif
