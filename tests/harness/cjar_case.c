#include "harness/cjar_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/close.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

static double *numbers(rng *r, clattn_type type, double deviation, size_t count) {
    double *values = rng_array(r, deviation, count);
    storage_round(type, values, count);
    return values;
}

/* Each pair with the same chance; rows ascending. */
static void draw_links(const cjar_case *c, rng *r, cjar_data *d) {
    const double chance = (double)c->links / ((double)c->n * c->n);
    long count = 0;
    d->link_rows = calloc((size_t)c->n + 1, sizeof(long));
    d->link_keys = calloc(2 * (size_t)c->n * c->n + 1, sizeof(int));
    ck_assert(d->link_rows && d->link_keys);
    for (int i = 0; i < c->n; i++) {
        for (int j = 0; j < c->n; j++)
            if (rng_uniform(r, 0, 1) < chance || j == c->hub)
                for (int times = 0; times <= c->repeated; times++)
                    d->link_keys[count++] = j;
        d->link_rows[i + 1] = count;
    }
    d->extra.links = (ref_links){d->link_rows, d->link_keys};
}

static void spoil_padding(const cjar_case *c, cjar_data *d) {
    for (size_t row = 0; row < d->count / c->D; row++)
        for (int e = 0; e < c->D && (int)(row % c->n) >= c->lengths[row / c->n / c->H]; e++)
            d->q[row * c->D + e] = d->k[row * c->D + e] = d->v[row * c->D + e] = NAN;
}

void cjar_expect(cjar_data *d) { ref_cjar_core(&d->ref, &d->extra, d->o, NULL); }

void cjar_data_make(const cjar_case *c, cjar_data *d) {
    rng r = rng_make(c->seed);
    const size_t rows = (size_t)c->memory * c->H * c->D;
    *d = (cjar_data){.count = (size_t)c->B * c->H * c->n * c->D};
    d->q = numbers(&r, c->type, c->deviation != 0 ? c->deviation : 1, d->count);
    d->k = numbers(&r, c->type, 1, d->count);
    d->v = numbers(&r, c->type, 1, d->count);
    d->memory_k = rng_array(&r, 1, rows);
    d->memory_v = rng_array(&r, 1, rows);
    d->o = ref_array(d->count);
    d->ref = (ref_attention){.B = c->B,
                             .H = c->H,
                             .HKV = c->H,
                             .M = c->n,
                             .N = c->n,
                             .D = c->D,
                             .DV = c->D,
                             .scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D),
                             .q = d->q,
                             .k = d->k,
                             .v = d->v};
    d->ref.mask = ref_mask_make(c->causal, c->lengths);
    d->ref.mask.window_left = c->left;
    d->ref.mask.window_right = c->right;
    d->extra = (ref_cjar){.memory = c->memory,
                          .memory_k = d->memory_k,
                          .memory_v = d->memory_v,
                          .masked = c->multiply ? REF_MULTIPLY : REF_EXCLUDE};
    if (c->links || c->hub >= 0)
        draw_links(c, &r, d);
    if (c->nan && c->lengths)
        spoil_padding(c, d);
    cjar_expect(d);
}

void cjar_data_free(cjar_data *d) {
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->memory_k);
    free(d->memory_v);
    free(d->o);
    free(d->link_rows);
    free(d->link_keys);
}

clattn_cjar_problem cjar_problem(const cjar_case *c, const cjar_data *d) {
    const int64_t shape[] = {c->B, c->H, c->n, c->D}, batch = c->B, rows = c->n + 1;
    const clattn_tensor x = strided_layout(c->type, c->qkv, shape);
    clattn_cjar_problem p = {.q = x,
                             .k = x,
                             .v = x,
                             .o = strided_layout(c->type, c->o, shape),
                             .scale = c->scale,
                             .window_left = c->left,
                             .window_right = c->right,
                             .causal = c->causal,
                             .masked = c->multiply ? CLATTN_CJAR_MULTIPLY : CLATTN_CJAR_EXCLUDE};
    if (c->memory > 0) { /* [memory, H, D + gap] in memory, [H, memory, D] to the core */
        p.memory_k = clattn_tensor_make(NULL, CLATTN_F32, 3, (const int64_t[]){c->H, c->memory, c->D});
        p.memory_k.stride[0] = c->D + c->memory_gap;
        p.memory_k.stride[1] = p.memory_k.stride[0] * c->H;
        p.memory_v = p.memory_k;
    }
    if (d->link_rows) {
        const int64_t count = d->link_rows[c->n];
        p.link_rows = clattn_tensor_make(NULL, CLATTN_I64, 1, &rows);
        p.link_keys = clattn_tensor_make(NULL, CLATTN_I32, 1, &count);
    }
    if (c->lengths)
        p.lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &batch);
    return p;
}

