/* Gradients of the assa cores: lists, all pairs, windows, ties, padding, storage, against the chain rule in float64;
 * the same bits in every run; refusals. */
#include <clattn/assa.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "harness/assa_case.h"
#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/run.h"

#define SIZES(B_, H_, M_, N_, D_, k_) .B = B_, .H = H_, .M = M_, .N = N_, .D = D_, .k = k_
#define ADAPTIVE(B_, H_, n_, D_) .B = B_, .H = H_, .M = n_, .D = D_, .adaptive = true

/* ---- the reference ---- */

/* Gradients of a case; table NULL without windows. */
typedef struct answers {
    double *q, *k, *v, mix[2], *table;
} answers;

static ref_grid grid_of(const assa_case *c) { return (ref_grid){c->rows, c->columns, c->window, c->shift}; }

static size_t table_count(const assa_case *c) {
    return c->window ? (size_t)(2 * c->window - 1) * (2 * c->window - 1) * c->H : 0;
}

/* From the gradients of the bias [B, H, n, n]. */
static void sum_table(const assa_case *c, const double *bias, double *table) {
    const ref_grid grid = grid_of(c);
    for (int head = 0; head < c->B * c->H; head++)
        for (int i = 0; i < c->M; i++)
            for (int j = 0; j < c->N; j++) {
                const int row = ref_assa_table_row(&grid, i, j, NULL);
                if (row >= 0)
                    table[(size_t)row * c->H + head % c->H] += bias[((size_t)head * c->M + i) * c->N + j];
            }
}

static void expect_adaptive(const assa_data *d, ref_attention *a, const double *grad_o, ref_gradients *g,
                            answers *want) {
    const assa_case *c = &d->c;
    double *bias = ref_array((size_t)c->H * c->M * c->N);
    if (c->window) {
        const ref_grid grid = grid_of(c);
        ref_assa_window_bias(&grid, c->H, d->table, bias);
        g->bias = ref_array((size_t)c->B * c->H * c->M * c->N);
        a->bias = bias;
        a->bias_stride[1] = (ptrdiff_t)c->M * c->N;
        a->bias_stride[2] = c->N;
        a->bias_stride[3] = 1;
    }
    ref_assa_adaptive_gradients(a, d->mix, grad_o, g, want->mix);
    if (c->window)
        sum_table(c, g->bias, want->table);
    free(g->bias);
    free(bias);
}

static answers expect(const assa_data *d, const double *grad_o) {
    const assa_case *c = &d->c;
    ref_attention a = assa_attention(d);
    answers want = {.q = ref_array(assa_queries(c) * c->D),
                    .k = ref_array(assa_keys(c) * c->D),
                    .v = ref_array(assa_keys(c) * c->DV),
                    .table = ref_array(table_count(c))};
    ref_gradients g = {want.q, want.k, want.v, NULL};
    if (c->adaptive)
        expect_adaptive(d, &a, grad_o, &g, &want);
    else
        ref_assa_topk_gradients(&a, c->k, c->all ? REF_ALL : REF_SELECTED, grad_o, &g);
    return want;
}

static void answers_free(answers *a) {
    double *const arrays[] = {a->q, a->k, a->v, a->table};
    for (int i = 0; i < 4; i++)
        free(arrays[i]);
}

/* ---- comparing ---- */

/* Keys that are all the same give q a gradient of 0: what is left of it is rounding. */
static double tolerance_of(const assa_case *c) {
    return c->fill == FILL_CONSTANT ? 2e-4 : c->type == CLATTN_F32 ? 2e-5 : c->type == CLATTN_F16 ? 2e-3 : 1.5e-2;
}

static void compare(const assa_case *c, const char *name, double *got, const double *want, size_t count,
                    double tolerance) {
    char text[256];
    snprintf(text, sizeof text, "grad_%s: B %d H %d/%d M %d N %d D %d/%d k %d %s window %d shift %d causal %d %s", name,
             c->B, c->H, c->HKV, c->M, c->N, c->D, c->DV, c->k,
             c->adaptive ? "adaptive"
             : c->all    ? "all"
                         : "selected",
             c->window, c->shift, (int)c->causal, clattn_type_name(c->type));
    assert_close(text, got, want, count, tolerance);
    free(got);
}

