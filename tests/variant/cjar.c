/* The cjar core: against its reference, invariants, and what it refuses. */
#include <clattn/cjar.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cjar_case.h"
#include "harness/close.h"
#include "harness/layer_case.h"
#include "harness/rng.h"
#include "harness/run.h"

#define BY_TOKEN                                                                                                       \
    { .by_token = true }
#define BOTH                                                                                                           \
    { .by_token = true, .gap = 3 }

static const int three[] = {37, 0, 20}, odd_lengths[] = {-4, 1000, 1};

#define SIZES(B_, H_, n_, D_) .B = B_, .H = H_, .n = n_, .D = D_
#define WINDOW(left_, right_) .left = left_, .right = right_, .hub = -1

/* Every one of these runs with masked exclude and with masked multiply. */
static const cjar_case cases[] = {
    {SIZES(1, 1, 1, 8), WINDOW(0, 0)},
    {SIZES(2, 3, 37, 8), WINDOW(0, 0)},
    {SIZES(2, 3, 37, 8), WINDOW(64, 64), .memory = 4},
    {SIZES(2, 3, 37, 8), WINDOW(-1, 64)},
    {SIZES(2, 3, 37, 8), WINDOW(3, -1), .memory = 1},
    {SIZES(2, 3, 37, 8), WINDOW(-1, -1), .memory = 4},
    {SIZES(1, 2, 600, 8), WINDOW(5, 260)},
    {SIZES(1, 1, 257, 8), WINDOW(255, 0), .causal = true},
    {SIZES(2, 3, 37, 8), WINDOW(2, 3), .causal = true, .memory = 4},
    {SIZES(3, 2, 37, 8), WINDOW(4, 4), .lengths = three, .nan = true},
    {SIZES(3, 2, 37, 8), WINDOW(4, 4), .lengths = three, .nan = true, .memory = 4},
    {SIZES(3, 2, 37, 8), WINDOW(4, 1), .lengths = three, .nan = true, .links = 200, .causal = true, .memory = 4},
    {SIZES(3, 2, 37, 8), WINDOW(2, 2), .lengths = odd_lengths, .links = 200},
    /* links: few, many, all pairs, inside the window, listed twice, a hub */
    {SIZES(2, 2, 40, 8), WINDOW(1, 1), .links = 30},
    {SIZES(2, 2, 40, 8), WINDOW(1, 1), .links = 1600, .memory = 4},
    {SIZES(2, 2, 40, 8), WINDOW(39, 39), .links = 300},
    {SIZES(2, 2, 40, 8), WINDOW(0, 3), .links = 300, .causal = true},
    {SIZES(2, 2, 40, 8), .left = 1, .right = 1, .hub = 17},
    {SIZES(2, 2, 40, 8), .left = 1, .right = 1, .hub = 39, .causal = true, .memory = 4},
    {SIZES(3, 2, 37, 8), .left = 1, .right = 1, .hub = 36, .lengths = three, .nan = true, .links = 100},
    {SIZES(1, 1, 700, 8), WINDOW(0, 0), .links = 490000}, /* more links of a query than a block holds */
    /* a query's links end where a vector, or a step over them, ends; one short of it; one past it */
    {SIZES(1, 2, 64, 64), WINDOW(-1, -1), .links = 4096, .lengths = (const int[]){63}, .nan = true},
    {SIZES(1, 2, 65, 64), WINDOW(0, -1), .links = 4225},
    {SIZES(1, 2, 66, 64), WINDOW(0, 0), .links = 4356, .causal = true, .memory = 4},
    {SIZES(2, 2, 66, 64), WINDOW(0, 0), .links = 4356, .causal = true, .lengths = (const int[]){65, 17}, .nan = true},
    {SIZES(1, 2, 130, 32), WINDOW(0, 0), .links = 16900, .memory = 4},
    /* hardly any query has one; only one key has any */
    {SIZES(2, 2, 100, 64), WINDOW(1, 1), .links = 20, .lengths = (const int[]){100, 60}, .nan = true},
    {SIZES(1, 2, 100, 64), .left = 1, .right = 1, .hub = 99, .repeated = true},
    /* memory: none, a panel and one more, more than a block */
    {SIZES(2, 2, 20, 8), WINDOW(1, 1), .memory = 16},
    {SIZES(2, 2, 20, 8), WINDOW(1, 1), .memory = 17, .memory_gap = 5},
    {SIZES(2, 2, 20, 8), WINDOW(1, 1), .memory = 64},
    {SIZES(2, 2, 20, 8), WINDOW(1, 1), .memory = 300, .memory_gap = 1, .links = 30},
    /* layouts, head sizes, scale */
    {SIZES(2, 3, 37, 8), WINDOW(3, 5), .qkv = BY_TOKEN, .o = BY_TOKEN, .links = 60, .memory = 4},
    {SIZES(2, 3, 37, 8), WINDOW(3, 5), .qkv = BOTH, .o = BOTH, .links = 60, .memory = 4, .memory_gap = 3},
    {SIZES(1, 2, 37, 1), WINDOW(3, 5), .links = 60, .memory = 4},
    {SIZES(1, 2, 37, 3), WINDOW(3, 5), .links = 60, .memory = 4},
    {SIZES(1, 2, 37, 80), WINDOW(3, 5), .links = 60, .memory = 4},
    {SIZES(1, 2, 37, 255), WINDOW(3, 5), .links = 60, .memory = 4},
    {SIZES(1, 2, 37, 8), WINDOW(3, 5), .scale = 0.125f, .memory = 4}, /* by model: 1/sqrt(8 heads of 8) */
    {SIZES(1, 2, 100, 8), WINDOW(3, 5), .deviation = 300, .links = 600, .memory = 4, .tolerance = 1e-3},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static void check_as(int number, clattn_type type, bool multiply) {
    cjar_case c = cases[number];
    c.seed = 500 + (uint64_t)number;
    c.type = type;
    c.multiply = multiply;
    if (type != CLATTN_F32)
        c.tolerance = 0;
    check_cjar_case(device(), &c);
}

START_TEST(excluding_agrees) { check_as(_i, CLATTN_F32, false); }
END_TEST

START_TEST(multiplying_agrees) { check_as(_i, CLATTN_F32, true); }
END_TEST

/* The cases with all parts, stored small and off alignment. */
static const int mixed[] = {11, 14, 26};

START_TEST(storage_types_agree) {
    device()->shift = _i % 2; /* until aligned_again */
    check_as(mixed[_i / 4], _i % 4 / 2 ? CLATTN_BF16 : CLATTN_F16, _i % 2);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

/* jax #39576: each bound alone, off by one on either side. */
START_TEST(window_bounds_are_inclusive) {
    const cjar_case c = {SIZES(1, 1, 9, 8), WINDOW(_i % 4 - 1, _i / 4 - 1)};
    check_cjar_case(device(), &c);
}
END_TEST

/* cudnn-frontend #385: one key that every query of every block links to counts once for each. */
START_TEST(hub_key_reaches_every_query) {
    const cjar_case c = {SIZES(1, 2, 300, 8), .left = 0, .right = 0, .hub = 5, .repeated = _i, .seed = 3};
    check_cjar_case(device(), &c);
}
END_TEST

/* Window and links leave nothing hidden, and all weights are far below e^0: nothing of the hidden keys' count may
 * remain. */
START_TEST(multiply_without_hidden_keys_is_softmax) {
    const cjar_case c = {SIZES(1, 2, 30, 8), WINDOW(1, 1), .links = 900, .multiply = true, .causal = _i};
    cjar_data data;
    cjar_data_make(&c, &data);
    for (size_t e = 0; e < data.count; e++) {
        data.q[e] = -10 - fabs(data.q[e]);
        data.k[e] = 10 + fabs(data.k[e]);
    }
    cjar_expect(&data);
    double *o = cjar_run(device(), &c, &data);
    assert_close("o", o, data.o, data.count, 2e-4);
    free(o);
    cjar_data_free(&data);
}
END_TEST

/* ---- invariants ---- */

START_TEST(constant_values_come_back) {
    const cjar_case c = {SIZES(2, 2, 40, 8), WINDOW(2, 2), .links = 100, .memory = 4, .multiply = _i};
    cjar_data data;
    cjar_data_make(&c, &data);
    for (size_t e = 0; e < data.count; e++)
        data.v[e] = data.o[e] = (double)(e % c.D);
    for (int e = 0; e < c.memory * c.H * c.D; e++)
        data.memory_v[e] = e % c.D;
    double *o = cjar_run(device(), &c, &data);
    assert_close("o", o, data.o, data.count, 2e-6);
    free(o);
    cjar_data_free(&data);
}
END_TEST

/* A padded batch gives each sequence what it gives alone, to the bit. */
START_TEST(padded_batch_equals_its_sequences) {
    const int lengths[] = {23};
    const cjar_case padded = {SIZES(1, 2, 40, 8), WINDOW(2, 5),   .memory = 4, .lengths = lengths,
                              .nan = true,        .multiply = _i, .seed = 9};
    cjar_case alone = padded;
    cjar_data data, cut;
    alone.n = lengths[0];
    alone.lengths = NULL;
    cjar_data_make(&padded, &data);
    cjar_data_make(&alone, &cut);
    for (int h = 0; h < alone.H; h++) {
        const size_t to = (size_t)h * alone.n * 8, from = (size_t)h * padded.n * 8,
                     bytes = sizeof(double) * alone.n * 8;
        memcpy(cut.q + to, data.q + from, bytes);
        memcpy(cut.k + to, data.k + from, bytes);
        memcpy(cut.v + to, data.v + from, bytes);
    }
    memcpy(cut.memory_k, data.memory_k, sizeof(double) * 4 * 2 * 8);
    memcpy(cut.memory_v, data.memory_v, sizeof(double) * 4 * 2 * 8);
    double *o = cjar_run(device(), &padded, &data), *single = cjar_run(device(), &alone, &cut);
    for (int h = 0; h < alone.H; h++)
        ck_assert_mem_eq(o + h * padded.n * 8, single + h * alone.n * 8, sizeof(double) * alone.n * 8);
    free(single);
    free(o);
    cjar_data_free(&cut);
    cjar_data_free(&data);
}
END_TEST

/* A causal window: later tokens, NaN as they are, change nothing before them. */
START_TEST(nan_in_the_causal_triangle_stays_there) {
    const cjar_case c = {SIZES(1, 2, 40, 8), WINDOW(3, 3), .memory = 4, .links = 400, .causal = true, .multiply = _i};
    const int last = 30;
    cjar_data data;
    cjar_data_make(&c, &data);
    for (int h = 0; h < c.H; h++)
        for (int e = last * c.D; e < c.n * c.D; e++) {
            data.k[h * c.n * c.D + e] = e % 2 ? NAN : INFINITY;
            data.v[h * c.n * c.D + e] = e % 2 ? INFINITY : NAN;
        }
    double *o = cjar_run(device(), &c, &data);
    for (int h = 0; h < c.H; h++)
        assert_close("o", o + h * c.n * c.D, data.o + h * c.n * c.D, (size_t)last * c.D, 2e-5);
    free(o);
    cjar_data_free(&data);
}
END_TEST

/* ---- layers ---- */

static const layer_case layers[] = {
    {LAYER("cjar", "window-left=none window-right=64 scale-by=model", 2, 150, 24, 3)},
    {LAYER("cjar", "window-left=0 window-right=0 scale-by=model masked=multiply", 1, 37, 24, 3), .memory = 64,
     .links = 90},
    {LAYER("cjar", "window-left=none window-right=none masked=multiply", 1, 37, 24, 3), .memory = 300,
     .memory_kv = true},
};

START_TEST(layers_agree) { check_layer_case(device(), &layers[_i]); }
END_TEST

/* pytorch #141218 */
START_TEST(nothing_to_do_is_done) {
    static const cjar_case empty[] = {{SIZES(0, 2, 3, 8), WINDOW(1, 1)},
                                      {SIZES(2, 0, 3, 8), WINDOW(1, 1)},
                                      {SIZES(2, 2, 0, 8), WINDOW(1, 1)},
                                      {SIZES(2, 2, 0, 8), WINDOW(1, 1), .memory = 4}};
    cjar_case c = empty[_i / 2];
    c.multiply = _i % 2;
    check_cjar_case(device(), &c);
}
END_TEST

/* ---- refusals ---- */

static void wrong_shape(clattn_cjar_problem *p) { p->v.shape[2] = 36; }
static void wrong_type(clattn_cjar_problem *p) { p->o.type = CLATTN_F16; }
static void wrong_window(clattn_cjar_problem *p) { p->window_left = -2; }
static void wrong_masked(clattn_cjar_problem *p) { p->masked = (clattn_cjar_masked)2; }
static void wrong_scale(clattn_cjar_problem *p) { p->scale = INFINITY; }
static void lone_memory(clattn_cjar_problem *p) { p->memory_v = (clattn_tensor){0}; }
static void wrong_memory(clattn_cjar_problem *p) { p->memory_v.shape[1] = 5; }
static void lone_rows(clattn_cjar_problem *p) { p->link_keys = (clattn_tensor){0}; }
static void short_rows(clattn_cjar_problem *p) { p->link_rows.shape[0] = 37; }
static void wrong_rows(clattn_cjar_problem *p) { p->link_rows.type = CLATTN_I32; }
static void wrong_lengths(clattn_cjar_problem *p) {
    p->lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &(int64_t){3});
}
static void transposed(clattn_cjar_problem *p) {
    p->k.stride[3] = 8;
    p->k.stride[2] = 1;
}
static void wide(clattn_cjar_problem *p) {
    clattn_tensor *tensors[] = {&p->q, &p->k, &p->v, &p->o, &p->memory_k, &p->memory_v};
    for (int i = 0; i < 6; i++)
        tensors[i]->shape[tensors[i]->rank - 1] = 257;
}

static const struct {
    void (*change)(clattn_cjar_problem *p);
    clattn_status status;
    const char *sentence;
} refusals[] = {
    {wrong_shape, CLATTN_INVALID_SHAPE, "v has shape [2, 2, 36, 8], but must have [2, 2, 37, 8]"},
    {wrong_type, CLATTN_INVALID_TYPE, "o has type f16, but q has f32"},
    {wrong_window, CLATTN_INVALID_ARGUMENT, "window_left is -2, but must be in -1"},
    {wrong_masked, CLATTN_INVALID_ARGUMENT, "masked is 2, but must be in 0..1"},
    {wrong_scale, CLATTN_INVALID_ARGUMENT, "scale is inf"},
    {lone_memory, CLATTN_INVALID_ARGUMENT, "memory_k and memory_v"},
    {wrong_memory, CLATTN_INVALID_SHAPE, "memory_v has shape [2, 5, 8], but must have [2, 4, 8]"},
    {lone_rows, CLATTN_INVALID_ARGUMENT, "link_rows and link_keys"},
    {short_rows, CLATTN_INVALID_SHAPE, "link_rows has shape [37], but must have [38]"},
    {wrong_rows, CLATTN_INVALID_TYPE, "link_rows has type i32, but must be i64"},
    {wrong_lengths, CLATTN_INVALID_SHAPE, "lengths has shape [3], but must have [2]"},
    {transposed, CLATTN_INVALID_SHAPE, "k has innermost stride 8, but must have 1"},
    {wide, CLATTN_UNSUPPORTED, "head size is 257"},
};

START_TEST(wrong_problems_are_refused) {
    const cjar_case c = {SIZES(2, 2, 37, 8), WINDOW(3, 5), .links = 60, .memory = 4};
    clattn_plan *plan = NULL;
    cjar_data data;
    cjar_data_make(&c, &data);
    clattn_cjar_problem p = cjar_problem(&c, &data);
    refusals[_i].change(&p);
    assert_refused(clattn_cjar_plan(device()->context, &p, &plan), refusals[_i].status, refusals[_i].sentence);
    ck_assert_ptr_null(plan);
    cjar_data_free(&data);
}
END_TEST

static TCase *add(Suite *suite, const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, NULL, aligned_again);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void) {
    Suite *suite = suite_create("cjar");
    TCase *values = add(suite, "values"), *properties = add(suite, "properties"), *refused = add(suite, "refused");
    tcase_add_loop_test(values, excluding_agrees, 0, CASES);
    tcase_add_loop_test(values, multiplying_agrees, 0, CASES);
    tcase_add_loop_test(values, storage_types_agree, 0, 12);
    tcase_add_loop_test(values, window_bounds_are_inclusive, 0, 16);
    tcase_add_loop_test(values, layers_agree, 0, sizeof(layers) / sizeof(*layers));
    tcase_add_loop_test(properties, hub_key_reaches_every_query, 0, 2);
    tcase_add_loop_test(properties, multiply_without_hidden_keys_is_softmax, 0, 2);
    tcase_add_loop_test(properties, constant_values_come_back, 0, 2);
    tcase_add_loop_test(properties, padded_batch_equals_its_sequences, 0, 2);
    tcase_add_loop_test(properties, nan_in_the_causal_triangle_stays_there, 0, 2);
    tcase_add_loop_test(properties, nothing_to_do_is_done, 0, 8);
    tcase_add_loop_test(refused, wrong_problems_are_refused, 0, sizeof(refusals) / sizeof(*refusals));
    return run_device_suite(suite);
}
