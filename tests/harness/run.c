#include "harness/run.h"

#include <stdlib.h>
#include <string.h>

#include "harness/guarded.h"

enum { MAX_WEIGHTS = 48 };

static void run_pass(__typeof__(clattn_enqueue) *enqueue, const fixture *f, const clattn_plan *plan,
                     const clattn_tensor *tensors, size_t count) {
    guarded scratch = guarded_bytes(f, clattn_plan_workspace_size(plan));
    clattn_workspace workspace = {.memory = scratch.memory, .offset = scratch.before};
    cl_event done = NULL;
    assert_ok(enqueue(plan, f->queue, tensors, count, &workspace, 0, NULL, &done));
    ck_assert_ptr_nonnull(done);
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    guarded_check(f, &scratch, "workspace");
    guarded_free(&scratch);
}

void run_plan(const fixture *f, const clattn_plan *plan, const clattn_tensor *tensors, size_t count) {
    run_pass(clattn_enqueue, f, plan, tensors, count);
}

void run_plan_backward(const fixture *f, const clattn_plan *plan, const clattn_tensor *tensors, size_t count) {
    run_pass(clattn_enqueue_backward, f, plan, tensors, count);
}

/* ---- weights ---- */

size_t weight_elements(const ref_weight *weight) {
    size_t count = 1;
    for (int axis = 0; axis < weight->rank; axis++)
        count *= (size_t)weight->shape[axis];
    return count;
}

static clattn_weight_info info_of(const ref_weight *weight) {
    clattn_weight_info info = {.name = weight->name, .rank = weight->rank};
    for (int axis = 0; axis < weight->rank; axis++)
        info.shape[axis] = weight->shape[axis];
    return info;
}

/* Upload what the layer asks for, in its order; what the run does not hold stays absent. */
static size_t upload_weights(const fixture *f, const layer_run *r, const clattn_layer *layer, guarded *buffers,
                             clattn_tensor *tensors) {
    size_t count = clattn_layer_weight_count(layer);
    ck_assert_uint_le(count, MAX_WEIGHTS);
    for (size_t w = 0; w < count; w++) {
        clattn_weight_info info;
        assert_ok(clattn_layer_weight(layer, w, &info));
        const ref_weight *have = ref_find(&r->ref, info.name);
        if (!have)
            continue;
        buffers[w] = guarded_upload(f, r->weight_type, have->data, weight_elements(have));
        tensors[w] = guarded_tensor(&buffers[w], info.rank, info.shape[0], info.shape[1], info.shape[2], info.shape[3]);
    }
    return count;
}

clattn_layer *load_layer(const fixture *f, const layer_run *r) {
    clattn_weight_info checkpoint[MAX_WEIGHTS];
    for (size_t w = 0; w < r->ref.weight_count; w++)
        checkpoint[w] = info_of(&r->ref.weights[w]);
    clattn_layer *layer = NULL;
    assert_ok(clattn_layer_from_settings(f->context, r->variant, r->ref.d, r->ref.H, r->settings->items,
                                         r->settings->count, checkpoint, r->ref.weight_count, &layer));
    guarded buffers[MAX_WEIGHTS] = {0};
    clattn_tensor tensors[MAX_WEIGHTS] = {0};
    size_t count = upload_weights(f, r, layer, buffers, tensors);
    cl_event done = NULL;
    assert_ok(clattn_layer_load(layer, f->queue, tensors, count, 0, NULL, &done));
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    for (size_t w = 0; w < count; w++) {
        if (buffers[w].memory)
            guarded_check(f, &buffers[w], "weight");
        guarded_free(&buffers[w]);
    }
    return layer;
}

/* ---- running ---- */

/* Buffers by clattn_layer_slot. */
static void upload_inputs(const fixture *f, const layer_run *r, const double *x, guarded *b, clattn_tensor *t) {
    const ref_layer *l = &r->ref;
    size_t count = (size_t)l->B * l->n * l->d;
    b[CLATTN_LAYER_X] = guarded_upload(f, r->type, x, count);
    b[CLATTN_LAYER_Y] = guarded_make(f, r->type, count);
    t[CLATTN_LAYER_X] = guarded_tensor(&b[CLATTN_LAYER_X], 3, l->B, l->n, l->d, 0);
    t[CLATTN_LAYER_Y] = guarded_tensor(&b[CLATTN_LAYER_Y], 3, l->B, l->n, l->d, 0);
    if (l->lengths) {
        b[CLATTN_LAYER_LENGTHS] = guarded_ints(f, l->lengths, l->B);
        t[CLATTN_LAYER_LENGTHS] = guarded_tensor(&b[CLATTN_LAYER_LENGTHS], 1, l->B, 0, 0, 0);
    }
    long links = r->links ? r->links->rows[l->n] : 0;
    if (links > 0) {
        b[CLATTN_LAYER_LINK_ROWS] = guarded_longs(f, r->links->rows, (size_t)l->n + 1);
        b[CLATTN_LAYER_LINK_KEYS] = guarded_ints(f, r->links->keys, (size_t)links);
        t[CLATTN_LAYER_LINK_ROWS] = guarded_tensor(&b[CLATTN_LAYER_LINK_ROWS], 1, l->n + 1, 0, 0, 0);
        t[CLATTN_LAYER_LINK_KEYS] = guarded_tensor(&b[CLATTN_LAYER_LINK_KEYS], 1, links, 0, 0, 0);
    }
}

void run_loaded_layer(const fixture *f, const layer_run *r, clattn_layer *layer, const double *x, double *y) {
    static const char *const names[CLATTN_LAYER_SLOTS] = {"x", "y", "lengths", "link rows", "link keys"};
    clattn_layer_shape shape = {.batch = r->ref.B,
                                .length = r->ref.n,
                                .type = r->type,
                                .has_lengths = r->ref.lengths != NULL,
                                .links = r->links ? r->links->rows[r->ref.n] : 0};
    clattn_plan *plan = NULL;
    assert_ok(clattn_layer_plan(layer, &shape, &plan));
    guarded buffers[CLATTN_LAYER_SLOTS] = {0};
    clattn_tensor tensors[CLATTN_LAYER_SLOTS] = {0};
    upload_inputs(f, r, x, buffers, tensors);
    run_plan(f, plan, tensors, CLATTN_LAYER_SLOTS);

    double *result = guarded_read(f, &buffers[CLATTN_LAYER_Y], "y");
    memcpy(y, result, buffers[CLATTN_LAYER_Y].count * sizeof(double));
    free(result);
    for (int slot = 0; slot < CLATTN_LAYER_SLOTS; slot++) {
        if (buffers[slot].memory)
            guarded_check(f, &buffers[slot], names[slot]);
        guarded_free(&buffers[slot]);
    }
    clattn_plan_destroy(plan);
}

void run_layer(const fixture *f, const layer_run *r, const double *x, double *y) {
    clattn_layer *layer = load_layer(f, r);
    run_loaded_layer(f, r, layer, x, y);
    clattn_layer_destroy(layer);
}
