/* The core of the cas family, on strided tensors. */
#include <clattn/cas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

enum { BLOCK = 64 }; /* tokens of a block on a CPU device */

/* tokens_first  q, k, v and o lie in memory as [B, n, H, D]
 * with_q        the problem has a q
 * one_k         k has one batch, broadcast
 * k_type, v_type, o_type   storage */
typedef struct core_case {
    int B, H, n, D, DV;
    bool causal, tokens_first, with_q, one_k;
    const int *lengths;
    clattn_type k_type, v_type, o_type;
    double spread, scale;
} core_case;

/* The fields that every case has. */
#define CORE(B_, H_, n_, D_, DV_) .B = B_, .H = H_, .n = n_, .D = D_, .DV = DV_

typedef struct core_data {
    double *q, *k, *v;
} core_data;

static size_t rows_of(const core_case *c) { return (size_t)c->B * c->H * c->n; }

static void fill_padding(const core_case *c, double *t, int size) {
    for (size_t e = 0; e < rows_of(c) * size && c->lengths; e++) {
        const size_t row = e / size;
        if ((int)(row % c->n) >= c->lengths[row / c->n / c->H])
            t[e] = NAN;
    }
}

/* Whole numbers in k, so that scores are exact however large. */
static core_data core_data_make(const core_case *c, uint64_t seed) {
    rng r = rng_make(seed);
    core_data data = {rng_array(&r, 1, rows_of(c) * c->D),
                      rng_array(&r, c->spread != 0 ? c->spread : 1, rows_of(c) * c->D),
                      rng_array(&r, 1, rows_of(c) * c->DV)};
    for (size_t e = 0; e < rows_of(c) * c->D && c->spread != 0; e++)
        data.k[e] = floor(data.k[e]);
    for (size_t e = 0; e < rows_of(c) * c->D && c->one_k; e++)
        data.k[e] = data.k[e % ((size_t)c->H * c->n * c->D)];
    storage_round(c->k_type, data.k, rows_of(c) * c->D);
    storage_round(c->v_type, data.v, rows_of(c) * c->DV);
    fill_padding(c, data.q, c->D);
    fill_padding(c, data.k, c->D);
    fill_padding(c, data.v, c->DV);
    return data;
}

static void core_data_free(core_data *data) {
    free(data->q);
    free(data->k);
    free(data->v);
}

