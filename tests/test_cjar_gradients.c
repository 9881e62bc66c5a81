/* Gradients of the cjar core: windows, memory, links and hidden keys, against the chain rule in float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/object.h"
#include "harness/cjar_case.h"
#include "harness/close.h"
#include "harness/core_job.h"
#include "harness/gpu_shaped.h"

#define SIZES(b, h, n_, d) .B = b, .H = h, .n = n_, .D = d
#define WINDOW(l, r) .left = l, .right = r, .hub = -1
#define HUB(l, r, key) .left = l, .right = r, .hub = key

/* ---- running ---- */

static clattn_cjar_problem training(const cjar_case *c, const cjar_data *d) {
    clattn_cjar_problem p = cjar_problem(c, d);
    p.train = true;
    p.grad_o = p.o;
    p.grad_q = p.grad_k = p.grad_v = p.q;
    if (c->memory > 0)
        p.grad_memory_k = p.grad_memory_v =
            clattn_tensor_make(NULL, CLATTN_F32, 3, (const int64_t[]){c->H, c->memory, c->D});
    return p;
}

static void describe(const cjar_case *c, const cjar_data *d, core_job *j) {
    const clattn_cjar_problem p = training(c, d);
    assert_ok(clattn_cjar_plan(j->f->context, &p, &j->plan));
    const clattn_tensor all[CLATTN_CJAR_SLOTS] = {[CLATTN_CJAR_Q] = p.q,
                                                  [CLATTN_CJAR_K] = p.k,
                                                  [CLATTN_CJAR_V] = p.v,
                                                  [CLATTN_CJAR_O] = p.o,
                                                  [CLATTN_CJAR_MEMORY_K] = p.memory_k,
                                                  [CLATTN_CJAR_MEMORY_V] = p.memory_v,
                                                  [CLATTN_CJAR_LINK_ROWS] = p.link_rows,
                                                  [CLATTN_CJAR_LINK_KEYS] = p.link_keys,
                                                  [CLATTN_CJAR_LENGTHS] = p.lengths,
                                                  [CLATTN_CJAR_GRAD_O] = p.grad_o,
                                                  [CLATTN_CJAR_GRAD_Q] = p.grad_q,
                                                  [CLATTN_CJAR_GRAD_K] = p.grad_k,
                                                  [CLATTN_CJAR_GRAD_V] = p.grad_v,
                                                  [CLATTN_CJAR_GRAD_MEMORY_K] = p.grad_memory_k,
                                                  [CLATTN_CJAR_GRAD_MEMORY_V] = p.grad_memory_v};
    for (int slot = 0; slot < CLATTN_CJAR_SLOTS; slot++)
        j->tensors[slot] = all[slot];
}

/* The memory's rows [memory, H, D + gap], the gap NaN. */
static guarded memory_rows(const fixture *f, const cjar_case *c, const double *rows) {
    const size_t width = (size_t)c->D + c->memory_gap, count = (size_t)c->memory * c->H * width;
    double *spaced = ref_array(count);
    for (size_t e = 0; e < count; e++)
        spaced[e] = e % width < (size_t)c->D ? rows[e / width * c->D + e % width] : NAN;
    guarded g = guarded_upload(f, CLATTN_F32, spaced, count);
    free(spaced);
    return g;
}

