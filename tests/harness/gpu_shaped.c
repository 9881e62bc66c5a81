#include "harness/gpu_shaped.h"

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