/* From [B, H, n, size] to the order in memory, or back. */
static void reorder(const core_case *c, double *t, int size, bool back) {
    if (!c->tokens_first)
        return;
    double *copy = ref_array(rows_of(c) * size);
    memcpy(copy, t, rows_of(c) * size * sizeof(double));
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

static clattn_cas_problem problem_of(const core_case *c) {
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
    double *copy = ref_array(rows_of(c) * size);
    memcpy(copy, values, rows_of(c) * size * sizeof(double));
    reorder(c, copy, size, false);
    const guarded g = guarded_upload(f, type, copy, rows_of(c) * size);
    free(copy);
    return g;
}

/* o [B, H, n, DV]; a new array. */
static double *run_core(const fixture *f, const core_case *c, const core_data *data) {
    const clattn_cas_problem p = problem_of(c);
    clattn_plan *plan = NULL;
    assert_ok(clattn_cas_plan(f->context, &p, &plan));
    guarded k = upload(f, c, c->k_type, data->k, c->D), v = upload(f, c, c->v_type, data->v, c->DV),
            o = guarded_make(f, c->o_type, rows_of(c) * c->DV), lengths = {0};
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

static const int core_lengths[] = {BLOCK + 1, 0, 7};

static const core_case cores[] = {
    {CORE(1, 1, 1, 1, 1)},
    {CORE(2, 3, BLOCK, 8, 8), .with_q = true},
    {CORE(2, 3, BLOCK + 1, 5, 16)},
    {CORE(3, 2, BLOCK + 1, 16, 24), .lengths = core_lengths},
    {CORE(3, 2, BLOCK + 1, 7, 3), .lengths = core_lengths, .tokens_first = true, .with_q = true},
    {CORE(2, 2, 300, 64, 64), .tokens_first = true, .one_k = true},
    {CORE(1, 1, 1500, 4, 4)},
    {CORE(1, 2, 130, 16, 8), .spread = 3000, .scale = 1},
    {CORE(2, 2, 70, 8, 8), .k_type = CLATTN_F16, .v_type = CLATTN_BF16, .o_type = CLATTN_F32},
    {CORE(2, 2, 70, 8, 8), .k_type = CLATTN_BF16, .v_type = CLATTN_F16, .o_type = CLATTN_F16},
};

enum { CORES = sizeof(cores) / sizeof(*cores) };

static void check_core(const fixture *f, const core_case *c, int seed) {
    core_data data = core_data_make(c, 200 + (uint64_t)seed);
    ref_attention a = {.B = c->B, .H = c->H, .HKV = c->H, .M = c->n, .N = c->n, .D = c->D, .DV = c->DV};
    a.scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D);
    a.mask = ref_mask_make(c->causal, c->lengths);
    a.q = c->with_q ? data.q : NULL;
    a.k = data.k;
    a.v = data.v;
    double *want = ref_array(rows_of(c) * c->DV), *got = run_core(f, c, &data);
    ref_cas_additive_core(&a, want);
    char name[64];
    snprintf(name, sizeof name, "core %d%s", seed, c->causal ? ", causal" : "");
    assert_close(name, got, want, rows_of(c) * c->DV, storage_tolerance(c->o_type));
    free(got);
    free(want);
    core_data_free(&data);
}

static core_case core_of(int number) {
    core_case c = cores[number / 2];
    c.causal = number % 2;
    return c;
}

START_TEST(core) {
    const core_case c = core_of(_i);
    check_core(device(), &c, _i);
}
END_TEST

START_TEST(core_gpu_shaped) {
    const core_case c = core_of(_i);
    check_core(&gpu_shaped, &c, _i);
}
END_TEST

START_TEST(core_returns_a_constant_value) {
    const core_case c = {CORE(2, 2, 150, 8, 8), .causal = _i, .spread = 1000, .scale = 1};
    core_data data = core_data_make(&c, 300);
    for (size_t e = 0; e < rows_of(&c) * c.DV; e++)
        data.v[e] = 0.5 + (double)(e % c.DV);
    double *o = run_core(device(), &c, &data);
    assert_close("constant", o, data.v, rows_of(&c) * c.DV, 1e-6);
    free(o);
    core_data_free(&data);
}
END_TEST

/* Keys with their values in another order: nothing changes. */
START_TEST(core_ignores_the_order_of_keys) {
    const core_case c = {CORE(1, 1, 203, 8, 8)};
    core_data data = core_data_make(&c, 301);
    double *before = run_core(device(), &c, &data);
    for (int j = 0; j < c.n / 2; j++)
        for (int ch = 0; ch < 8; ch++) {
            const int a = j * 8 + ch, b = (c.n - 1 - j) * 8 + ch;
            const double k = data.k[a], v = data.v[a];
            data.k[a] = data.k[b];
            data.v[a] = data.v[b];
            data.k[b] = k;
            data.v[b] = v;
        }
    double *after = run_core(device(), &c, &data);
    assert_close("reversed", after, before, rows_of(&c) * c.DV, 2e-6);
    free(after);
    free(before);
    core_data_free(&data);
}
END_TEST

/* The largest score comes last: weights must not be taken against a maximum that a causal row does not see. */
START_TEST(core_causal_with_a_late_peak) {
    const core_case c = {CORE(1, 1, 200, 1, 4), .causal = true, .scale = 1};
    core_data data = core_data_make(&c, 302);
    for (int j = 0; j < c.n; j++)
        data.k[j] = j < 190 ? -10000.0 - j % 3 : 10000.0;
    ref_attention a = {
        .B = 1, .H = 1, .HKV = 1, .M = c.n, .N = c.n, .D = 1, .DV = 4, .scale = 1, .k = data.k, .v = data.v};
    a.mask = ref_mask_make(true, NULL);
    double *want = ref_array(rows_of(&c) * c.DV), *got = run_core(device(), &c, &data);
    ref_cas_additive_core(&a, want);
    assert_close("late peak", got, want, rows_of(&c) * c.DV, 2e-6);
    free(got);
    free(want);
    core_data_free(&data);
}
END_TEST

START_TEST(core_without_elements) {
    for (int axis = 0; axis < 3; axis++) {
        const int sizes[] = {axis != 0 ? 2 : 0, axis != 1 ? 2 : 0, axis != 2 ? 2 : 0};
        const core_case c = {CORE(sizes[0], sizes[1], sizes[2], 4, 4)};
        const clattn_cas_problem p = problem_of(&c);
        clattn_plan *plan = NULL;
        assert_ok(clattn_cas_plan(device()->context, &p, &plan));
        ck_assert_uint_eq(clattn_plan_workspace_size(plan), 0);
        clattn_plan_destroy(plan);
    }
}
END_TEST

/* ---- mistakes ---- */

static void refuse_core(const clattn_cas_problem *p, clattn_status wanted, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_cas_plan(device()->context, p, &plan), wanted, fragment);
    ck_assert_ptr_null(plan);
}

START_TEST(core_mistakes) {
    const core_case c = {CORE(2, 3, 5, 4, 4), .with_q = true, .lengths = core_lengths};
    clattn_cas_problem p = problem_of(&c);
    p.v.shape[2] = 6;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "v has shape [2, 3, 6, 4]");
    p = problem_of(&c);
    p.q.shape[3] = 5;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "q has shape [2, 3, 5, 5]");
    p = problem_of(&c);
    p.o.stride[0] = 0;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "o is an output");
    p = problem_of(&c);
    p.lengths.type = CLATTN_I64;
    refuse_core(&p, CLATTN_INVALID_TYPE, "lengths has type i64");
    p = problem_of(&c);
    p.scale = NAN;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "scale is");
    p = problem_of(&c);
    p.q.rank = 0;
    p.k.shape[3] = 0;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "head size of k is 0");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cas_core");
    TCase *cores_case = tcase_create("core");
    tcase_set_timeout(cores_case, 60);
    tcase_add_unchecked_fixture(cores_case, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(cores_case, core, 0, 2 * CORES);
    tcase_add_loop_test(cores_case, core_gpu_shaped, 6, 12);
    tcase_add_loop_test(cores_case, core_returns_a_constant_value, 0, 2);
    tcase_add_test(cores_case, core_ignores_the_order_of_keys);
    tcase_add_test(cores_case, core_causal_with_a_late_peak);
    tcase_add_test(cores_case, core_without_elements);
    suite_add_tcase(suite, cores_case);

    TCase *mistakes = tcase_create("mistakes");
    tcase_add_test(mistakes, core_mistakes);
    suite_add_tcase(suite, mistakes);
    return run_device_suite(suite);
}