/* Of f32, less what was there before; each is a sum over all tokens. */
static void compare_weight(const assa_case *c, const core_job *j, const char *name, int slot, const double *want,
                           size_t count) {
    double *got = guarded_read(j->f, &j->buffers[slot], name);
    for (size_t e = 0; e < count; e++)
        got[e] -= c->before;
    compare(c, name, got, want, count, 1e-4);
}

static void compare_all(const assa_case *c, const core_job *j, const answers *want) {
    const double tolerance = tolerance_of(c);
    compare(c, "q", core_job_rows(j, CLATTN_ASSA_GRAD_Q, "grad_q"), want->q, assa_queries(c) * c->D, tolerance);
    compare(c, "k", core_job_rows(j, CLATTN_ASSA_GRAD_K, "grad_k"), want->k, assa_keys(c) * c->D, tolerance);
    compare(c, "v", core_job_rows(j, CLATTN_ASSA_GRAD_V, "grad_v"), want->v, assa_keys(c) * c->DV, tolerance);
    if (c->adaptive)
        compare_weight(c, j, "mix", CLATTN_ASSA_GRAD_MIX, want->mix, 2);
    if (c->window)
        compare_weight(c, j, "table", CLATTN_ASSA_GRAD_TABLE, want->table, table_count(c));
}

static double *grad_o_of(const assa_case *c) {
    return core_grad_o(c->type, c->B, c->H, c->M, c->DV, c->nan ? c->query_lengths : NULL, c->seed);
}

static void check(const fixture *f, const assa_case *given) {
    assa_data d;
    assa_data_make(given, &d);
    double *grad_o = grad_o_of(&d.c);
    answers want = expect(&d, grad_o);
    core_job j = assa_job(f, &d, grad_o);
    core_job_run(&j);
    compare_all(&d.c, &j, &want);
    core_job_release(&j);
    answers_free(&want);
    free(grad_o);
    assa_data_free(&d);
}

/* The same device with so many compute units that no case has heads enough for the joint plan. */
static fixture many_units;

static void make_others(void) {
    make_gpu_shaped();
    many_units = *device();
    assert_ok(clattn_context_create(many_units.cl, many_units.device, NULL, &many_units.context));
    many_units.context->target.caps.compute_units = 1000;
}

static void free_others(void) {
    free_gpu_shaped();
    clattn_context_destroy(many_units.context);
}

/* ---- the table ---- */

static const int short_keys[] = {90, 0, 1, 57}, short_queries[] = {0, 33, 40, 12};

#define PADDED .key_lengths = short_keys, .query_lengths = short_queries, .nan = true

