#include "harness/dense_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

static dense_case whole(const dense_case *given) {
    dense_case c = *given;
    c.HKV = c.HKV ? c.HKV : c.H;
    c.DV = c.DV ? c.DV : c.D;
    c.deviation = c.deviation != 0 ? c.deviation : 1;
    c.tolerance = c.tolerance != 0 ? c.tolerance : storage_tolerance(c.type);
    return c;
}

/* Elements of a bias along each axis, and their strides. */
static size_t bias_shape(const dense_case *c, ptrdiff_t stride[4]) {
    const int shape[4] = {c->B, c->H, c->M, c->N};
    ptrdiff_t count = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const bool own = c->bias & (1 << axis);
        stride[axis] = own ? count : 0;
        count *= own ? shape[axis] : 1;
    }
    return (size_t)count;
}

static ref_attention reference_of(const dense_case *c, const dense_data *d) {
    ref_attention a = {.B = c->B,
                       .H = c->H,
                       .HKV = c->HKV,
                       .M = c->M,
                       .N = c->N,
                       .D = c->D,
                       .DV = c->DV,
                       .scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D),
                       .q = d->q,
                       .k = d->k,
                       .v = d->v,
                       .bias = d->bias};
    a.mask = (ref_mask){.causal = c->causal != CLATTN_CAUSAL_NONE,
                        .bottom_right = c->causal == CLATTN_CAUSAL_BOTTOM_RIGHT,
                        .window_left = c->windowed ? c->left : -1,
                        .window_right = c->windowed ? c->right : -1,
                        .query_lengths = c->query_lengths,
                        .key_lengths = c->key_lengths};
    bias_shape(c, a.bias_stride);
    return a;
}

static double *numbers(rng *r, const dense_case *c, double deviation, size_t count) {
    double *values = rng_array(r, deviation, count);
    storage_round(c->type, values, count);
    return values;
}

static bool any_sees(const dense_case *c, const dense_data *d, int b, int j) {
    for (int i = 0; i < c->M; i++)
        if (ref_sees(&d->ref.mask, b, i, j, c->M, c->N))
            return true;
    return false;
}

static void spoil(double *rows, int heads, int n, int width, int b, int row) {
    for (int h = 0; h < heads; h++)
        for (int e = 0; e < width; e++)
            rows[(((size_t)b * heads + h) * n + row) * width + e] = NAN;
}

static void spoil_unseen(const dense_case *c, dense_data *d) {
    for (int b = 0; b < c->B; b++) {
        for (int j = 0; j < c->N; j++)
            if (!any_sees(c, d, b, j)) {
                spoil(d->k, c->HKV, c->N, c->D, b, j);
                spoil(d->v, c->HKV, c->N, c->DV, b, j);
            }
        for (int i = c->query_lengths ? c->query_lengths[b] : c->M; i < c->M; i++)
            spoil(d->q, c->H, c->M, c->D, b, i);
    }
}

void dense_data_make(const dense_case *given, dense_data *d) {
    const dense_case c = whole(given);
    rng r = rng_make(c.seed);
    *d = (dense_data){.q_count = (size_t)c.B * c.H * c.M * c.D,
                      .k_count = (size_t)c.B * c.HKV * c.N * c.D,
                      .v_count = (size_t)c.B * c.HKV * c.N * c.DV,
                      .o_count = (size_t)c.B * c.H * c.M * c.DV,
                      .lse_count = (size_t)c.B * c.H * c.M};
    d->q = numbers(&r, &c, c.deviation, d->q_count);
    d->k = numbers(&r, &c, 1, d->k_count);
    d->v = numbers(&r, &c, 1, d->v_count);
    if (c.bias) {
        ptrdiff_t stride[4];
        d->bias_count = bias_shape(&c, stride);
        d->bias = rng_array(&r, 1, d->bias_count);
        for (size_t e = 0; e < d->bias_count; e++)
            if (rng_uniform(&r, 0, 1) < c.hidden)
                d->bias[e] = -INFINITY;
    }
    d->o = ref_array(d->o_count);
    d->lse = c.no_lse ? NULL : ref_array(d->lse_count);
    d->ref = reference_of(&c, d);
    if (c.nan)
        spoil_unseen(&c, d);
    ref_dense_core(&d->ref, d->o, d->lse);
}

void dense_data_free(dense_data *d) {
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->bias);
    free(d->o);
    free(d->lse);
}

