/* The cas core on the device. */
#include "harness/cas_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

size_t core_rows(const core_case *c) { return (size_t)c->B * c->H * c->n; }

void core_fill_padding(const core_case *c, double *t, int size) {
    for (size_t e = 0; e < core_rows(c) * size && c->lengths; e++) {
        const size_t row = e / size;
        if ((int)(row % c->n) >= c->lengths[row / c->n / c->H])
            t[e] = NAN;
    }
}

core_data core_data_make(const core_case *c, uint64_t seed) {
    rng r = rng_make(seed);
    core_data data = {rng_array(&r, 1, core_rows(c) * c->D),
                      rng_array(&r, c->spread != 0 ? c->spread : 1, core_rows(c) * c->D),
                      rng_array(&r, 1, core_rows(c) * c->DV)};
    for (size_t e = 0; e < core_rows(c) * c->D && c->spread != 0; e++)
        data.k[e] = floor(data.k[e]);
    for (size_t e = 0; e < core_rows(c) * c->D && c->one_k; e++)
        data.k[e] = data.k[e % ((size_t)c->H * c->n * c->D)];
    storage_round(c->k_type, data.k, core_rows(c) * c->D);
    storage_round(c->v_type, data.v, core_rows(c) * c->DV);
    core_fill_padding(c, data.q, c->D);
    core_fill_padding(c, data.k, c->D);
    core_fill_padding(c, data.v, c->DV);
    return data;
}

void core_data_free(core_data *data) {
    free(data->q);
    free(data->k);
    free(data->v);
}

/* From [B, H, n, size] to the order in memory, or back. */
static void reorder(const core_case *c, double *t, int size, bool back) {
    if (!c->tokens_first)
        return;
    double *copy = ref_array(core_rows(c) * size);
    memcpy(copy, t, core_rows(c) * size * sizeof(double));
    for (int b = 0; b < c->B; b++)
        for (int h = 0; h < c->H; h++)
            for (int i = 0; i < c->n; i++) {
                const size_t here = (((size_t)b * c->H + h) * c->n + i) * size;
                const size_t there = (((size_t)b * c->n + i) * c->H + h) * size;
                memcpy(t + (back ? here : there), copy + (back ? there : here), size * sizeof(double));
            }
    free(copy);
}

static clattn_tensor layout(const core_case *c, clattn_type type, int size, const guarded *g) {
    const int64_t shape[] = {c->B, c->H, c->n, size};
    clattn_tensor t = clattn_tensor_make(NULL, type, 4, shape);
    if (g) {
        t.memory = g->memory;
        t.offset = g->before / clattn_type_size(type);
    }
    if (c->tokens_first) {
        t.stride[1] = size;
        t.stride[2] = (int64_t)c->H * size;
    }
    return t;
}

clattn_cas_problem core_problem(const core_case *c) {
    clattn_cas_problem p = {.k = layout(c, c->k_type, c->D, NULL),
                            .v = layout(c, c->v_type, c->DV, NULL),
                            .o = layout(c, c->o_type, c->DV, NULL),
                            .causal = c->causal,
                            .scale = (float)c->scale};
    if (c->with_q)
        p.q = layout(c, CLATTN_F32, c->D, NULL);
    if (c->one_k)
        p.k.stride[0] = 0;
    const int64_t batch = c->B;
    if (c->lengths)
        p.lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &batch);
    return p;
}

static guarded upload(const fixture *f, const core_case *c, clattn_type type, const double *values, int size) {
    double *copy = ref_array(core_rows(c) * size);
    memcpy(copy, values, core_rows(c) * size * sizeof(double));
    reorder(c, copy, size, false);
    const guarded g = guarded_upload(f, type, copy, core_rows(c) * size);
    free(copy);
    return g;
}

