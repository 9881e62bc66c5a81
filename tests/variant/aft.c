/* The aft family: layers against their references at the edges of blocks, invariants, refusals. */
#include <clattn/aft.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/layer_case.h"
#include "harness/rng.h"
#include "harness/storage.h"

enum { SCAN = 32, SUM = 64, PART = 256 }; /* tokens of a block: scans, sums, parts and key blocks */

/* ---- layers against the reference ---- */

static const int mixed[] = {SUM + 1, 0, SUM, 1, 40}, two[] = {300, 257}, narrow[] = {SCAN + 1, SCAN};

#define PADDED(lengths_) .lengths = lengths_, .padding_nan = true

static const layer_case cases[] = {
    /* 5 n > 4 d: without K and V; else with them */
    {LAYER("aft", "mode=gated", 1, 1, 8, 1)},
    {LAYER("aft", "mode=gated", 5, SUM + 1, 81, 3), PADDED(mixed)},
    {LAYER("aft", "mode=gated", 2, PART + 44, 24, 3), PADDED(two)},
    {LAYER("aft", "mode=gated", 1, 601, 47, 1)},
    {LAYER("aft", "mode=gated", 5, SUM + 1, 82, 2), PADDED(mixed)},
    {LAYER("aft", "mode=gated causal", 1, 1, 7, 7)},
    {LAYER("aft", "mode=gated causal", 2, SUM, 40, 5)},
    {LAYER("aft", "mode=gated causal", 5, SUM + 1, 33, 3), PADDED(mixed)},

    {LAYER("aft", "mode=gated-matrix", 1, 1, 8, 1)},
    {LAYER("aft", "mode=gated-matrix", 2, PART + 44, 33, 3), PADDED(two)},
    {LAYER("aft", "mode=gated-matrix causal", 2, PART + 1, 40, 5)},
    {LAYER("aft", "mode=gated-matrix causal", 5, SUM + 1, 14, 2), PADDED(mixed)},
    {LAYER("aft", "mode=gated-matrix", 1, 9, 256, 1)},

    {LAYER("aft", "mode=full", 1, 1, 8, 1)},
    {LAYER("aft", "mode=full", 2, PART + 44, 21, 3), PADDED(two), .table = 311},
    {LAYER("aft", "mode=full causal", 2, PART + 1, 13, 1), .rank = 5},
    {LAYER("aft", "mode=full causal", 5, SUM + 1, 24, 2), PADDED(mixed), .spread = 100},
    {LAYER("aft", "mode=full", 1, SUM, 140, 2), .rank = 1, .table = 70},

    {LAYER("aft", "mode=local", 1, 1, 8, 1)},
    {LAYER("aft", "mode=local local=1", 2, SCAN + 1, 24, 3), PADDED(narrow)},
    {LAYER("aft", "mode=local local=33", 2, PART + 44, 7, 1), PADDED(two), .rank = 3},
    {LAYER("aft", "mode=local local=9999", 5, SUM + 1, 12, 3), PADDED(mixed)},
    {LAYER("aft", "mode=local local=6 causal", 5, SUM + 1, 21, 3), PADDED(mixed), .spread = 100},
    {LAYER("aft", "mode=local local=40 causal", 1, 131, 17, 1), .rank = 2, .table = 200},

    {LAYER("aft", "mode=simple", 1, 1, 8, 1)},
    {LAYER("aft", "mode=simple", 5, SUM + 1, 21, 3), PADDED(mixed), .spread = 100},
    {LAYER("aft", "mode=simple causal", 5, SUM + 1, 21, 3), PADDED(mixed)},
    {LAYER("aft", "mode=simple causal", 1, 131, 40, 1), .spread = 1000},

    {LAYER("aft", "mode=conv", 1, 1, 8, 1)},
    {LAYER("aft", "mode=conv", 2, SCAN, 24, 3), .kernel = 1},
    {LAYER("aft", "mode=conv", 5, SUM + 1, 21, 3), PADDED(mixed), .kernel = 9, .reparam = true},
    {LAYER("aft", "mode=conv causal", 2, SCAN + 1, 40, 2), PADDED(narrow), .kernel = 3},
    {LAYER("aft", "mode=conv causal", 1, 20, 18, 2), .kernel = 131, .spread = 30},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static void check_case(const fixture *f, int number) {
    layer_case c = cases[number];
    c.seed = 170 + (uint64_t)number;
    check_layer_case(f, &c);
}

START_TEST(layers) { check_case(device(), _i); }
END_TEST

START_TEST(layers_gpu_shaped) { check_case(&gpu_shaped, _i); }
END_TEST

/* ---- invariants of the layer ---- */

static const char *const causal_modes[] = {"mode=gated causal",         "mode=gated-matrix causal", "mode=full causal",
                                           "mode=local local=7 causal", "mode=simple causal",       "mode=conv causal"};
static const char *const modes[] = {"mode=gated",         "mode=gated-matrix", "mode=full",
                                    "mode=local local=7", "mode=simple",       "mode=conv"};

enum { MODES = 6 };

/* The layer of a case; x NULL is the case's own. */
static double *answer(const layer_case *c, const layer_data *data, const double *x) {
    const layer_run run = layer_run_of(c, data);
    double *y = ref_array((size_t)c->B * c->n * c->d);
    run_layer(device(), &run, x ? x : data->x, y);
    return y;
}

/* A later key of any size, even NaN, is nothing to an earlier query. */
START_TEST(causal_prefix_is_the_shorter_problem) {
    const layer_case c = {LAYER("aft", causal_modes[_i], 1, 150, 24, 3), .table = 150, .seed = 8};
    layer_data data;
    layer_data_make(&c, &data);
    layer_case shorter = c;
    for (shorter.n = 1; shorter.n < c.n; shorter.n += 50) {
        double *x = ref_array((size_t)c.n * c.d);
        memcpy(x, data.x, (size_t)c.n * c.d * sizeof(double));
        for (int e = shorter.n * c.d; e < c.n * c.d; e++)
            x[e] = shorter.n % 100 == 1 ? 1e4 * x[e] : NAN;
        double *y = answer(&shorter, &data, NULL), *whole = answer(&c, &data, x);
        assert_close("prefix", y, whole, (size_t)shorter.n * c.d, 2e-6);
        free(whole);
        free(y);
        free(x);
    }
    layer_data_free(&data);
}
END_TEST

START_TEST(padded_batch_is_its_sequences_alone) {
    const layer_case c = {LAYER("aft", _i < MODES ? modes[_i] : causal_modes[_i - MODES], 5, SUM + 1, 24, 3),
                          PADDED(mixed), .seed = 9};
    layer_data data;
    layer_data_make(&c, &data);
    double *y = answer(&c, &data, NULL);
    for (int b = 0; b < c.B; b++) {
        layer_case alone = c;
        alone.B = 1;
        alone.lengths = NULL;
        if ((alone.n = mixed[b]) == 0)
            continue;
        double *one = answer(&alone, &data, data.x + (size_t)b * c.n * c.d);
        assert_close("sequence", y + (size_t)b * c.n * c.d, one, (size_t)alone.n * c.d, 3e-6);
        free(one);
    }
    free(y);
    layer_data_free(&data);
}
END_TEST

START_TEST(the_same_bits_twice) {
    const layer_case c = {LAYER("aft", _i < MODES ? modes[_i] : causal_modes[_i - MODES], 2, 133, 24, 3), .seed = 10};
    layer_data data;
    layer_data_make(&c, &data);
    double *once = answer(&c, &data, NULL), *twice = answer(&c, &data, NULL);
    ck_assert(memcmp(once, twice, (size_t)c.B * c.n * c.d * sizeof(double)) == 0);
    free(twice);
    free(once);
    layer_data_free(&data);
}
END_TEST

/* ---- refusals ---- */

static clattn_aft_layer_desc desc_of(int mode) {
    return (clattn_aft_layer_desc){.model_size = 24, .heads = 3, .mode = mode, .local = 4, .max_length = 10, .taps = 5};
}

static void refuse(const clattn_aft_layer_desc *desc, clattn_status wanted, const char *fragment) {
    clattn_layer *layer = NULL;
    assert_refused(clattn_aft_layer(device()->context, desc, &layer), wanted, fragment);
    ck_assert_ptr_null(layer);
}

START_TEST(bad_descriptions_are_refused) {
    clattn_aft_layer_desc d = desc_of(CLATTN_AFT_GATED);
    d.heads = 5;
    refuse(&d, CLATTN_INVALID_ARGUMENT, "24");
    d = desc_of(6);
    refuse(&d, CLATTN_INVALID_ARGUMENT, "mode is 6");
    d = desc_of(CLATTN_AFT_LOCAL);
    d.local = 0;
    refuse(&d, CLATTN_INVALID_ARGUMENT, "local is 0");
    d = desc_of(CLATTN_AFT_CONV);
    d.taps = 4;
    refuse(&d, CLATTN_INVALID_ARGUMENT, "taps is 4");
    d = desc_of(CLATTN_AFT_FULL);
    d.max_length = 0;
    refuse(&d, CLATTN_INVALID_ARGUMENT, "max_length");
    d = desc_of(CLATTN_AFT_GATED_MATRIX);
    d.model_size = 771;
    refuse(&d, CLATTN_UNSUPPORTED, "257");
}
END_TEST

START_TEST(longer_than_the_table_is_refused) {
    const clattn_aft_layer_desc d = desc_of(CLATTN_AFT_FULL);
    const clattn_layer_shape shape = {.batch = 1, .length = 11};
    clattn_layer *layer = NULL;
    clattn_plan *plan = NULL;
    assert_ok(clattn_aft_layer(device()->context, &d, &layer));
    assert_refused(clattn_layer_plan(layer, &shape, &plan), CLATTN_INVALID_SHAPE, "11 tokens, but w has 10 rows");
    clattn_layer_destroy(layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("aft");
    TCase *against = tcase_create("reference"), *properties = tcase_create("properties");
    tcase_add_unchecked_fixture(against, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(against, layers, 0, CASES);
    tcase_add_loop_test(against, layers_gpu_shaped, 0, CASES);
    suite_add_tcase(suite, against);
    tcase_add_loop_test(properties, causal_prefix_is_the_shorter_problem, 0, MODES);
    tcase_add_loop_test(properties, padded_batch_is_its_sequences_alone, 0, 2 * MODES);
    tcase_add_loop_test(properties, the_same_bits_twice, 0, 2 * MODES);
    tcase_add_test(properties, bad_descriptions_are_refused);
    tcase_add_test(properties, longer_than_the_table_is_refused);
    suite_add_tcase(suite, properties);
    return run_device_suite(suite);
}
