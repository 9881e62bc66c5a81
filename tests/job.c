#include "job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const layer_case shape = {LAYER("dense", "causal", JOB_BATCH, JOB_LENGTH, JOB_WIDTH, JOB_HEADS), .seed = 7};

static void upload(job *j, int64_t batch, int64_t length, const double *x, bool lengths) {
    const size_t count = (size_t)(batch * length * JOB_WIDTH);
    j->x = x ? guarded_upload(&j->f, CLATTN_F32, x, count) : guarded_make(&j->f, CLATTN_F32, count);
    j->y = guarded_make(&j->f, CLATTN_F32, count);
    j->call.tensors[CLATTN_LAYER_X] = guarded_tensor(&j->x, 3, batch, length, JOB_WIDTH, 0);
    j->call.tensors[CLATTN_LAYER_Y] = guarded_tensor(&j->y, 3, batch, length, JOB_WIDTH, 0);
    if (lengths) {
        j->lengths = guarded_ints(&j->f, (const int[]){JOB_LENGTH, 11}, JOB_BATCH);
        j->call.tensors[CLATTN_LAYER_LENGTHS] = guarded_tensor(&j->lengths, 1, JOB_BATCH, 0, 0, 0);
    }
}

static void plan(job *j, int64_t batch, int64_t length, bool lengths) {
    const clattn_layer_shape wanted = {.batch = batch, .length = length, .type = CLATTN_F32, .has_lengths = lengths};
    assert_ok(clattn_layer_plan(j->layer, &wanted, &j->plan));
    j->workspace = guarded_bytes(&j->f, clattn_plan_workspace_size(j->plan));
    j->call.plan = j->plan;
    j->call.queue = j->f.queue;
    j->call.count = CLATTN_LAYER_SLOTS;
    j->call.workspace = (clattn_workspace){j->workspace.memory, j->workspace.before};
}

void job_open(job *j, const fixture *f, bool lengths) {
    layer_data data;
    layer_data_make(&shape, &data);
    const layer_run r = layer_run_of(&shape, &data);
    *j = (job){.f = *f};
    j->layer = load_layer(&j->f, &r);
    plan(j, JOB_BATCH, JOB_LENGTH, lengths);
    upload(j, JOB_BATCH, JOB_LENGTH, data.x, lengths);
    layer_data_free(&data);
}

static void drop_plan(job *j) {
    clattn_plan_destroy(j->plan);
    guarded *const all[] = {&j->x, &j->y, &j->lengths, &j->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        guarded_free(all[i]);
}

void job_close(job *j) {
    drop_plan(j);
    clattn_layer_destroy(j->layer);
}

void job_resize(job *j, int64_t batch, int64_t length) {
    drop_plan(j);
    plan(j, batch, length, false);
    upload(j, batch, length, NULL, false);
}

clattn_status job_enqueue(const job_call *call, cl_event *event) {
    return clattn_enqueue(call->plan, call->queue, call->no_tensors ? NULL : call->tensors, call->count,
                          call->no_workspace ? NULL : &call->workspace, call->waits, call->wait_list, event);
}

double *job_read(job *j) {
    guarded_check(&j->f, &j->workspace, "workspace");
    guarded_check(&j->f, &j->x, "x");
    return guarded_read(&j->f, &j->y, "y");
}

double *job_run(job *j) {
    cl_event done = NULL;
    assert_ok(job_enqueue(&j->call, &done));
    ck_assert_ptr_nonnull(done);
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    return job_read(j);
}

bool job_untouched(job *j) {
    double *y = job_read(j);
    bool untouched = true;
    for (size_t i = 0; i < j->y.count; i++)
        untouched &= isnan(y[i]) != 0;
    free(y);
    return untouched;
}

void job_refill(job *j) { guarded_refill(&j->f, &j->y); }

bool job_same(const double *a, const double *b) { return memcmp(a, b, JOB_ELEMENTS * sizeof *a) == 0; }
