/* Gradients of the dense core: shapes, masks, biases, strides and storage against the chain rule in float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/object.h"
#include "harness/close.h"
#include "harness/core_job.h"
#include "harness/dense_case.h"
#include "harness/gpu_shaped.h"

#define SIZES(b, h, m, n, d) .B = b, .H = h, .M = m, .N = n, .D = d, .HKV = h, .DV = d

/* ---- running ---- */

/* summed: axes of the bias gradient with an extent of 1, though the bias has more numbers. */
typedef struct job {
    core_job core;
    int summed;
    clattn_dense_problem p;
} job;

/* Of the bias gradient: 1 where the bias has no numbers of its own, too. */
static size_t bias_extents(const dense_case *c, int summed, int64_t shape[4]) {
    const int64_t full[] = {c->B, c->H, c->M, c->N};
    size_t count = 1;
    for (int axis = 0; axis < 4; axis++) {
        shape[axis] = c->bias & ~summed & (1 << axis) ? full[axis] : 1;
        count *= (size_t)shape[axis];
    }
    return count;
}

static void describe(const dense_case *c, job *j) {
    int64_t shape[4];
    bias_extents(c, j->summed, shape);
    j->p = dense_problem(c);
    j->p.train = true;
    j->p.grad_o = j->p.o;
    j->p.grad_q = j->p.q;
    j->p.grad_k = j->p.k;
    j->p.grad_v = j->p.v;
    if (c->bias)
        j->p.grad_bias = clattn_tensor_make(NULL, CLATTN_F32, 4, shape);
    assert_ok(clattn_dense_plan(j->core.f->context, &j->p, &j->core.plan));
    const clattn_tensor all[CLATTN_DENSE_SLOTS] = {
        [CLATTN_DENSE_Q] = j->p.q,
        [CLATTN_DENSE_K] = j->p.k,
        [CLATTN_DENSE_V] = j->p.v,
        [CLATTN_DENSE_O] = j->p.o,
        [CLATTN_DENSE_BIAS] = j->p.bias,
        [CLATTN_DENSE_LSE] = j->p.lse,
        [CLATTN_DENSE_KEY_LENGTHS] = j->p.key_lengths,
        [CLATTN_DENSE_QUERY_LENGTHS] = j->p.query_lengths,
        [CLATTN_DENSE_GRAD_O] = j->p.grad_o,
        [CLATTN_DENSE_GRAD_Q] = j->p.grad_q,
        [CLATTN_DENSE_GRAD_K] = j->p.grad_k,
        [CLATTN_DENSE_GRAD_V] = j->p.grad_v,
        [CLATTN_DENSE_GRAD_BIAS] = j->p.grad_bias,
    };
    for (int slot = 0; slot < CLATTN_DENSE_SLOTS; slot++)
        j->core.tensors[slot] = all[slot];
}

