/* Forward and backward of a layer on the device. */
#include "harness/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/guarded.h"

typedef struct call {
    const fixture *f;
    clattn_plan *plan;
    guarded buffers[CLATTN_LAYER_SLOTS];
    clattn_tensor tensors[CLATTN_LAYER_SLOTS];
    guarded scratch;
} call;

/* The buffer of a slot becomes its tensor. */
static void place(call *c, int slot, guarded buffer, int rank, const int64_t *shape) {
    int64_t s[4] = {0};
    for (int axis = 0; axis < rank; axis++)
        s[axis] = shape[axis];
    c->buffers[slot] = buffer;
    c->tensors[slot] = guarded_tensor(&c->buffers[slot], rank, s[0], s[1], s[2], s[3]);
}

static void place_inputs(call *c, const layer_run *r, const double *x, const double *dy) {
    const ref_layer *l = &r->ref;
    const size_t count = (size_t)l->B * l->n * l->d;
    const int64_t shape[] = {l->B, l->n, l->d}, batch[] = {l->B}, rows[] = {l->n + 1};
    const int64_t links[] = {r->links ? r->links->rows[l->n] : 0};
    place(c, CLATTN_LAYER_X, guarded_upload(c->f, r->type, x, count), 3, shape);
    place(c, CLATTN_LAYER_Y, guarded_make(c->f, r->type, count), 3, shape);
    place(c, CLATTN_LAYER_GRAD_Y, guarded_upload(c->f, r->type, dy, count), 3, shape);
    place(c, CLATTN_LAYER_GRAD_X, guarded_make(c->f, r->type, count), 3, shape);
    if (l->lengths)
        place(c, CLATTN_LAYER_LENGTHS, guarded_ints(c->f, l->lengths, (size_t)l->B), 1, batch);
    if (links[0] > 0) {
        place(c, CLATTN_LAYER_LINK_ROWS, guarded_longs(c->f, r->links->rows, (size_t)l->n + 1), 1, rows);
        place(c, CLATTN_LAYER_LINK_KEYS, guarded_ints(c->f, r->links->keys, (size_t)links[0]), 1, links);
    }
}

static size_t count_of(const clattn_weight_info *info) {
    size_t count = 1;
    for (int axis = 0; axis < info->rank; axis++)
        count *= (size_t)info->shape[axis];
    return count;
}

/* NaN where backward overwrites, `before` where it adds. */
static guarded gradient_buffer(const fixture *f, const gradient_options *o, size_t count) {
    if (o->before == 0)
        return guarded_make(f, o->grad_type, count);
    double *values = ref_array(count);
    for (size_t e = 0; e < count; e++)
        values[e] = o->before;
    guarded buffer = guarded_upload(f, o->grad_type, values, count);
    free(values);
    return buffer;
}

static void place_weights(call *c, const clattn_layer *layer, const gradient_options *o) {
    for (size_t w = 0; w < clattn_layer_weight_count(layer); w++) {
        clattn_weight_info info;
        assert_ok(clattn_layer_weight(layer, w, &info));
        if (info.trainable)
            place(c, CLATTN_LAYER_GRAD_WEIGHTS + (int)w, gradient_buffer(c->f, o, count_of(&info)), info.rank,
                  info.shape);
    }
}

static void wait_for(cl_event done) {
    ck_assert_ptr_nonnull(done);
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
}

/* The workspace holds NaN before each pass: nothing may travel in it. */
static void run_forward(call *c) {
    cl_event done = NULL;
    const clattn_workspace workspace = {.memory = c->scratch.memory, .offset = c->scratch.before};
    assert_ok(clattn_enqueue(c->plan, c->f->queue, c->tensors, CLATTN_LAYER_SLOTS, &workspace, 0, NULL, &done));
    wait_for(done);
    guarded_check(c->f, &c->scratch, "workspace");
}

static void run_backward(call *c) {
    cl_event done = NULL;
    guarded_refill(c->f, &c->scratch);
    const clattn_workspace workspace = {.memory = c->scratch.memory, .offset = c->scratch.before};
    assert_ok(
        clattn_enqueue_backward(c->plan, c->f->queue, c->tensors, CLATTN_LAYER_SLOTS, &workspace, 0, NULL, &done));
    wait_for(done);
    guarded_check(c->f, &c->scratch, "workspace");
}

