/* One small dense layer, loaded and planned, with everything that a call of clattn_enqueue takes: for tests that spoil
 * one part of a call and look at what it answers. */
#ifndef CLATTN_TESTS_JOB_H
#define CLATTN_TESTS_JOB_H

#include "harness/guarded.h"
#include "harness/layer_case.h"

enum {
    JOB_BATCH = 2,
    JOB_LENGTH = 37,
    JOB_WIDTH = 24,
    JOB_HEADS = 3,
    JOB_ELEMENTS = JOB_BATCH * JOB_LENGTH * JOB_WIDTH
};

/* The arguments of clattn_enqueue. */
typedef struct job_call {
    const clattn_plan *plan;
    cl_command_queue queue;
    clattn_tensor tensors[CLATTN_LAYER_SLOTS];
    size_t count;
    clattn_workspace workspace;
    bool no_tensors, no_workspace; /* NULL instead */
    cl_uint waits;
    const cl_event *wait_list;
} job_call;

/* f     a copy of the fixture: its queue and context may be replaced before job_open
 * call  a call that succeeds */
typedef struct job {
    fixture f;
    clattn_layer *layer;
    clattn_plan *plan;
    guarded x, y, lengths, workspace;
    job_call call;
} job;

/* Layer, plan, x with random numbers, y full of NaN, lengths where wanted. */
void job_open(job *j, const fixture *f, bool lengths);
void job_close(job *j);

/* A plan and tensors of another size of the same layer, in place of the old ones. Queries and keys of length 0 too. */
void job_resize(job *j, int64_t batch, int64_t length);

/* clattn_enqueue(call). */
clattn_status job_enqueue(const job_call *call, cl_event *event);

/* Enqueue, wait, and give y, for free(); guard bands checked. */
double *job_run(job *j);

/* y, for free(). */
double *job_read(job *j);

/* Does y hold nothing but the NaN it began with, and is the workspace's edge whole? */
bool job_untouched(job *j);

/* y is NaN again. */
void job_refill(job *j);

/* Are both arrays the same bit by bit? */
bool job_same(const double *a, const double *b);

#endif