/* Few head sizes: each has kernels of its own. */
static const assa_case cases[] = {
    {SIZES(2, 3, 37, 41, 16, 5)},
    {SIZES(4, 4, 40, 90, 16, 9), PADDED, .HKV = 2, .all = true, .listed = true, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
    {ADAPTIVE(2, 4, 33, 16), .HKV = 2, .before = 0.5},
    {ADAPTIVE(2, 2, 48, 16), .window = 4, .rows = 4, .columns = 12, .shift = 3},
    {SIZES(4, 2, 40, 90, 16, 500), PADDED, .all = true, .no_lse = true}, /* more keys than there are: all pairs */
    {SIZES(4, 4, 40, 90, 16, 16), PADDED, .HKV = 2, .listed = true},
    {SIZES(2, 2, 40, 60, 16, 60), .causal = CLATTN_CAUSAL_TOP_LEFT, .listed = true}, /* lists for the caller alone */
    {SIZES(2, 2, 40, 60, 16, 5), .all = true, .no_lse = true},
    {SIZES(1, 2, 40, 300, 16, 1)},
    {SIZES(1, 2, 30, 200, 16, 12), .fill = FILL_TIES}, /* dozens of equal scores */
    {SIZES(1, 2, 30, 200, 16, 12), .fill = FILL_TIES, .all = true},
    {SIZES(1, 2, 30, 200, 16, 12), .fill = FILL_CONSTANT},              /* the first keys, of every query */
    {SIZES(1, 2, 60, 20, 16, 5), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT}, /* rows see none */
    {SIZES(1, 1, 300, 300, 16, 7), .causal = CLATTN_CAUSAL_TOP_LEFT, .all = true, .scale = -0.2f},
    {ADAPTIVE(1, 2, 70, 16), .fill = FILL_CONSTANT},
    {ADAPTIVE(1, 1, 130, 16), .spread = 2, .scale = 0.3f},
    {ADAPTIVE(2, 3, 15, 16), .window = 1, .rows = 3, .columns = 5},
    {ADAPTIVE(1, 1, 578, 16), .window = 17, .rows = 17, .columns = 34, .shift = 9},
    {SIZES(1, 6, 33, 29, 10, 4), .HKV = 2, .DV = 20, .all = true},
    {ADAPTIVE(2, 4, 150, 10), .window = 5, .rows = 15, .columns = 10, .shift = 1, .HKV = 2, .DV = 20, .before = -2},
    {SIZES(1, 1, 1, 1, 1, 1)},
    {ADAPTIVE(1, 1, 20, 256), .DV = 1},
};

/* The first cases have every kind. */
enum { CASES = sizeof(cases) / sizeof(*cases), KINDS = 5 };

static void check_case(const fixture *f, int number, clattn_type type) {
    assa_case c = cases[number];
    c.seed = 900 + (uint64_t)number;
    c.type = type;
    check(f, &c);
}

START_TEST(gradients) { check_case(device(), _i, CLATTN_F32); }
END_TEST

START_TEST(gradients_gpu_shaped) { check_case(&gpu_shaped, _i, CLATTN_F32); }
END_TEST

/* Kinds 2, 3 and 4 have a joint plan. */
START_TEST(gradients_separately) { check_case(&many_units, _i, CLATTN_F32); }
END_TEST

static void assert_note(const fixture *f, const assa_case *c, const char *begins, const char *ends) {
    assa_data d;
    assa_data_make(c, &d);
    double *grad_o = grad_o_of(&d.c);
    core_job j = assa_job(f, &d, grad_o);
    assert_noted(j.plan, begins, ends);
    core_job_release(&j);
    free(grad_o);
    assa_data_free(&d);
}

START_TEST(plans_are_chosen) {
    SKIP_IN_GROUPS;
    const assa_case windows = {ADAPTIVE(2, 2, 48, 16), .window = 4, .rows = 4, .columns = 12};
    assert_note(device(), &windows, "assa backward: joint", "");
    assert_note(&many_units, &windows, "assa backward: separate; not joint: 12 heads", " for 1000 compute units");
    assert_note(&gpu_shaped, &windows, "assa backward: separate; not joint: work-groups of ", "");
}
END_TEST

START_TEST(gradients_in_16_bits) { check_case(device(), _i, _i % 2 ? CLATTN_F16 : CLATTN_BF16); }
END_TEST

START_TEST(gradients_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    check_case(device(), _i, CLATTN_F32);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

/* Keys without queries and queries without keys have gradients, and they are 0. */
START_TEST(empty_problems) {
    static const assa_case empty[] = {
        {SIZES(0, 2, 5, 5, 16, 3)}, {SIZES(2, 2, 0, 5, 16, 3)}, {SIZES(2, 2, 0, 5, 16, 3), .all = true},
        {SIZES(2, 2, 0, 5, 16, 9)}, {SIZES(2, 0, 5, 5, 16, 3)}, {SIZES(2, 0, 5, 5, 16, 3), .HKV = 2, .all = true},
        {ADAPTIVE(0, 2, 5, 16)},    {ADAPTIVE(2, 0, 5, 16)}};
    check(device(), &empty[_i]);
}
END_TEST

/* No key at all, by lengths or by shape. */
START_TEST(no_keys_give_zeros) {
    static const int none[] = {0, 0};
    const assa_case c = {SIZES(2, 1, 20, 30, 16, _i % 2 ? 40 : 5), .key_lengths = none, .all = _i / 2, .nan = true};
    check(device(), &c);
}
END_TEST

/* ---- one key of every query ---- */

/* Its gradient has a part of every one of the 700 queries. */
START_TEST(one_key_chosen_by_all) {
    const assa_case c = {SIZES(1, 2, 700, 300, 16, 2), .all = _i};
    assa_data d;
    assa_data_make(&c, &d);
    for (size_t e = 0; e < assa_queries(&d.c) * c.D; e += (size_t)c.D)
        d.q[e] = 1 + fabs(d.q[e]);
    for (int h = 0; h < c.H; h++)
        d.k[((size_t)h * c.N + 123) * c.D] = 20;
    double *grad_o = grad_o_of(&d.c);
    answers want = expect(&d, grad_o);
    core_job j = assa_job(device(), &d, grad_o);
    core_job_run(&j);
    compare_all(&d.c, &j, &want);
    core_job_release(&j);
    answers_free(&want);
    free(grad_o);
    assa_data_free(&d);
}
END_TEST

/* ---- the same bits ---- */

enum { RUNS = 20 };

static const int grad_slots[] = {CLATTN_ASSA_GRAD_Q, CLATTN_ASSA_GRAD_K, CLATTN_ASSA_GRAD_V, CLATTN_ASSA_GRAD_MIX,
                                 CLATTN_ASSA_GRAD_TABLE};

static void same_bits(const core_job *j, int slot, double **first) {
    double *got = guarded_read(j->f, &j->buffers[slot], "gradient");
    if (*first)
        ck_assert_msg(memcmp(got, *first, j->buffers[slot].count * sizeof *got) == 0, "slot %d differs", slot);
    else
        *first = got;
    if (*first != got)
        free(got);
}

START_TEST(same_inputs_same_bits) {
    fixture f = *device();
    assa_case c = cases[_i / 2];
    c.seed = 990;
    c.before = 0;
    if (_i % 2)
        f.queue = f.out_of_order;
    if (!f.queue) {
        test_skip("the device has no out-of-order queue");
        return;
    }
    assa_data d;
    assa_data_make(&c, &d);
    double *grad_o = grad_o_of(&d.c), *first[5] = {NULL};
    core_job j = assa_job(&f, &d, grad_o);
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < 5; i++)
            if (j.buffers[grad_slots[i]].memory)
                guarded_refill(&f, &j.buffers[grad_slots[i]]);
        core_job_run(&j);
        for (int i = 0; i < 5; i++)
            if (j.buffers[grad_slots[i]].memory)
                same_bits(&j, grad_slots[i], &first[i]);
    }
    for (int i = 0; i < 5; i++)
        free(first[i]);
    core_job_release(&j);
    free(grad_o);
    assa_data_free(&d);
}
END_TEST