static void read_all(call *c, const clattn_layer *layer, gradients *out) {
    *out = (gradients){.count = clattn_layer_weight_count(layer)};
    ck_assert_uint_le(out->count, MOST_GRADIENTS);
    out->x = guarded_read(c->f, &c->buffers[CLATTN_LAYER_GRAD_X], "gradient of x");
    out->x_count = c->buffers[CLATTN_LAYER_GRAD_X].count;
    for (size_t w = 0; w < out->count; w++) {
        clattn_weight_info info;
        assert_ok(clattn_layer_weight(layer, w, &info));
        snprintf(out->names[w], sizeof(out->names[w]), "%s", info.name);
        if (!info.trainable)
            continue;
        const guarded *buffer = &c->buffers[CLATTN_LAYER_GRAD_WEIGHTS + w];
        out->weights[w] = guarded_read(c->f, buffer, info.name);
        out->weight_counts[w] = buffer->count;
    }
}

/* Elements that may be NaN are compared as bits. */
void assert_same_gradients(const gradients *a, const gradients *b, const char *from) {
    ck_assert_msg(memcmp(a->x, b->x, a->x_count * sizeof(double)) == 0, "the gradient of x differs %s", from);
    for (size_t w = 0; w < a->count; w++)
        ck_assert_msg(memcmp(a->weights[w] ? a->weights[w] : a->x, a->weights[w] ? b->weights[w] : b->x,
                             (a->weights[w] ? a->weight_counts[w] : 0) * sizeof(double)) == 0,
                      "the gradient of %s differs %s", a->names[w], from);
}

static void repeat(call *c, const clattn_layer *layer, const gradients *first, int repeats) {
    for (int i = 0; i < repeats; i++) {
        gradients again;
        for (int slot = CLATTN_LAYER_GRAD_X; slot < CLATTN_LAYER_SLOTS; slot++)
            if (c->buffers[slot].memory)
                guarded_refill(c->f, &c->buffers[slot]);
        run_backward(c);
        read_all(c, layer, &again);
        assert_same_gradients(first, &again, "from run to run");
        gradients_free(&again);
    }
}

static void release(call *c) {
    for (int slot = 0; slot < CLATTN_LAYER_SLOTS; slot++) {
        if (c->buffers[slot].memory)
            guarded_check(c->f, &c->buffers[slot], "tensor");
        guarded_free(&c->buffers[slot]);
    }
    guarded_free(&c->scratch);
    clattn_plan_destroy(c->plan);
}

void run_gradients(const fixture *f, const layer_run *r, const gradient_options *options, const double *x,
                   const double *dy, gradients *out) {
    clattn_layer *layer = load_layer(f, r);
    const clattn_layer_shape shape = {.batch = r->ref.B,
                                      .length = r->ref.n,
                                      .type = r->type,
                                      .has_lengths = r->ref.lengths != NULL,
                                      .links = r->links ? r->links->rows[r->ref.n] : 0,
                                      .train = true,
                                      .accumulate = options->before != 0,
                                      .grad_type = options->grad_type};
    call c = {.f = f};
    assert_ok(clattn_layer_plan(layer, &shape, &c.plan));
    const int64_t saved[] = {(int64_t)clattn_plan_saved_count(c.plan)};
    place_inputs(&c, r, x, dy);
    place_weights(&c, layer, options);
    if (saved[0] > 0)
        place(&c, CLATTN_LAYER_SAVED, guarded_make(f, CLATTN_F32, (size_t)saved[0]), 1, saved);
    c.scratch = guarded_bytes(f, clattn_plan_workspace_size(c.plan));
    run_forward(&c);
    run_backward(&c);
    read_all(&c, layer, out);
    repeat(&c, layer, out, options->repeats);
    release(&c);
    clattn_layer_destroy(layer);
}

void gradients_free(gradients *g) {
    free(g->x);
    for (size_t w = 0; w < g->count; w++)
        free(g->weights[w]);
}