/* Rows [memory, H] of D elements, NaN behind each. */
static guarded upload_memory(const fixture *f, const cjar_case *c, const double *rows) {
    const size_t width = (size_t)c->D + c->memory_gap, count = (size_t)c->memory * c->H;
    double *spaced = ref_array(count * width);
    for (size_t e = 0; e < count * width; e++)
        spaced[e] = e % width < (size_t)c->D ? rows[e / width * c->D + e % width] : NAN;
    guarded g = guarded_upload(f, CLATTN_F32, spaced, count * width);
    free(spaced);
    return g;
}

static void upload(const fixture *f, const cjar_case *c, const cjar_data *d, clattn_tensor *t, guarded *b) {
    b[CLATTN_CJAR_Q] = strided_make(f, &t[CLATTN_CJAR_Q], d->q);
    b[CLATTN_CJAR_K] = strided_make(f, &t[CLATTN_CJAR_K], d->k);
    b[CLATTN_CJAR_V] = strided_make(f, &t[CLATTN_CJAR_V], d->v);
    b[CLATTN_CJAR_O] = strided_make(f, &t[CLATTN_CJAR_O], NULL);
    if (c->memory > 0) {
        b[CLATTN_CJAR_MEMORY_K] = upload_memory(f, c, d->memory_k);
        b[CLATTN_CJAR_MEMORY_V] = upload_memory(f, c, d->memory_v);
    }
    if (d->link_rows) {
        b[CLATTN_CJAR_LINK_ROWS] = guarded_longs(f, d->link_rows, (size_t)c->n + 1);
        b[CLATTN_CJAR_LINK_KEYS] = guarded_ints(f, d->link_keys, (size_t)d->link_rows[c->n]);
    }
    if (c->lengths)
        b[CLATTN_CJAR_LENGTHS] = guarded_ints(f, c->lengths, (size_t)c->B);
    for (int slot = CLATTN_CJAR_MEMORY_K; slot < CLATTN_CJAR_SLOTS; slot++)
        if (b[slot].memory) {
            t[slot].memory = b[slot].memory;
            t[slot].offset = b[slot].before / clattn_type_size(b[slot].type);
        }
}

double *cjar_run(const fixture *f, const cjar_case *c, const cjar_data *d) {
    static const char *const names[] = {"q",        "k",         "v",         "o",      "memory_k",
                                        "memory_v", "link_rows", "link_keys", "lengths"};
    const clattn_cjar_problem p = cjar_problem(c, d);
    clattn_tensor tensors[CLATTN_CJAR_SLOTS] = {p.q,        p.k,         p.v,         p.o,      p.memory_k,
                                                p.memory_v, p.link_rows, p.link_keys, p.lengths};
    guarded buffers[CLATTN_CJAR_SLOTS] = {0};
    clattn_plan *plan = NULL;
    assert_ok(clattn_cjar_plan(f->context, &p, &plan));
    upload(f, c, d, tensors, buffers);
    run_plan(f, plan, tensors, CLATTN_CJAR_SLOTS);
    double *o = strided_read(f, &buffers[CLATTN_CJAR_O], &tensors[CLATTN_CJAR_O], "o");
    for (int slot = 0; slot < CLATTN_CJAR_SLOTS; slot++) {
        if (buffers[slot].memory)
            guarded_check(f, &buffers[slot], names[slot]);
        guarded_free(&buffers[slot]);
    }
    clattn_plan_destroy(plan);
    return o;
}

void check_cjar_case(const fixture *f, const cjar_case *c) {
    char name[256];
    cjar_data data;
    cjar_data_make(c, &data);
    double *o = cjar_run(f, c, &data);
    snprintf(name, sizeof(name), "B %d H %d n %d D %d window %d,%d causal %d multiply %d memory %d links %ld %s", c->B,
             c->H, c->n, c->D, c->left, c->right, c->causal, c->multiply, c->memory,
             data.link_rows ? data.link_rows[c->n] : 0, clattn_type_name(c->type));
    assert_close(name, o, data.o, data.count, c->tolerance != 0 ? c->tolerance : storage_tolerance(c->type));
    free(o);
    cjar_data_free(&data);
}