clattn_dense_problem dense_problem(const dense_case *given) {
    const dense_case c = whole(given);
    clattn_dense_problem p = {.q = strided_layout(c.type, c.q, (const int64_t[]){c.B, c.H, c.M, c.D}),
                              .k = strided_layout(c.type, c.kv, (const int64_t[]){c.B, c.HKV, c.N, c.D}),
                              .v = strided_layout(c.type, c.kv, (const int64_t[]){c.B, c.HKV, c.N, c.DV}),
                              .o = strided_layout(c.type, c.o, (const int64_t[]){c.B, c.H, c.M, c.DV}),
                              .scale = c.scale,
                              .causal = c.causal,
                              .windowed = c.windowed,
                              .window_left = c.left,
                              .window_right = c.right};
    const int64_t batch = c.B;
    if (c.bias) {
        ptrdiff_t stride[4];
        bias_shape(&c, stride);
        p.bias = clattn_tensor_make(NULL, CLATTN_F32, 4, (const int64_t[]){c.B, c.H, c.M, c.N});
        for (int axis = 0; axis < 4; axis++)
            p.bias.stride[axis] = stride[axis];
    }
    if (!c.no_lse)
        p.lse = clattn_tensor_make(NULL, CLATTN_F32, 3, (const int64_t[]){c.B, c.H, c.M});
    if (c.key_lengths)
        p.key_lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &batch);
    if (c.query_lengths)
        p.query_lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &batch);
    return p;
}

/* Tensor t over a contiguous buffer. */
static void place(clattn_tensor *t, const guarded *g) {
    t->memory = g->memory;
    t->offset = g->before / clattn_type_size(g->type);
}

static void upload(const fixture *f, const dense_case *c, const dense_data *d, clattn_tensor *t, guarded *b) {
    b[CLATTN_DENSE_Q] = strided_make(f, &t[CLATTN_DENSE_Q], d->q);
    b[CLATTN_DENSE_K] = strided_make(f, &t[CLATTN_DENSE_K], d->k);
    b[CLATTN_DENSE_V] = strided_make(f, &t[CLATTN_DENSE_V], d->v);
    b[CLATTN_DENSE_O] = strided_make(f, &t[CLATTN_DENSE_O], NULL);
    if (d->bias)
        b[CLATTN_DENSE_BIAS] = guarded_upload(f, CLATTN_F32, d->bias, d->bias_count);
    if (d->lse)
        b[CLATTN_DENSE_LSE] = guarded_make(f, CLATTN_F32, d->lse_count);
    if (c->key_lengths)
        b[CLATTN_DENSE_KEY_LENGTHS] = guarded_ints(f, c->key_lengths, (size_t)c->B);
    if (c->query_lengths)
        b[CLATTN_DENSE_QUERY_LENGTHS] = guarded_ints(f, c->query_lengths, (size_t)c->B);
    for (int slot = CLATTN_DENSE_BIAS; slot < CLATTN_DENSE_SLOTS; slot++)
        if (b[slot].memory)
            place(&t[slot], &b[slot]);
}

void dense_run(const fixture *f, const dense_case *given, const dense_data *data, double **o, double **lse) {
    static const char *const names[] = {"q", "k", "v", "o", "bias", "lse", "key_lengths", "query_lengths"};
    const dense_case c = whole(given);
    const clattn_dense_problem p = dense_problem(&c);
    clattn_tensor tensors[CLATTN_DENSE_SLOTS] = {p.q, p.k, p.v, p.o, p.bias, p.lse, p.key_lengths, p.query_lengths};
    guarded buffers[CLATTN_DENSE_SLOTS] = {0};
    clattn_plan *plan = NULL;
    assert_ok(clattn_dense_plan(f->context, &p, &plan));
    upload(f, &c, data, tensors, buffers);
    run_plan(f, plan, tensors, CLATTN_DENSE_SLOTS);
    *o = strided_read(f, &buffers[CLATTN_DENSE_O], &tensors[CLATTN_DENSE_O], "o");
    *lse = data->lse ? guarded_read(f, &buffers[CLATTN_DENSE_LSE], "lse") : NULL;
    for (int slot = 0; slot < CLATTN_DENSE_SLOTS; slot++) {
        if (buffers[slot].memory)
            guarded_check(f, &buffers[slot], names[slot]);
        guarded_free(&buffers[slot]);
    }
    clattn_plan_destroy(plan);
}

void check_dense_case(const fixture *f, const dense_case *given) {
    const dense_case c = whole(given);
    char name[256];
    dense_data data;
    double *o, *lse;
    dense_data_make(&c, &data);
    dense_run(f, &c, &data, &o, &lse);
    snprintf(name, sizeof(name), "B %d H %d/%d M %d N %d D %d/%d causal %d window %d,%d bias %d %s", c.B, c.H, c.HKV,
             c.M, c.N, c.D, c.DV, (int)c.causal, c.windowed ? c.left : -1, c.windowed ? c.right : -1, c.bias,
             clattn_type_name(c.type));
    assert_close(name, o, data.o, data.o_count, c.tolerance);
    if (lse)
        assert_close(name, lse, data.lse, data.lse_count, c.tolerance > 2e-5 && c.deviation <= 10 ? 2e-5 : c.tolerance);
    free(o);
    free(lse);
    dense_data_free(&data);
}
