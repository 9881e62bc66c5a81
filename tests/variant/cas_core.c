/* The core of the cas family, on strided tensors. */
#include <clattn/cas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/cas_case.h"
#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/rng.h"
#include "harness/storage.h"

enum { BLOCK = 64 }; /* tokens of a block on a CPU device */

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
    double *want = ref_array(core_rows(c) * c->DV), *got = run_core(f, c, &data);
    ref_cas_additive_core(&a, want);
    char name[64];
    snprintf(name, sizeof name, "core %d%s", seed, c->causal ? ", causal" : "");
    assert_close(name, got, want, core_rows(c) * c->DV, storage_tolerance(c->o_type));
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
    for (size_t e = 0; e < core_rows(&c) * c.DV; e++)
        data.v[e] = 0.5 + (double)(e % c.DV);
    double *o = run_core(device(), &c, &data);
    assert_close("constant", o, data.v, core_rows(&c) * c.DV, 1e-6);
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
    assert_close("reversed", after, before, core_rows(&c) * c.DV, 2e-6);
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
    double *want = ref_array(core_rows(&c) * c.DV), *got = run_core(device(), &c, &data);
    ref_cas_additive_core(&a, want);
    assert_close("late peak", got, want, core_rows(&c) * c.DV, 2e-6);
    free(got);
    free(want);
    core_data_free(&data);
}
END_TEST

START_TEST(core_without_elements) {
    for (int axis = 0; axis < 3; axis++) {
        const int sizes[] = {axis != 0 ? 2 : 0, axis != 1 ? 2 : 0, axis != 2 ? 2 : 0};
        const core_case c = {CORE(sizes[0], sizes[1], sizes[2], 4, 4)};
        const clattn_cas_problem p = core_problem(&c);
        clattn_plan *plan = NULL;
        assert_ok(clattn_cas_plan(device()->context, &p, &plan));
        ck_assert_uint_eq(clattn_plan_workspace_size(plan), 0);
        clattn_plan_destroy(plan);
    }
}
END_TEST

/* ---- backward ---- */

/* One query, as the chain rule says it. */
static void query_gradient(const ref_attention *a, size_t head, int i, int last, const double *go, double *gk,
                           double *gv) {
    double *p = ref_array(last), *dp = ref_array(last), top = -INFINITY, sum = 0, mean = 0;
    for (int j = 0; j < last; j++) {
        for (int c = 0; c < a->D; c++)
            p[j] += a->scale * a->k[(head * a->N + j) * a->D + c];
        top = fmax(top, p[j]);
    }
    for (int j = 0; j < last; j++)
        sum += p[j] = exp(p[j] - top);
    for (int j = 0; j < last; j++) {
        dp[j] = ref_dot(go + (head * a->N + i) * a->DV, a->v + (head * a->N + j) * a->DV, a->DV);
        mean += (p[j] /= sum) * dp[j];
    }
    for (int j = 0; j < last; j++) {
        for (int c = 0; c < a->D; c++)
            gk[(head * a->N + j) * a->D + c] += a->scale * p[j] * (dp[j] - mean);
        for (int c = 0; c < a->DV; c++)
            gv[(head * a->N + j) * a->DV + c] += p[j] * go[(head * a->N + i) * a->DV + c];
    }
    free(dp);
    free(p);
}

static void expect_gradients(const core_case *c, const core_data *data, const double *go, double *gk, double *gv) {
    const ref_attention a = {.N = c->n,
                             .D = c->D,
                             .DV = c->DV,
                             .k = data->k,
                             .v = data->v,
                             .scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D)};
    for (size_t head = 0; head < (size_t)c->B * c->H; head++) {
        const int length = c->lengths ? c->lengths[head / c->H] : c->n;
        for (int i = 0; i < length; i++)
            query_gradient(&a, head, i, c->causal ? i + 1 : length, go, gk, gv);
    }
}

static void compare_slot(const fixture *f, const core_case *c, core_tensors *t, int slot, const char *name, int size,
                         const double *want) {
    double *got = core_tensors_read(t, f, c, slot, name, size);
    const clattn_type type = t->tensors[slot].type > c->o_type ? t->tensors[slot].type : c->o_type;
    assert_close(name, got, want, core_rows(c) * size, 5 * storage_tolerance(type));
    free(got);
}

