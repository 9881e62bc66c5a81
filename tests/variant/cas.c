/* The cas family: layers against their references at the edges of blocks, invariants. */
#include <clattn/cas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/layer_case.h"
#include "harness/rng.h"
#include "harness/storage.h"

enum { BLOCK = 64 }; /* tokens of a block on a CPU device */

/* ---- layers against the reference ---- */

static const int mixed[] = {BLOCK + 1, 0, BLOCK, 1, 40}, many[] = {200, 0, 64, 65, 128, 127, 1, 199};

#define PADDED(lengths_) .lengths = lengths_, .padding_nan = true

static const layer_case cases[] = {
    {LAYER("cas", "", 1, 1, 8, 1)},
    {LAYER("cas", "", 2, BLOCK - 1, 16, 2), .kernel = 1},
    {LAYER("cas", "", 2, BLOCK, 24, 3)},
    {LAYER("cas", "", 2, BLOCK + 1, 15, 5), .kernel = 5},
    {LAYER("cas", "", 5, BLOCK + 1, 21, 3), PADDED(mixed), .kernel = 7},
    {LAYER("cas", "", 8, 200, 40, 1), PADDED(many), .kernel = 9},
    {LAYER("cas", "", 3, 131, 64, 64), .kernel = 1},
    {LAYER("cas", "", 2, 67, 36, 9), .kernel = 9},
    {LAYER("cas", "", 1, 139, 66, 33)},
    {LAYER("cas", "", 1, 37, 7, 7)},
    {LAYER("cas", "", 1, 33, 300, 4)},
    {LAYER("cas", "", 1, 2200, 8, 2)},
    {LAYER("cas", "", 2, 3, 12, 2), .kernel = 9},
    {LAYER("cas", "", 1, 100, 16, 2), .spread = 30},

    {LAYER("cas", "causal", 1, 1, 8, 1)},
    {LAYER("cas", "causal", 2, BLOCK - 1, 16, 2), .kernel = 1},
    {LAYER("cas", "causal", 2, BLOCK, 24, 3)},
    {LAYER("cas", "causal", 2, BLOCK + 1, 15, 5), .kernel = 5},
    {LAYER("cas", "causal", 5, BLOCK + 1, 21, 3), PADDED(mixed), .kernel = 7},
    {LAYER("cas", "causal", 8, 200, 40, 1), PADDED(many), .kernel = 9},
    {LAYER("cas", "causal", 2, 67, 36, 9), .kernel = 9},
    {LAYER("cas", "causal", 1, 37, 7, 7)},
    {LAYER("cas", "causal", 1, 33, 300, 4)},
    {LAYER("cas", "causal", 1, 503, 8, 2), .spread = 10},

    {LAYER("cas", "mode=vit grid=1x1", 2, 1, 8, 1)},
    {LAYER("cas", "mode=vit grid=1x40", 1, 40, 16, 2)},
    {LAYER("cas", "mode=vit grid=67x1", 2, 67, 12, 1)},
    {LAYER("cas", "mode=vit grid=3x32", 1, 96, 8, 1)},
    {LAYER("cas", "mode=vit grid=2x33", 2, 66, 5, 5)},
    {LAYER("cas", "mode=vit grid=9x65", 1, 585, 20, 1)},
    {LAYER("cas", "mode=vit grid=7x7", 3, 49, 130, 1)},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static void check_case(const fixture *f, int number, clattn_type type) {
    layer_case c = cases[number];
    c.seed = 70 + (uint64_t)number;
    c.type = type;
    check_layer_case(f, &c);
}

START_TEST(layers) { check_case(device(), _i, CLATTN_F32); }
END_TEST

/* Every kernel is another program in another type or shape, and programs take their time to compile: some of the
 * cases, of all kinds. */
enum { FEW = (CASES + 3) / 5 };

START_TEST(layers_in_16_bits) { check_case(device(), 5 * _i, _i % 2 ? CLATTN_F16 : CLATTN_BF16); }
END_TEST

START_TEST(layers_gpu_shaped) { check_case(&gpu_shaped, 5 * _i + 1, CLATTN_F32); }
END_TEST

/* A weight that a checkpoint may have, and CAS-ViT by default has not. */
START_TEST(vit_with_qkv_bias) {
    const layer_case c = {LAYER("cas", "mode=vit grid=5x6", 2, 30, 16, 1), .seed = 3};
    layer_data data;
    layer_data_make(&c, &data);
    rng r = rng_make(4);
    data.weights[data.weight_count++] =
        (ref_weight){.name = "qkv.bias", .rank = 1, .shape = {3 * c.d}, .data = rng_array(&r, 1, (size_t)3 * c.d)};
    const layer_run run = layer_run_of(&c, &data);
    const size_t count = (size_t)c.B * c.n * c.d;
    double *got = ref_array(count), *want = ref_array(count);
    expect_layer(c.variant, &data.settings, &run.ref, NULL, data.x, want);
    run_layer(device(), &run, data.x, got);
    assert_close("vit with qkv.bias", got, want, count, 2e-5);
    free(want);
    free(got);
    layer_data_free(&data);
}
END_TEST

/* ---- invariants of the layer ---- */

/* The layer of a case; x NULL is the case's own. */
static double *answer(const layer_case *c, const layer_data *data, const double *x) {
    const layer_run run = layer_run_of(c, data);
    double *y = ref_array((size_t)c->B * c->n * c->d);
    run_layer(device(), &run, x ? x : data->x, y);
    return y;
}

static void assert_same(const double *got, const double *want, size_t count, const char *what) {
    for (size_t e = 0; e < count; e++)
        ck_assert_msg(got[e] == want[e], "%s: element %zu is %.9g, was %.9g", what, e, got[e], want[e]);
}

static const double *weight_of(const layer_data *data, const char *name) {
    for (size_t w = 0; w < data->weight_count; w++)
        if (strcmp(data->weights[w].name, name) == 0)
            return data->weights[w].data;
    ck_abort_msg("no weight %s", name);
    return NULL;
}

START_TEST(rows_of_a_sequence_are_equal) {
    const int lengths[] = {100, 150, 0};
    const layer_case c = {LAYER("cas", "", 3, 150, 24, 3), PADDED(lengths), .seed = 5};
    layer_data data;
    layer_data_make(&c, &data);
    double *y = answer(&c, &data, NULL);
    const double *bias = weight_of(&data, "proj.bias");
    for (int row = 0; row < c.B * c.n; row++) {
        const int b = row / c.n;
        const double *first = row % c.n < lengths[b] ? y + (size_t)b * c.n * c.d : bias;
        assert_same(y + (size_t)row * c.d, first, c.d, row % c.n < lengths[b] ? "row" : "padding");
    }
    free(y);
    layer_data_free(&data);
}
END_TEST

START_TEST(conv_q_has_no_effect) {
    const layer_case c = {LAYER("cas", _i ? "causal" : "", 2, 70, 24, 3), .seed = 6};
    layer_data data;
    layer_data_make(&c, &data);
    double *before = answer(&c, &data, NULL), *again = answer(&c, &data, NULL);
    assert_same(again, before, (size_t)c.B * c.n * c.d, "second run");
    rng r = rng_make(7);
    const char *const free_weights[] = {"conv_q.weight", "conv_q.bias", "conv_k.bias"};
    for (int w = 0; w < 3; w++)
        rng_fill(&r, FILL_HUGE, (double *)weight_of(&data, free_weights[w]), (size_t)c.d * (w ? 1 : c.d * 3));
    double *after = answer(&c, &data, NULL);
    assert_same(after, before, (size_t)c.B * c.n * c.d, "with another conv_q");
    free(after);
    free(again);
    free(before);
    layer_data_free(&data);
}
END_TEST

START_TEST(causal_prefix_is_the_shorter_problem) {
    const layer_case c = {LAYER("cas", "causal", 1, 150, 24, 3), .kernel = 5, .seed = 8};
    layer_data data;
    layer_data_make(&c, &data);
    double *whole = answer(&c, &data, NULL);
    layer_case shorter = c;
    for (shorter.n = 1; shorter.n < c.n; shorter.n += 31) {
        double *y = answer(&shorter, &data, NULL);
        assert_close("prefix", y, whole, (size_t)shorter.n * c.d, 1e-6);
        free(y);
    }
    free(whole);
    layer_data_free(&data);
}
END_TEST

START_TEST(padded_batch_is_its_sequences_alone) {
    const layer_case c = {LAYER("cas", _i ? "causal" : "", 8, 200, 24, 3), PADDED(many), .seed = 9};
    layer_data data;
    layer_data_make(&c, &data);
    double *y = answer(&c, &data, NULL);
    for (int b = 0; b < c.B; b++) {
        layer_case alone = c;
        alone.B = 1;
        alone.lengths = NULL;
        if ((alone.n = many[b]) == 0)
            continue;
        double *one = answer(&alone, &data, data.x + (size_t)b * c.n * c.d);
        assert_close("sequence", y + (size_t)b * c.n * c.d, one, (size_t)alone.n * c.d, 2e-6);
        free(one);
    }
    free(y);
    layer_data_free(&data);
}
END_TEST

/* ---- mistakes ---- */

static void refuse_layer(clattn_cas_layer_desc desc, const char *fragment) {
    clattn_layer *layer = NULL;
    assert_refused(clattn_cas_layer(device()->context, &desc, &layer), CLATTN_INVALID_ARGUMENT, fragment);
    ck_assert_ptr_null(layer);
}

START_TEST(layer_mistakes) {
    refuse_layer((clattn_cas_layer_desc){.model_size = 0, .heads = 1}, "model_size is 0");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 0}, "heads is 0");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 3}, "heads is 3, but must divide model_size 8");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 2, .kernel = 4}, "kernel is 4");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 2, .kernel = 11}, "kernel is 11");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 2, .mode = 2}, "mode is 2");
    refuse_layer((clattn_cas_layer_desc){.model_size = 8, .heads = 1, .mode = CLATTN_CAS_VIT}, "grid height is 0");
    refuse_layer(
        (clattn_cas_layer_desc){.model_size = 8, .heads = 1, .mode = CLATTN_CAS_VIT, .grid = {2, 2}, .causal = true},
        "causal is set");
}
END_TEST