/* ---- what is saved ---- */

/* What the caller asks for is not saved again. */
START_TEST(saved_is_what_is_missing) {
    static const struct {
        assa_case c;
        uint64_t saved;
    } all[] = {
        {{SIZES(2, 3, 10, 20, 16, 4), .HKV = 3, .DV = 16}, 2 * 60 * 4},
        {{SIZES(2, 3, 10, 20, 16, 4), .HKV = 3, .DV = 16, .listed = true}, 0},
        {{SIZES(2, 3, 10, 20, 16, 20), .HKV = 3, .DV = 16, .no_lse = true}, 60},
        {{SIZES(2, 3, 10, 20, 16, 20), .HKV = 3, .DV = 16}, 0},
        {{SIZES(2, 3, 10, 20, 16, 20), .HKV = 3, .DV = 16, .listed = true, .no_lse = true}, 60},
        {{SIZES(2, 3, 10, 20, 16, 4), .HKV = 3, .DV = 16, .listed = true, .no_lse = true, .all = true}, 60},
        {{SIZES(2, 3, 10, 10, 16, 0), .HKV = 3, .DV = 16, .adaptive = true}, 60},
    };
    const clattn_assa_problem p = assa_problem(&all[_i].c, true);
    clattn_plan *plan = NULL;
    assert_ok(clattn_assa_plan(device()->context, &p, &plan));
    const uint64_t saved = clattn_plan_saved_count(plan), slack = 64; /* pieces are aligned */
    ck_assert_msg(saved >= all[_i].saved && saved <= all[_i].saved + (all[_i].saved ? slack : 0),
                  "%llu elements are saved, wanted %llu", (unsigned long long)saved, (unsigned long long)all[_i].saved);
    clattn_plan_destroy(plan);
}
END_TEST

/* ---- refusals ---- */

static void refuse(const clattn_assa_problem *p, clattn_status status, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_assa_plan(device()->context, p, &plan), status, fragment);
    ck_assert_ptr_null(plan);
}

