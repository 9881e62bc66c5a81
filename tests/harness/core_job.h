/* A core's plan with its tensors by slot: guarded buffers behind the problem's layouts, and both passes. */
#ifndef CLATTN_TESTS_CORE_JOB_H
#define CLATTN_TESTS_CORE_JOB_H

#include <clattn/plan.h>

#include "harness/strided.h"

enum { CORE_SLOTS = 24 };

/* f, plan, slots and the tensors' layouts are the test's to set; a tensor of rank 0 is absent. */
typedef struct core_job {
    const fixture *f;
    clattn_plan *plan; /* owned */
    size_t slots;
    clattn_tensor tensors[CORE_SLOTS];
    guarded buffers[CORE_SLOTS];
} core_job;

/* A buffer behind a tensor; one behind a tensor [B, H, n, D] of any strides, of NaN where values is NULL; one behind
 * the tensor of what forward saves, where the plan saves anything. */
void core_job_put(core_job *j, int slot, guarded buffer);
void core_job_put_rows(core_job *j, int slot, const double *values);
void core_job_put_saved(core_job *j, int slot);

/* Both passes, guarded. */
void core_job_run(const core_job *j);

/* The elements [B, H, n, D] of a slot. For free(). */
double *core_job_rows(const core_job *j, int slot, const char *name);

/* Checks every band, and frees what the job holds. */
void core_job_release(core_job *j);

/* dO [B, H, n, D]: normal, rounded to the type; NaN at and past lengths [B], where they are not NULL: what the loss
 * ignores. */
double *core_grad_o(clattn_type type, int B, int H, int n, int D, const int *lengths, uint64_t seed);

#endif