START_TEST(grid_and_length_must_agree) {
    const clattn_cas_layer_desc desc = {.model_size = 8, .heads = 1, .mode = CLATTN_CAS_VIT, .grid = {3, 4}};
    clattn_layer *layer = NULL;
    clattn_plan *plan = NULL;
    assert_ok(clattn_cas_layer(device()->context, &desc, &layer));
    clattn_layer_shape shape = {.batch = 1, .length = 13};
    assert_refused(clattn_layer_plan(layer, &shape, &plan), CLATTN_INVALID_SHAPE,
                   "grid 3x4 has 12 tokens, but length is 13");
    shape = (clattn_layer_shape){.batch = 1, .length = 12, .has_lengths = true};
    assert_refused(clattn_layer_plan(layer, &shape, &plan), CLATTN_INVALID_ARGUMENT, "whole images");
    clattn_layer_destroy(layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cas");
    TCase *layer = tcase_create("layer");
    tcase_add_unchecked_fixture(layer, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(layer, layers, 0, CASES);
    tcase_add_loop_test(layer, layers_in_16_bits, 0, FEW);
    tcase_add_loop_test(layer, layers_gpu_shaped, 0, FEW);
    tcase_add_test(layer, vit_with_qkv_bias);
    tcase_add_test(layer, rows_of_a_sequence_are_equal);
    tcase_add_loop_test(layer, conv_q_has_no_effect, 0, 2);
    tcase_add_test(layer, causal_prefix_is_the_shorter_problem);
    tcase_add_loop_test(layer, padded_batch_is_its_sequences_alone, 0, 2);
    suite_add_tcase(suite, layer);

    TCase *mistakes = tcase_create("mistakes");
    tcase_add_test(mistakes, layer_mistakes);
    tcase_add_test(mistakes, grid_and_length_must_agree);
    suite_add_tcase(suite, mistakes);
    return run_device_suite(suite);
}
