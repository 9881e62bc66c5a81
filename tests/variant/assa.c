/* The assa family: layers at the edges of blocks and windows, refusals, empty problems. */
#include <clattn/assa.h>
#include <math.h>

#include "harness/gpu_shaped.h"
#include "harness/layer_case.h"

/* ---- layers ---- */

static const int padded[] = {65, 0, 64, 1, 40};

static const layer_case layers[] = {
    {LAYER("assa", "", 1, 1, 8, 1)},
    {LAYER("assa", "mode=topk k=3", 5, 65, 21, 3), .lengths = padded, .padding_nan = true},
    {LAYER("assa", "k=1 causal", 5, 65, 24, 4), .lengths = padded, .padding_nan = true},
    {LAYER("assa", "k=40 normalise=all causal", 5, 65, 24, 2), .lengths = padded, .padding_nan = true},
    {LAYER("assa", "k=65", 5, 65, 24, 2), .lengths = padded, .padding_nan = true},
    {LAYER("assa", "k=20", 1, 530, 16, 1)},
    {LAYER("assa", "mode=adaptive", 1, 1, 8, 1)},
    {LAYER("assa", "mode=adaptive", 1, 270, 20, 2)},
    {LAYER("assa", "mode=adaptive window=1 grid=3x5", 2, 15, 8, 2)},
    {LAYER("assa", "mode=adaptive window=3", 2, 9, 8, 2)},
    {LAYER("assa", "mode=adaptive window=8 grid=16x8 shift=4", 2, 128, 40, 2)},
    {LAYER("assa", "mode=adaptive window=4 grid=4x12 shift=3", 1, 48, 12, 3)},
    {LAYER("assa", "mode=adaptive window=5 grid=15x10 shift=1", 1, 150, 12, 1)},
    {LAYER("assa", "mode=adaptive window=17 grid=17x34 shift=9", 1, 578, 8, 1)}, /* windows of two blocks */
    {LAYER("assa", "mode=adaptive window=8 shift=7", 1, 64, 16, 2), .spread = 3},
};

enum { LAYERS = sizeof(layers) / sizeof(*layers) };

static void check_layer(const fixture *f, int number) {
    layer_case c = layers[number];
    c.seed = 910 + (uint64_t)number;
    check_layer_case(f, &c);
}

START_TEST(layer) { check_layer(device(), _i); }
END_TEST

START_TEST(layer_gpu_shaped) { check_layer(&gpu_shaped, _i); }
END_TEST

/* ---- refusals ---- */

static const struct {
    const char *settings, *fragment;
    clattn_status status;
} refusals[] = {
    {"k=0", "k is '0'", CLATTN_INVALID_ARGUMENT},
    {"k=-3", "k is '-3'", CLATTN_INVALID_ARGUMENT},
    {"k=9999999999", "k is 9999999999", CLATTN_INVALID_ARGUMENT},
    {"mode=best", "topk, adaptive", CLATTN_UNKNOWN_NAME},
    {"normalise=some", "selected, all", CLATTN_UNKNOWN_NAME},
    {"window=4", "window is 4", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive causal", "causal is set", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive grid=8x8", "grid is 8x8", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive grid=8x9 window=4", "9 columns, but must have a multiple of window, which is 4",
     CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive grid=6x8 window=4", "6 rows", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive window=4 shift=4", "shift is 4", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive window=4 shift=5", "below window, which is 4", CLATTN_INVALID_ARGUMENT},
    {"mode=adaptive shift=1", "shift is 1", CLATTN_INVALID_ARGUMENT},
};

START_TEST(settings_are_refused) {
    settings s;
    clattn_layer *made = NULL;
    settings_parse(refusals[_i].settings, &s);
    assert_refused(clattn_layer_from_settings(device()->context, "assa", 16, 2, s.items, s.count, NULL, 0, &made),
                   refusals[_i].status, refusals[_i].fragment);
    ck_assert_ptr_null(made);
}
END_TEST

START_TEST(shapes_are_refused) {
    const clattn_assa_layer_desc desc = {
        .model_size = 8, .heads = 2, .mode = CLATTN_ASSA_ADAPTIVE, .window = 4, .grid = {4, 8}};
    clattn_layer *made = NULL;
    clattn_plan *plan = NULL;
    assert_ok(clattn_assa_layer(device()->context, &desc, &made));
    assert_refused(clattn_layer_plan(made, &(clattn_layer_shape){.batch = 1, .length = 33}, &plan),
                   CLATTN_INVALID_SHAPE, "grid 4x8 has 32 tokens, but the sequence has 33");
    assert_refused(clattn_layer_plan(made, &(clattn_layer_shape){.batch = 1, .length = 32, .has_lengths = true}, &plan),
                   CLATTN_INVALID_ARGUMENT, "lengths");
    clattn_layer_destroy(made);
}
END_TEST

static clattn_assa_problem plain_problem(void) {
    const int64_t shape[4] = {1, 2, 8, 4};
    const clattn_tensor t = clattn_tensor_make(NULL, CLATTN_F32, 4, shape);
    return (clattn_assa_problem){.q = t, .k = t, .v = t, .o = t, .top = 3};
}

static void refuse(const clattn_assa_problem *p, clattn_status status, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_assa_plan(device()->context, p, &plan), status, fragment);
    ck_assert_ptr_null(plan);
}