double *run_core(const fixture *f, const core_case *c, const core_data *data) {
    const clattn_cas_problem p = core_problem(c);
    clattn_plan *plan = NULL;
    assert_ok(clattn_cas_plan(f->context, &p, &plan));
    guarded k = upload(f, c, c->k_type, data->k, c->D), v = upload(f, c, c->v_type, data->v, c->DV),
            o = guarded_make(f, c->o_type, core_rows(c) * c->DV), lengths = {0};
    clattn_tensor t[CLATTN_CAS_SLOTS] = {[CLATTN_CAS_K] = layout(c, c->k_type, c->D, &k),
                                         [CLATTN_CAS_V] = layout(c, c->v_type, c->DV, &v),
                                         [CLATTN_CAS_O] = layout(c, c->o_type, c->DV, &o)};
    if (c->one_k)
        t[CLATTN_CAS_K].stride[0] = 0;
    if (c->lengths) {
        lengths = guarded_ints(f, c->lengths, c->B);
        t[CLATTN_CAS_LENGTHS] = guarded_tensor(&lengths, 1, c->B, 0, 0, 0);
    }
    run_plan(f, plan, t, CLATTN_CAS_SLOTS);
    double *result = guarded_read(f, &o, "o");
    reorder(c, result, c->DV, true);
    guarded_free(&lengths);
    guarded_free(&o);
    guarded_free(&v);
    guarded_free(&k);
    clattn_plan_destroy(plan);
    return result;
}

clattn_cas_problem core_training(const core_case *c) {
    clattn_cas_problem p = core_problem(c);
    p.train = true;
    p.grad_q = layout(c, CLATTN_F32, c->D, NULL);
    p.grad_k = layout(c, c->k_type, c->D, NULL);
    p.grad_v = layout(c, c->v_type, c->DV, NULL);
    p.grad_o = layout(c, c->o_type, c->DV, NULL);
    return p;
}

static void place(core_tensors *t, const fixture *f, const core_case *c, int slot, const double *values,
                  clattn_type type, int size) {
    t->buffers[slot] = values ? upload(f, c, type, values, size) : guarded_make(f, type, core_rows(c) * size);
    t->tensors[slot] = layout(c, type, size, &t->buffers[slot]);
}

void core_tensors_make(core_tensors *t, const fixture *f, const core_case *c, const core_data *data, const double *go,
                       const clattn_plan *plan) {
    const int64_t saved = (int64_t)clattn_plan_saved_count(plan);
    place(t, f, c, CLATTN_CAS_K, data->k, c->k_type, c->D);
    place(t, f, c, CLATTN_CAS_V, data->v, c->v_type, c->DV);
    place(t, f, c, CLATTN_CAS_O, NULL, c->o_type, c->DV);
    place(t, f, c, CLATTN_CAS_GRAD_O, go, c->o_type, c->DV);
    place(t, f, c, CLATTN_CAS_GRAD_K, NULL, c->k_type, c->D);
    place(t, f, c, CLATTN_CAS_GRAD_V, NULL, c->v_type, c->DV);
    if (c->with_q)
        place(t, f, c, CLATTN_CAS_GRAD_Q, NULL, CLATTN_F32, c->D);
    if (c->one_k)
        t->tensors[CLATTN_CAS_K].stride[0] = 0;
    if (c->lengths) {
        t->buffers[CLATTN_CAS_LENGTHS] = guarded_ints(f, c->lengths, c->B);
        t->tensors[CLATTN_CAS_LENGTHS] = guarded_tensor(&t->buffers[CLATTN_CAS_LENGTHS], 1, c->B, 0, 0, 0);
    }
    t->buffers[CLATTN_CAS_SAVED] = guarded_make(f, CLATTN_F32, (size_t)saved);
    t->tensors[CLATTN_CAS_SAVED] = guarded_tensor(&t->buffers[CLATTN_CAS_SAVED], 1, saved, 0, 0, 0);
    t->scratch = guarded_bytes(f, clattn_plan_workspace_size(plan));
}

void run_core_pass(core_pass *enqueue, const fixture *f, const clattn_plan *plan, core_tensors *t) {
    const clattn_workspace workspace = {.memory = t->scratch.memory, .offset = t->scratch.before};
    guarded_refill(f, &t->scratch);
    assert_ok(enqueue(plan, f->queue, t->tensors, CLATTN_CAS_SLOTS, &workspace, 0, NULL, NULL));
    ck_assert_int_eq(clFinish(f->queue), CL_SUCCESS);
    guarded_check(f, &t->scratch, "workspace");
}

double *core_tensors_read(core_tensors *t, const fixture *f, const core_case *c, int slot, const char *name, int size) {
    double *got = guarded_read(f, &t->buffers[slot], name);
    reorder(c, got, size, true);
    return got;
}

void core_tensors_free(core_tensors *t) {
    for (int slot = 0; slot < CLATTN_CAS_SLOTS; slot++)
        guarded_free(&t->buffers[slot]);
    guarded_free(&t->scratch);
}