static void upload(const cjar_case *c, const cjar_data *d, const double *grad_o, core_job *j) {
    const struct {
        int slot;
        const double *values;
    } rows[] = {{CLATTN_CJAR_Q, d->q},        {CLATTN_CJAR_K, d->k},      {CLATTN_CJAR_V, d->v},
                {CLATTN_CJAR_O, NULL},        {CLATTN_CJAR_GRAD_Q, NULL}, {CLATTN_CJAR_GRAD_K, NULL},
                {CLATTN_CJAR_GRAD_O, grad_o}, {CLATTN_CJAR_GRAD_V, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        core_job_put_rows(j, rows[i].slot, rows[i].values);
    if (c->memory > 0) {
        const size_t count = (size_t)c->H * c->memory * c->D;
        core_job_put(j, CLATTN_CJAR_MEMORY_K, memory_rows(j->f, c, d->memory_k));
        core_job_put(j, CLATTN_CJAR_MEMORY_V, memory_rows(j->f, c, d->memory_v));
        core_job_put(j, CLATTN_CJAR_GRAD_MEMORY_K, guarded_make(j->f, CLATTN_F32, count));
        core_job_put(j, CLATTN_CJAR_GRAD_MEMORY_V, guarded_make(j->f, CLATTN_F32, count));
    }
    if (d->link_rows) {
        core_job_put(j, CLATTN_CJAR_LINK_ROWS, guarded_longs(j->f, d->link_rows, (size_t)c->n + 1));
        core_job_put(j, CLATTN_CJAR_LINK_KEYS, guarded_ints(j->f, d->link_keys, (size_t)d->link_rows[c->n]));
    }
    if (c->lengths)
        core_job_put(j, CLATTN_CJAR_LENGTHS, guarded_ints(j->f, c->lengths, (size_t)c->B));
    core_job_put_saved(j, CLATTN_CJAR_SAVED);
}

/* ---- comparing ---- */

static void compare(const cjar_case *c, const char *name, double *got, const double *want, size_t count) {
    char text[256];
    const double tolerance = c->type == CLATTN_F32 ? 2e-5 : c->type == CLATTN_F16 ? 8e-3 : 6e-2;
    snprintf(text, sizeof(text),
             "grad_%s: B %d H %d n %d D %d window %d,%d causal %d multiply %d memory %d links %d %s", name, c->B, c->H,
             c->n, c->D, c->left, c->right, c->causal, c->multiply, c->memory, c->links, clattn_type_name(c->type));
    assert_close(text, got, want, count, c->tolerance != 0 ? c->tolerance : tolerance);
    free(got);
}

/* [H, memory, D] from the reference's [memory, H, D]. */
static void compare_memory(const cjar_case *c, const char *name, int slot, const double *want, core_job *j) {
    double *ordered = ref_split_heads(want, 1, c->memory, c->H, c->D);
    compare(c, name, guarded_read(j->f, &j->buffers[slot], name), ordered, (size_t)c->H * c->memory * c->D);
    free(ordered);
}

static void compare_all(const cjar_case *c, const cjar_data *d, const double *grad_o, core_job *j) {
    const ref_gradients want = {.q = ref_array(d->count), .k = ref_array(d->count), .v = ref_array(d->count)};
    const size_t memory = (size_t)c->memory * c->H * c->D;
    double *memory_k = ref_array(memory), *memory_v = ref_array(memory);
    ref_cjar_gradients(&d->ref, &d->extra, grad_o, &want, memory_k, memory_v);
    const struct {
        const char *name;
        int slot;
        double *want;
    } rows[] = {
        {"q", CLATTN_CJAR_GRAD_Q, want.q}, {"k", CLATTN_CJAR_GRAD_K, want.k}, {"v", CLATTN_CJAR_GRAD_V, want.v}};
    for (int i = 0; i < 3; i++) {
        compare(c, rows[i].name, core_job_rows(j, rows[i].slot, rows[i].name), rows[i].want, d->count);
        free(rows[i].want);
    }
    if (c->memory > 0) {
        compare_memory(c, "memory_k", CLATTN_CJAR_GRAD_MEMORY_K, memory_k, j);
        compare_memory(c, "memory_v", CLATTN_CJAR_GRAD_MEMORY_V, memory_v, j);
    }
    free(memory_k);
    free(memory_v);
}

/* The same device with so few compute units that the plan is joint, and with so many that it is not. */
static fixture one_unit, many_units;

static void make_others(void) {
    make_gpu_shaped();
    make_with_units(&one_unit, 1);
    make_with_units(&many_units, 1000);
}

static void free_others(void) {
    free_gpu_shaped();
    clattn_context_destroy(one_unit.context);
    clattn_context_destroy(many_units.context);
}

static void check(const fixture *f, const cjar_case *c) {
    core_job j = {.f = f, .slots = CLATTN_CJAR_SLOTS};
    cjar_data data;
    cjar_data_make(c, &data);
    double *grad_o = core_grad_o(c->type, c->B, c->H, c->n, c->D, c->nan ? c->lengths : NULL, c->seed);
    describe(c, &data, &j);
    upload(c, &data, grad_o, &j);
    core_job_run(&j);
    compare_all(c, &data, grad_o, &j);
    core_job_release(&j);
    free(grad_o);
    cjar_data_free(&data);
}

/* ---- the table ---- */

static const int mixed[] = {29, 0, 40};

#define PADDED .lengths = mixed, .nan = true

static const cjar_case cases[] = {
    {SIZES(3, 2, 40, 16), WINDOW(3, 5), PADDED, .multiply = true, .memory = 4, .links = 120},
    {SIZES(2, 2, 300, 16), WINDOW(20, 9), .memory = 4},
    {SIZES(1, 1, 1, 16), WINDOW(0, 0)},
    {SIZES(1, 2, 40, 16), WINDOW(0, 0), .links = 200, .memory_gap = 3, .memory = 17},
    {SIZES(3, 2, 40, 16), WINDOW(3, 5), PADDED, .causal = true, .multiply = true, .memory = 4, .links = 120,
     .repeated = true},
    {SIZES(1, 2, 300, 16), HUB(2, 2, 7), .links = 2000, .multiply = true},
    {SIZES(1, 2, 300, 16), HUB(2, 2, 0), .causal = true},
    {SIZES(1, 1, 50, 16), WINDOW(-1, 4), .causal = true, .memory = 1},
    {SIZES(1, 1, 50, 16), WINDOW(2, -1), .multiply = true},
    {SIZES(1, 1, 50, 16), WINDOW(-1, -1), .multiply = true, .memory = 2, .links = 30},
    {SIZES(1, 1, 1100, 16), WINDOW(8, 8), .memory = 4},
    {SIZES(2, 2, 30, 16), WINDOW(0, 0), .links = 900, .multiply = true, .deviation = 20, .tolerance = 1e-4},
    {SIZES(2, 3, 33, 10), WINDOW(3, 1), .memory = 3, .qkv = {true, 2}, .o = {false, 5}, .links = 60},
    /* links in steps: as many as a step takes, one more; hardly any; one key of every query */
    {SIZES(1, 2, 64, 64), WINDOW(0, 0), .links = 4096, .memory = 4},
    {SIZES(1, 2, 66, 64), WINDOW(0, 0), .links = 4356, .causal = true, .multiply = true},
    {SIZES(2, 2, 130, 32), WINDOW(1, 1), .links = 16900, .lengths = (const int[]){129, 65}, .nan = true},
    {SIZES(2, 2, 100, 64), WINDOW(1, 1), .links = 20, .lengths = (const int[]){100, 60}, .nan = true},
    {SIZES(1, 2, 100, 64), HUB(1, 1, 99), .repeated = true},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static void check_case(const fixture *f, int number, clattn_type type) {
    cjar_case c = cases[number];
    c.seed = 700 + (uint64_t)number;
    c.type = type;
    check(f, &c);
}

START_TEST(gradients_jointly) { check_case(&one_unit, _i, CLATTN_F32); }
END_TEST

START_TEST(gradients_separately) { check_case(&many_units, _i, CLATTN_F32); }
END_TEST

static void assert_note(const fixture *f, const cjar_case *c, const char *begins, const char *ends) {
    core_job j = {.f = f};
    cjar_data data;
    cjar_data_make(c, &data);
    describe(c, &data, &j);
    assert_noted(j.plan, begins, ends);
    clattn_plan_destroy(j.plan);
    cjar_data_free(&data);
}

START_TEST(plans_are_chosen) {
    SKIP_IN_GROUPS;
    const cjar_case c = {SIZES(1, 2, 60, 16), WINDOW(3, 3)},
                    hidden = {SIZES(1, 2, 60, 16), WINDOW(3, 3), .multiply = true};
    assert_note(&one_unit, &c, "cjar backward: joint", "");
    assert_note(&many_units, &c, "cjar backward: separate; not joint: ", " blocks of queries for 1000 compute units");
    assert_note(&one_unit, &hidden, "cjar backward: separate; not joint: hidden keys take part", "");
}
END_TEST

/* Each of these compiles kernels of its own: some of the cases. */
START_TEST(gradients_gpu_shaped) { check_case(&gpu_shaped, 4 * _i, CLATTN_F32); }
END_TEST

START_TEST(gradients_in_16_bits) { check_case(device(), 4 * _i, _i % 2 ? CLATTN_F16 : CLATTN_BF16); }
END_TEST

/* Nothing to sum: the memory's gradients are 0. */
START_TEST(empty_problems) {
    static const cjar_case empty[] = {{SIZES(0, 2, 5, 16), WINDOW(1, 1), .memory = 3},
                                      {SIZES(2, 2, 0, 16), WINDOW(1, 1), .memory = 3},
                                      {SIZES(2, 0, 5, 16), WINDOW(1, 1), .memory = 3},
                                      {SIZES(2, 2, 0, 16), WINDOW(1, 1), .multiply = true}};
    check(device(), &empty[_i]);
}
END_TEST

static void refuse(const clattn_cjar_problem *p, clattn_status status, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_cjar_plan(device()->context, p, &plan), status, fragment);
    ck_assert_ptr_null(plan);
}

START_TEST(bad_gradients_are_refused) {
    const cjar_case c = {SIZES(2, 3, 5, 8), WINDOW(1, 1), .memory = 4, .links = 6};
    cjar_data data;
    cjar_data_make(&c, &data);
    const clattn_cjar_problem good = training(&c, &data);
    clattn_cjar_problem p = good;
    p.grad_o.rank = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_o has rank 0, but must have 4");
    p = good;
    p.grad_o.type = CLATTN_BF16;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_o has type bf16, but must have f32");
    p = good;
    p.grad_q.type = CLATTN_F16;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_q has type f16, but must have f32");
    p = good;
    p.grad_k.shape[2] = 6;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_k has shape [2, 3, 6, 8], but must have [2, 3, 5, 8]");
    p = good;
    p.grad_v.stride[1] = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_v is an output of extent 3 along axis 1, but has stride 0 there");
    p = good;
    p.grad_memory_k.shape[1] = 5;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_memory_k has shape [3, 5, 8], but must have [3, 4, 8]");
    p = good;
    p.grad_memory_v.type = CLATTN_F16;
    refuse(&p, CLATTN_INVALID_TYPE, "grad_memory_v has type f16, but must have f32");
    p = good;
    p.grad_memory_v.rank = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_memory_v has rank 0, but must have 3");
    p = good;
    p.grad_memory_v.stride[0] = 0;
    refuse(&p, CLATTN_INVALID_SHAPE, "grad_memory_v is an output of extent 3 along axis 0, but has stride 0 there");
    p = good;
    p.link_keys.shape[0] = INT64_C(1) << 31;
    refuse(&p, CLATTN_UNSUPPORTED, "cjar backward: 2147483648 links, at most 2147483647");
    cjar_data_free(&data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cjar gradients");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, make_others, free_others);
    tcase_add_loop_test(core, gradients_jointly, 0, CASES);
    tcase_add_loop_test(core, gradients_separately, 0, CASES);
    tcase_add_test(core, plans_are_chosen);
    tcase_add_loop_test(core, gradients_gpu_shaped, 0, (CASES + 3) / 4);
    tcase_add_loop_test(core, gradients_in_16_bits, 0, (CASES + 3) / 4);
    tcase_add_loop_test(core, empty_problems, 0, 4);
    tcase_add_test(core, bad_gradients_are_refused);
    suite_add_tcase(suite, core);
    return run_device_suite(suite);
}