static void check_core_backward(const fixture *f, const core_case *c, int seed) {
    rng r = rng_make(500 + (uint64_t)seed);
    core_data data = core_data_make(c, 400 + (uint64_t)seed);
    double *go = rng_array(&r, 1, core_rows(c) * c->DV), *gq = ref_array(core_rows(c) * c->D),
           *gk = ref_array(core_rows(c) * c->D), *gv = ref_array(core_rows(c) * c->DV);
    storage_round(c->o_type, go, core_rows(c) * c->DV);
    core_fill_padding(c, go, c->DV);
    expect_gradients(c, &data, go, gk, gv);
    const clattn_cas_problem p = core_training(c);
    clattn_plan *plan = NULL;
    core_tensors t = {0};
    assert_ok(clattn_cas_plan(f->context, &p, &plan));
    core_tensors_make(&t, f, c, &data, go, plan);
    run_core_pass(clattn_enqueue, f, plan, &t);
    for (int times = 0; times < 2; times++) { /* what is saved stays */
        run_core_pass(clattn_enqueue_backward, f, plan, &t);
        compare_slot(f, c, &t, CLATTN_CAS_GRAD_K, "grad_k", c->D, gk);
        compare_slot(f, c, &t, CLATTN_CAS_GRAD_V, "grad_v", c->DV, gv);
        if (c->with_q)
            compare_slot(f, c, &t, CLATTN_CAS_GRAD_Q, "grad_q", c->D, gq);
    }
    core_tensors_free(&t);
    clattn_plan_destroy(plan);
    core_data_free(&data);
    free(gv);
    free(gk);
    free(gq);
    free(go);
}

/* Scores so far apart that gradients are 0 would say nothing. */
static core_case backward_of(int number) {
    core_case c = core_of(number);
    c.spread = c.spread != 0 ? 3 : 0;
    return c;
}

START_TEST(core_backward) {
    const core_case c = backward_of(_i);
    check_core_backward(device(), &c, _i);
}
END_TEST

START_TEST(core_backward_gpu_shaped) {
    const core_case c = backward_of(_i);
    check_core_backward(&gpu_shaped, &c, _i);
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
    clattn_cas_problem p = core_problem(&c);
    p.v.shape[2] = 6;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "v has shape [2, 3, 6, 4]");
    p = core_problem(&c);
    p.q.shape[3] = 5;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "q has shape [2, 3, 5, 5]");
    p = core_problem(&c);
    p.o.stride[0] = 0;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "o is an output");
    p = core_problem(&c);
    p.lengths.type = CLATTN_I64;
    refuse_core(&p, CLATTN_INVALID_TYPE, "lengths has type i64");
    p = core_problem(&c);
    p.scale = NAN;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "scale is");
    p = core_problem(&c);
    p.q.rank = 0;
    p.k.shape[3] = 0;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "head size of k is 0");
    p = core_training(&c);
    p.grad_k.shape[3] = 5;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "grad_k has shape [2, 3, 5, 5]");
    p = core_training(&c);
    p.grad_q.rank = 0;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "grad_q has rank 0");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cas_core");
    TCase *cores_case = tcase_create("core");
    tcase_add_unchecked_fixture(cores_case, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(cores_case, core, 0, 2 * CORES);
    tcase_add_loop_test(cores_case, core_gpu_shaped, 6, 12);
    tcase_add_loop_test(cores_case, core_returns_a_constant_value, 0, 2);
    tcase_add_test(cores_case, core_ignores_the_order_of_keys);
    tcase_add_test(cores_case, core_causal_with_a_late_peak);
    tcase_add_test(cores_case, core_without_elements);
    tcase_add_loop_test(cores_case, core_backward, 0, 2 * CORES);
    tcase_add_loop_test(cores_case, core_backward_gpu_shaped, 6, 12);
    suite_add_tcase(suite, cores_case);

    TCase *mistakes = tcase_create("mistakes");
    tcase_add_test(mistakes, core_mistakes);
    suite_add_tcase(suite, mistakes);
    return run_device_suite(suite);
}
