#include "harness/core_job.h"

#include <math.h>

#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

void core_job_put(core_job *j, int slot, guarded buffer) {
    j->buffers[slot] = buffer;
    j->tensors[slot].memory = buffer.memory;
    j->tensors[slot].offset = buffer.before / clattn_type_size(buffer.type);
}

void core_job_put_rows(core_job *j, int slot, const double *values) {
    j->buffers[slot] = strided_make(j->f, &j->tensors[slot], values);
}

void core_job_put_saved(core_job *j, int slot) {
    const int64_t count = (int64_t)clattn_plan_saved_count(j->plan);
    if (count == 0)
        return;
    j->tensors[slot] = clattn_tensor_make(NULL, CLATTN_F32, 1, &count);
    core_job_put(j, slot, guarded_make(j->f, CLATTN_F32, (size_t)count));
}

void core_job_run(const core_job *j) {
    run_plan(j->f, j->plan, j->tensors, j->slots);
    run_plan_backward(j->f, j->plan, j->tensors, j->slots);
}

double *core_job_rows(const core_job *j, int slot, const char *name) {
    return strided_read(j->f, &j->buffers[slot], &j->tensors[slot], name);
}

void core_job_release(core_job *j) {
    for (size_t slot = 0; slot < j->slots; slot++) {
        if (j->buffers[slot].memory)
            guarded_check(j->f, &j->buffers[slot], "tensor");
        guarded_free(&j->buffers[slot]);
    }
    clattn_plan_destroy(j->plan);
}

double *core_grad_o(clattn_type type, int B, int H, int n, int D, const int *lengths, uint64_t seed) {
    const size_t count = (size_t)B * H * n * D;
    rng r = rng_make(seed + 5);
    double *grad_o = rng_array(&r, 1, count);
    storage_round(type, grad_o, count);
    for (size_t e = 0; e < count && lengths; e++) {
        const size_t row = e / (size_t)D;
        if ((int)(row % n) >= lengths[row / ((size_t)H * n)])
            grad_o[e] = NAN;
    }
    return grad_o;
}