static void upload(const dense_case *c, const dense_data *d, const double *grad_o, job *j) {
    const struct {
        int slot;
        const double *values;
    } rows[] = {{CLATTN_DENSE_Q, d->q},      {CLATTN_DENSE_K, d->k},        {CLATTN_DENSE_V, d->v},
                {CLATTN_DENSE_O, NULL},      {CLATTN_DENSE_GRAD_O, grad_o}, {CLATTN_DENSE_GRAD_Q, NULL},
                {CLATTN_DENSE_GRAD_K, NULL}, {CLATTN_DENSE_GRAD_V, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        core_job_put_rows(&j->core, rows[i].slot, rows[i].values);
    if (d->bias) {
        int64_t shape[4];
        core_job_put(&j->core, CLATTN_DENSE_BIAS, guarded_upload(j->core.f, CLATTN_F32, d->bias, d->bias_count));
        core_job_put(&j->core, CLATTN_DENSE_GRAD_BIAS, guarded_make(j->core.f, CLATTN_F32, bias_extents(c, j->summed, shape)));
    }
    if (d->lse)
        core_job_put(&j->core, CLATTN_DENSE_LSE, guarded_make(j->core.f, CLATTN_F32, d->lse_count));
    if (c->key_lengths)
        core_job_put(&j->core, CLATTN_DENSE_KEY_LENGTHS, guarded_ints(j->core.f, c->key_lengths, (size_t)c->B));
    if (c->query_lengths)
        core_job_put(&j->core, CLATTN_DENSE_QUERY_LENGTHS, guarded_ints(j->core.f, c->query_lengths, (size_t)c->B));
    core_job_put_saved(&j->core, CLATTN_DENSE_SAVED);
}

/* ---- comparing ---- */

static double tolerance_of(const dense_case *c) {
    return c->tolerance != 0 ? c->tolerance : c->type == CLATTN_F32 ? 2e-5 : c->type == CLATTN_F16 ? 8e-3 : 6e-2;
}

static void compare(const dense_case *c, const char *name, double *got, const double *want, size_t count) {
    char text[256];
    snprintf(text, sizeof(text), "grad_%s: B %d H %d/%d M %d N %d D %d/%d causal %d window %d,%d bias %d %s", name,
             c->B, c->H, c->HKV, c->M, c->N, c->D, c->DV, (int)c->causal, c->windowed ? c->left : -1,
             c->windowed ? c->right : -1, c->bias, clattn_type_name(c->type));
    assert_close(text, got, want, count, tolerance_of(c));
    free(got);
}

static void compare_bias(const dense_case *c, const double *full, job *j) {
    int64_t s[4];
    const size_t count = bias_extents(c, j->summed, s);
    double *want = ref_array(count);
    size_t e = 0;
    for (int b = 0; b < c->B; b++)
        for (int h = 0; h < c->H; h++)
            for (int i = 0; i < c->M; i++)
                for (int k = 0; k < c->N; k++)
                    want[((b % s[0] * s[1] + h % s[1]) * s[2] + i % s[2]) * s[3] + k % s[3]] += full[e++];
    compare(c, "bias", guarded_read(j->core.f, &j->core.buffers[CLATTN_DENSE_GRAD_BIAS], "grad_bias"), want, count);
    free(want);
}

static void compare_all(const dense_case *c, const dense_data *d, const double *grad_o, job *j) {
    const ref_gradients want = {.q = ref_array(d->q_count),
                                .k = ref_array(d->k_count),
                                .v = ref_array(d->v_count),
                                .bias = ref_array((size_t)c->B * c->H * c->M * c->N)};
    ref_dense_gradients(&d->ref, grad_o, &want);
    const struct {
        const char *name;
        int slot;
        double *want;
        size_t count;
    } rows[] = {{"q", CLATTN_DENSE_GRAD_Q, want.q, d->q_count},
                {"k", CLATTN_DENSE_GRAD_K, want.k, d->k_count},
                {"v", CLATTN_DENSE_GRAD_V, want.v, d->v_count}};
    for (int i = 0; i < 3; i++) {
        compare(c, rows[i].name, core_job_rows(&j->core, rows[i].slot, rows[i].name), rows[i].want, rows[i].count);
        free(rows[i].want);
    }
    if (c->bias)
        compare_bias(c, want.bias, j);
    free(want.bias);
}

static void check(const fixture *f, const dense_case *c, int summed) {
    job j = {.core = {.f = f, .slots = CLATTN_DENSE_SLOTS}, .summed = summed};
    dense_data data;
    dense_data_make(c, &data);
    double *grad_o = core_grad_o(c->type, c->B, c->H, c->M, data.ref.DV, c->nan ? c->query_lengths : NULL, c->seed);
    describe(c, &j);
    upload(c, &data, grad_o, &j);
    core_job_run(&j.core);
    compare_all(c, &data, grad_o, &j);
    core_job_release(&j.core);
    free(grad_o);
    dense_data_free(&data);
}

/* The same device with so many compute units that no head of keys has blocks enough for the joint plan, and with so few that it
 * always has. */
static fixture many_units, one_unit;

static void make_others(void) {
    make_gpu_shaped();
    make_with_units(&many_units, 1000);
    make_with_units(&one_unit, 1);
}

static void free_others(void) {
    free_gpu_shaped();
    clattn_context_destroy(many_units.context);
    clattn_context_destroy(one_unit.context);
}

/* ---- the table ---- */

static const int short_queries[] = {19, 0, 7}, short_keys[] = {5, 23, 0};
static const int long_queries[] = {101, 200, 3}, long_keys[] = {260, 51, 197};

#define PADDED .query_lengths = short_queries, .key_lengths = short_keys, .nan = true

static const dense_case cases[] = {
    {SIZES(2, 3, 37, 37, 16)},
    {SIZES(1, 1, 1, 1, 1)},
    {SIZES(1, 2, 12, 16, 8), .no_lse = true},
    {SIZES(1, 2, 13, 17, 8)},
    {SIZES(1, 1, 11, 300, 24)},
    {SIZES(1, 1, 300, 11, 24)},
    {SIZES(1, 1, 257, 263, 7), .no_lse = true},
    {SIZES(1, 2, 20, 21, 80)},
    {SIZES(1, 1, 9, 40, 256)},
    {.B = 1, .H = 6, .HKV = 2, .M = 33, .N = 129, .D = 10, .DV = 20},
    {.B = 2, .H = 4, .HKV = 1, .M = 17, .N = 40, .D = 16, .DV = 5, .causal = CLATTN_CAUSAL_TOP_LEFT},
    {SIZES(1, 2, 140, 140, 16), .causal = CLATTN_CAUSAL_TOP_LEFT},
    {SIZES(1, 2, 160, 130, 16), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
    {SIZES(1, 2, 30, 60, 16), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .windowed = true, .left = 7, .right = 3},
    {SIZES(1, 1, 190, 170, 16), .windowed = true, .left = 5, .right = 0},
    {SIZES(1, 1, 90, 90, 16), .windowed = true, .left = 0, .right = -1},
    {SIZES(3, 2, 19, 23, 16), PADDED},
    {SIZES(3, 2, 19, 23, 16), PADDED, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .no_lse = true},
    {SIZES(3, 2, 200, 260, 16), .query_lengths = long_queries, .key_lengths = long_keys, .nan = true,
     .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .windowed = true, .left = 70, .right = -1},
    {SIZES(3, 2, 19, 23, 16), PADDED, .bias = BIAS_FULL, .hidden = 0.5, .causal = CLATTN_CAUSAL_TOP_LEFT},
    {SIZES(2, 3, 21, 18, 16), .bias = BIAS_FULL, .hidden = 0.2},
    {SIZES(2, 3, 21, 18, 16), .bias = BIAS_HEAD | BIAS_QUERY | BIAS_KEY},
    {SIZES(2, 3, 40, 300, 8), .bias = BIAS_QUERY | BIAS_KEY, .windowed = true, .left = 9, .right = 30},
    {SIZES(2, 3, 40, 300, 8), .bias = BIAS_BATCH | BIAS_KEY, .hidden = 0.1},
    {.B = 2, .H = 4, .HKV = 2, .M = 17, .N = 40, .D = 16, .DV = 5, .bias = BIAS_HEAD | BIAS_KEY},
    {SIZES(2, 3, 37, 37, 16), .q = {true, 0}, .kv = {true, 3}, .o = {false, 5}},
    {SIZES(1, 1, 40, 40, 16), .deviation = 1000, .tolerance = 1e-3}, /* what float32 knows of such scores */
    {SIZES(1, 2, 4, 40, 16), .deviation = 30000}, /* one key has all the weight: its P is exactly 1 */
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static void check_case(const fixture *f, int number, clattn_type type) {
    dense_case c = cases[number];
    c.seed = 500 + (uint64_t)number;
    c.type = type;
    if (type == CLATTN_F32 || c.deviation < 100)
        check(f, &c, 0);
}

START_TEST(gradients_separately) { check_case(&many_units, _i, CLATTN_F32); }
END_TEST

START_TEST(gradients_jointly) { check_case(&one_unit, _i, CLATTN_F32); }
END_TEST

/* Each of these compiles kernels of its own: every third and every fourth case. */
START_TEST(gradients_gpu_shaped) { check_case(&gpu_shaped, 3 * _i, CLATTN_F32); }
END_TEST

START_TEST(gradients_in_16_bits) { check_case(device(), 4 * _i, _i % 2 ? CLATTN_F16 : CLATTN_BF16); }
END_TEST

START_TEST(gradients_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    check_case(device(), _i, CLATTN_F32);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

START_TEST(bias_gradients_are_summed) {
    dense_case c = {SIZES(3, 2, 40, 300, 8), .bias = BIAS_FULL, .hidden = 0.1, .seed = 61};
    if (_i & BIAS_KEY)
        c.tolerance = 0.01; /* of 1e-3: what is added to all scores changes nothing */
    check(device(), &c, _i);
}
END_TEST

static void assert_note(const fixture *f, const dense_case *c, const char *begins, const char *ends) {
    job j = {.core = {.f = f}};
    describe(c, &j);
    assert_noted(j.core.plan, begins, ends);
    clattn_plan_destroy(j.core.plan);
}

START_TEST(plans_are_chosen) {
    SKIP_IN_GROUPS;
    const dense_case c = {SIZES(1, 2, 60, 60, 16)};
    assert_note(&one_unit, &c, "dense backward: joint", "");
    assert_note(&many_units, &c, "dense backward: separate; not joint: ", " blocks of keys for 1000 compute units");
    assert_note(&gpu_shaped, &c, "dense backward: separate; not joint: work-groups of ", "");
}
END_TEST

/* Keys without queries and queries without keys have gradients, and they are 0. */
START_TEST(empty_problems) {
    static const dense_case empty[] = {{SIZES(1, 2, 0, 5, 8)},
                                       {SIZES(1, 2, 5, 0, 8)},
                                       {SIZES(0, 2, 5, 5, 8)},
                                       {SIZES(2, 0, 5, 5, 8)},
                                       {SIZES(2, 2, 0, 0, 8)},
                                       {SIZES(1, 2, 0, 5, 8), .bias = BIAS_KEY},
                                       {SIZES(0, 2, 3, 5, 8), .bias = BIAS_HEAD | BIAS_KEY},
                                       {.B = 1, .H = 0, .HKV = 2, .M = 5, .N = 5, .D = 8, .DV = 8}};
    check(device(), &empty[_i], 0);
}
END_TEST

START_TEST(bad_gradients_are_refused) {
    const dense_case c = {SIZES(2, 3, 4, 5, 8), .bias = BIAS_FULL};
    clattn_plan *plan = NULL;
    job j = {.core = {.f = device()}};
    describe(&c, &j);
    clattn_dense_problem p = j.p;
    p.grad_o.rank = 0;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_SHAPE, "grad_o");
    p = j.p;
    p.grad_k.shape[2] = 6;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_SHAPE, "grad_k");
    p = j.p;
    p.grad_q.type = CLATTN_F16;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_TYPE, "grad_q");
    p = j.p;
    p.grad_v.stride[1] = 0;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_SHAPE, "grad_v");
    p = j.p;
    p.grad_bias.shape[0] = 3;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_SHAPE, "grad_bias");
    p = j.p;
    p.bias.rank = 0;
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_INVALID_ARGUMENT, "grad_bias");
    clattn_plan_destroy(j.core.plan);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dense gradients");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, make_others, free_others);
    tcase_add_checked_fixture(core, NULL, aligned_again);
    tcase_add_loop_test(core, gradients_separately, 0, CASES);
    tcase_add_loop_test(core, gradients_jointly, 0, CASES);
    tcase_add_test(core, plans_are_chosen);
    tcase_add_loop_test(core, gradients_gpu_shaped, 0, (CASES + 2) / 3);
    tcase_add_loop_test(core, gradients_in_16_bits, 0, (CASES + 3) / 4);
    tcase_add_loop_test(core, gradients_off_alignment, 0, CASES);
    tcase_add_loop_test(core, bias_gradients_are_summed, 0, 16);
    tcase_add_loop_test(core, empty_problems, 0, 8);
    tcase_add_test(core, bad_gradients_are_refused);
    suite_add_tcase(suite, core);
    return run_device_suite(suite);
}