START_TEST(problems_are_refused) {
    const int64_t wide[4] = {1, 2, 8, 300}, lists[4] = {1, 2, 8, 4};
    clattn_assa_problem p = plain_problem();
    p.top = 0;
    refuse(&p, CLATTN_INVALID_ARGUMENT, "top is 0");
    p = plain_problem();
    p.indices = clattn_tensor_make(NULL, CLATTN_I32, 4, lists);
    refuse(&p, CLATTN_INVALID_SHAPE, "indices has shape [1, 2, 8, 4], but must have [1, 2, 8, 3]");
    p = plain_problem();
    p.q = p.k = p.v = p.o = clattn_tensor_make(NULL, CLATTN_F32, 4, wide);
    refuse(&p, CLATTN_UNSUPPORTED, "head size is 300");
    p = plain_problem();
    p.mix = p.q;
    refuse(&p, CLATTN_INVALID_ARGUMENT, "mix is given, but mode is topk");
    p = plain_problem();
    p.mode = CLATTN_ASSA_ADAPTIVE;
    refuse(&p, CLATTN_INVALID_ARGUMENT, "mix is missing");
    p.causal = CLATTN_CAUSAL_TOP_LEFT;
    refuse(&p, CLATTN_INVALID_ARGUMENT, "causal");
    p = plain_problem();
    p.scale = NAN;
    refuse(&p, CLATTN_INVALID_ARGUMENT, "scale");
    p = plain_problem();
    p.o.type = CLATTN_F16;
    refuse(&p, CLATTN_INVALID_TYPE, "o has type f16, but q has f32");
}
END_TEST

/* No batch, head or query: nothing to do. No key: zeros. */
START_TEST(empty_problems) {
    for (int axis = 0; axis < 3; axis++) {
        clattn_assa_problem p = plain_problem();
        clattn_plan *plan = NULL;
        clattn_tensor none[CLATTN_ASSA_SLOTS] = {0};
        p.q.shape[axis] = p.k.shape[axis] = p.v.shape[axis] = p.o.shape[axis] = 0;
        none[CLATTN_ASSA_Q] = none[CLATTN_ASSA_K] = none[CLATTN_ASSA_V] = none[CLATTN_ASSA_O] = p.q;
        assert_ok(clattn_assa_plan(device()->context, &p, &plan));
        run_plan(device(), plan, none, CLATTN_ASSA_SLOTS);
        clattn_plan_destroy(plan);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("assa");
    TCase *t = tcase_create("assa");
    tcase_add_unchecked_fixture(t, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(t, layer, 0, LAYERS);
    tcase_add_loop_test(t, layer_gpu_shaped, 0, LAYERS);
    tcase_add_loop_test(t, settings_are_refused, 0, (int)(sizeof(refusals) / sizeof(*refusals)));
    tcase_add_test(t, shapes_are_refused);
    tcase_add_test(t, problems_are_refused);
    tcase_add_test(t, empty_problems);
    suite_add_tcase(suite, t);
    return run_device_suite(suite);
}
