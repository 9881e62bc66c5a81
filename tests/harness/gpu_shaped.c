#include "harness/gpu_shaped.h"

#include <string.h>

#include "api/object.h"

fixture gpu_shaped;

void make_gpu_shaped(void) {
    gpu_shaped = *device();
    assert_ok(clattn_context_create(gpu_shaped.cl, gpu_shaped.device, NULL, &gpu_shaped.context));
    clattn__caps caps = gpu_shaped.context->target.caps;
    caps.kind = CLATTN__GPU;
    clattn__target_choose(&caps, CLATTN_GEMM_TILE, &gpu_shaped.context->target);
}

void free_gpu_shaped(void) { clattn_context_destroy(gpu_shaped.context); }

void make_with_units(fixture *f, uint32_t units) {
    *f = *device();
    assert_ok(clattn_context_create(f->cl, f->device, NULL, &f->context));
    f->context->target.caps.compute_units = units;
}

bool in_groups(void) { return device()->context->target.attention.wg > 1; }

void assert_noted(const clattn_plan *plan, const char *begins, const char *ends) {
    const char *note = plan->backward->pure.note;
    const size_t length = strlen(note), end = strlen(ends);
    ck_assert_msg(!strncmp(note, begins, strlen(begins)) && length >= end && !strcmp(note + length - end, ends), "%s",
                  note);
}