START_TEST(bad_gradients_are_refused) {
    const assa_case c = {SIZES(2, 4, 5, 6, 8, 3), .HKV = 2, .DV = 10, .listed = true};
    clattn_assa_problem p = assa_problem(&c, true);
    p.grad_o.rank = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_o has rank 0, but must have 4");
    p = assa_problem(&c, true);
    p.grad_o.shape[3] = 8;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_o has shape [2, 4, 5, 8], but must have [2, 4, 5, 10]");
    p = assa_problem(&c, true);
    p.grad_q.type = CLATTN_F16;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_q has type f16, but must have f32");
    p = assa_problem(&c, true);
    p.grad_k.shape[1] = 4;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_k has shape [2, 4, 6, 8], but must have [2, 2, 6, 8]");
    p = assa_problem(&c, true);
    p.grad_v.stride[1] = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_v is an output of extent 2 along axis 1, but has stride 0 there");
    p = assa_problem(&c, true);
    p.grad_v.type = CLATTN_I32;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_v has type i32");
    p = assa_problem(&c, true);
    p.grad_mix = clattn_tensor_make(NULL, CLATTN_F32, 1, (const int64_t[]){2});
    refuse(&p, CLATTN_INVALID_ARGUMENT, "grad_mix is given, but mix is not");
    p = assa_problem(&c, true);
    p.scores.stride[1] += 8;
    refuse(&p, CLATTN_INVALID_SHAPE, "scores is f32 [2, 4, 5, 3] strides [60, 23, 3, 1], but must be contiguous");
    p.train = false;
    p.grad_q.type = CLATTN_F16; /* not looked at */
    clattn_plan *plan = NULL;
    assert_ok(clattn_assa_plan(device()->context, &p, &plan));
    clattn_plan_destroy(plan);
}
END_TEST

START_TEST(bad_weight_gradients_are_refused) {
    const assa_case c = {
        SIZES(1, 2, 18, 18, 8, 0), .HKV = 2, .DV = 8, .adaptive = true, .window = 3, .rows = 3, .columns = 6};
    clattn_assa_problem p = assa_problem(&c, true);
    p.grad_mix.shape[0] = 3;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_mix has shape [3], but must have [2]");
    p = assa_problem(&c, true);
    p.grad_mix.type = CLATTN_BF16;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_mix has type bf16, but must have f32");
    p = assa_problem(&c, true);
    p.grad_table.shape[0] = 9;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_table has shape [9, 2], but must have [25, 2]");
    p = assa_problem(&c, true);
    p.grad_table.stride[0] = 3;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_table is f32 [25, 2] strides [3, 1], but must be contiguous");
    p = assa_problem(&c, true);
    p.table.stride[0] = 4;
    refuse(&p, CLATTN_INVALID_SHAPE, "table is f32 [25, 2] strides [4, 1], but must be contiguous");
}
END_TEST

START_TEST(too_many_pairs_are_refused) {
    const assa_case c = {SIZES(1, 1, 1 << 16, 1 << 16, 8, 1 << 15), .HKV = 1, .DV = 8};
    const assa_case many = {SIZES(1 << 20, 1 << 20, 16, 32, 1, 30), .HKV = 1 << 20, .DV = 1};
    clattn_assa_problem p = assa_problem(&c, true);
    refuse(&p, CLATTN_UNSUPPORTED, "65536 queries with 32768 kept keys each, at most 2147483647 pairs");
    p = assa_problem(&many, true);
    refuse(&p, CLATTN_UNSUPPORTED, "1099511627776 heads with 480 kept pairs each, at most 140737488355328 pairs");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("assa gradients");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, make_others, free_others);
    tcase_add_checked_fixture(core, NULL, aligned_again);
    tcase_add_loop_test(core, gradients, 0, CASES);
    tcase_add_loop_test(core, gradients_gpu_shaped, 0, KINDS);
    tcase_add_loop_test(core, gradients_separately, 2, KINDS);
    tcase_add_test(core, plans_are_chosen);
    tcase_add_loop_test(core, gradients_in_16_bits, 0, KINDS);
    tcase_add_loop_test(core, gradients_off_alignment, 0, CASES);
    tcase_add_loop_test(core, empty_problems, 0, 8);
    tcase_add_loop_test(core, no_keys_give_zeros, 0, 4);
    tcase_add_loop_test(core, one_key_chosen_by_all, 0, 2);
    tcase_add_loop_test(core, same_inputs_same_bits, 0, 2 * KINDS);
    tcase_add_loop_test(core, saved_is_what_is_missing, 0, 7);
    tcase_add_test(core, bad_gradients_are_refused);
    tcase_add_test(core, bad_weight_gradients_are_refused);
    tcase_add_test(core, too_many_pairs_are_refused);
    suite_add_tcase(suite, core);
    return run_device_suite(suite);
}
