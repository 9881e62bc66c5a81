/* The dense core: against its reference at the edges of blocks and masks, invariants, and what it refuses. Cases with
 * at most FEW queries take the split plan, the others the tile plan. */
#include <clattn/dense.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/dense_case.h"
#include "harness/rng.h"
#include "harness/run.h"

/* Queries of a micro-tile, of a block, and keys of a block on an 8-wide CPU. */
enum { FEW = 6, ROWS = 12, KEYS = 256 };

#define TOP_LEFT CLATTN_CAUSAL_TOP_LEFT
#define BOTTOM_RIGHT CLATTN_CAUSAL_BOTTOM_RIGHT

#define BY_TOKEN                                                                                                       \
    { .by_token = true }
#define WIDE_ROWS                                                                                                      \
    { .gap = 5 }
#define BOTH                                                                                                           \
    { .by_token = true, .gap = 3 }

static const int keys_of_three[] = {37, 0, 20}, queries_of_three[] = {19, 19, 0}, odd_lengths[] = {-4, 1000, 1};
static const int keys_of_few[] = {301, 0, 7}, queries_of_few[] = {4, 4, 2};

#define SIZES(B_, H_, M_, N_, D_) .B = B_, .H = H_, .M = M_, .N = N_, .D = D_
#define WINDOW(left_, right_) .windowed = true, .left = left_, .right = right_

/* ---- shapes and edges ---- */

static const dense_case shapes[] = {
    {SIZES(1, 1, 1, 1, 16)},
    {SIZES(2, 3, ROWS - 1, KEYS - 1, 16)},
    {SIZES(2, 3, ROWS, KEYS, 16)},
    {SIZES(2, 3, ROWS + 1, KEYS + 1, 16)},
    {SIZES(1, 2, 61, 3 * KEYS - 7, 16), .no_lse = true},
    {SIZES(1, 1, FEW, 17, 16)},
    {SIZES(1, 1, FEW + 1, 17, 16)},
    {SIZES(1, 2, 1, 1000, 16)},
    {SIZES(2, 1, 2, 127, 16), .no_lse = true},
    {SIZES(2, 1, 3, 128, 16)},
    {SIZES(2, 1, FEW, 129, 16)},
    {SIZES(1, 1, 5, 4099, 16)},
    {SIZES(3, 5, 29, 31, 16)}, /* heads and batches in every work-group axis */
    {SIZES(70, 66, 1, 3, 16)}, /* thousands of heads: both plans */
    {SIZES(70, 66, FEW + 1, 3, 16)},
    /* grouped heads */
    {SIZES(2, 6, 30, 40, 16), .HKV = 2},
    {SIZES(2, 6, 30, 40, 16), .HKV = 1, .causal = TOP_LEFT},
    {SIZES(2, 6, 2, 300, 16), .HKV = 2},
    {SIZES(1, 8, 1, 300, 16), .HKV = 1},
    {SIZES(2, 12, 5, 300, 16), .HKV = 2, .causal = BOTTOM_RIGHT, .nan = true},
    /* value head size apart */
    {SIZES(1, 2, 30, 40, 16), .DV = 40},
    {SIZES(1, 2, 3, 40, 16), .DV = 5},
    /* layouts */
    {SIZES(2, 3, 30, 40, 16), .q = BY_TOKEN, .kv = BY_TOKEN, .o = BY_TOKEN},
    {SIZES(2, 3, 30, 40, 16), .q = WIDE_ROWS, .kv = WIDE_ROWS, .o = WIDE_ROWS},
    {SIZES(2, 3, 30, 40, 16), .q = BOTH, .kv = WIDE_ROWS, .o = BOTH, .HKV = 1},
    {SIZES(2, 3, 4, 200, 16), .q = BY_TOKEN, .kv = BY_TOKEN, .o = BY_TOKEN},
    {SIZES(2, 3, 4, 200, 16), .q = WIDE_ROWS, .kv = BOTH, .o = BOTH, .HKV = 1, .DV = 40},
    /* bias, one axis after the other broadcast; -inf entries, some rows hidden whole */
    {SIZES(2, 3, 30, 40, 16), .bias = BIAS_FULL},
    {SIZES(2, 3, 30, 40, 16), .bias = BIAS_FULL & ~BIAS_BATCH, .hidden = 0.3},
    {SIZES(2, 3, 30, 40, 16), .bias = BIAS_FULL & ~BIAS_HEAD, .hidden = 0.3},
    {SIZES(2, 3, 30, 40, 16), .bias = BIAS_FULL & ~BIAS_QUERY, .hidden = 0.9, .causal = TOP_LEFT},
    {SIZES(2, 3, 30, 600, 16), .bias = BIAS_KEY, .hidden = 0.97},
    {SIZES(2, 3, 30, 40, 16), .bias = BIAS_FULL, .hidden = 1},
    {SIZES(2, 4, 4, 300, 16), .HKV = 2, .bias = BIAS_FULL, .hidden = 0.5},
    {SIZES(2, 4, 4, 300, 16), .HKV = 2, .bias = BIAS_HEAD | BIAS_KEY, .hidden = 0.99, .causal = BOTTOM_RIGHT},
    {SIZES(2, 4, 4, 300, 16), .HKV = 2, .bias = BIAS_QUERY | BIAS_KEY, .hidden = 1},
};

START_TEST(shapes_agree) {
    dense_case c = shapes[_i];
    c.seed = 100 + (uint64_t)_i;
    check_dense_case(device(), &c);
}
END_TEST

static const int head_sizes[] = {1, 3, 40, 65, 80, 96, 128, 255, 256};

START_TEST(head_sizes_agree) {
    const dense_case tile = {SIZES(1, 2, 14, 35, head_sizes[_i]), .causal = TOP_LEFT};
    const dense_case split = {SIZES(1, 2, 2, 150, head_sizes[_i]), .causal = BOTTOM_RIGHT};
    check_dense_case(device(), &tile);
    check_dense_case(device(), &split);
}
END_TEST

/* ---- masks: what nobody sees is NaN in all of these ---- */

static const dense_case masks[] = {
    {SIZES(2, 2, 37, 37, 16), .causal = TOP_LEFT},
    {SIZES(2, 2, 20, 50, 16), .causal = TOP_LEFT},
    {SIZES(2, 2, 50, 20, 16), .causal = TOP_LEFT},
    {SIZES(2, 2, 20, 50, 16), .causal = BOTTOM_RIGHT},
    {SIZES(2, 2, 50, 20, 16), .causal = BOTTOM_RIGHT}, /* the first 30 queries see nothing */
    {SIZES(2, 2, 4, 301, 16), .causal = TOP_LEFT},
    {SIZES(2, 2, 4, 301, 16), .causal = BOTTOM_RIGHT},
    {SIZES(2, 2, 6, 3, 16), .causal = BOTTOM_RIGHT},
    {SIZES(3, 2, 19, 37, 16), .key_lengths = keys_of_three},
    {SIZES(3, 2, 19, 37, 16), .key_lengths = keys_of_three, .query_lengths = queries_of_three, .causal = TOP_LEFT},
    {SIZES(3, 2, 19, 37, 16), .key_lengths = keys_of_three, .query_lengths = queries_of_three, .causal = BOTTOM_RIGHT},
    {SIZES(3, 2, 19, 37, 16), .key_lengths = keys_of_three, .causal = BOTTOM_RIGHT, WINDOW(3, 2)},
    {SIZES(3, 2, 19, 37, 16), .key_lengths = odd_lengths},
    {SIZES(3, 2, 4, 301, 16), .key_lengths = keys_of_few, .query_lengths = queries_of_few},
    {SIZES(3, 2, 4, 301, 16), .key_lengths = keys_of_few, .query_lengths = queries_of_few, .causal = BOTTOM_RIGHT},
    {SIZES(3, 2, 4, 301, 16), .key_lengths = keys_of_few, .causal = BOTTOM_RIGHT, WINDOW(130, -1)},
    {SIZES(3, 2, 4, 301, 16), .key_lengths = odd_lengths, .bias = BIAS_FULL, .hidden = 0.5},
    {SIZES(1, 2, 3, 2000, 16), WINDOW(1, 900)},
    {SIZES(1, 2, 30, 900, 16), WINDOW(2, 500)},
    {SIZES(1, 1, 40, 40, 16), WINDOW(0, 0)},
    {SIZES(1, 1, 40, 40, 16), WINDOW(1000, 1000)},
    {SIZES(1, 1, 40, 40, 16), WINDOW(-1, -1)},
    {SIZES(1, 1, 40, 40, 16), WINDOW(5, 7), .causal = TOP_LEFT},
    {SIZES(1, 1, 40, 60, 16), WINDOW(5, 0), .causal = BOTTOM_RIGHT},
};

START_TEST(masks_agree) {
    dense_case c = masks[_i];
    c.seed = 300 + (uint64_t)_i;
    c.nan = true;
    check_dense_case(device(), &c);
}
END_TEST

/* jax #39576, flash-attention #1133: each bound alone, off by one on either side. */
START_TEST(window_bounds_are_inclusive) {
    const int left = _i % 4 - 1, right = _i / 4 - 1;
    const dense_case tile = {SIZES(1, 1, 9, 9, 4), WINDOW(left, right), .nan = true};
    const dense_case split = {SIZES(1, 1, 5, 9, 4), WINDOW(left, right), .nan = true};
    check_dense_case(device(), &tile);
    check_dense_case(device(), &split);
}
END_TEST

/* transformers #39408: (S - 1, 0) hides nothing that causal shows. */
START_TEST(window_of_length_is_causal) {
    dense_case c = {SIZES(2, 2, 41, 41, 16), WINDOW(40, 0), .seed = 7};
    dense_data data;
    double *window, *causal, *lse;
    dense_data_make(&c, &data);
    dense_run(device(), &c, &data, &window, &lse);
    free(lse);
    c.windowed = false;
    c.causal = TOP_LEFT;
    dense_run(device(), &c, &data, &causal, &lse);
    ck_assert_mem_eq(window, causal, data.o_count * sizeof(double));
    free(lse);
    free(causal);
    free(window);
    dense_data_free(&data);
}
END_TEST

/* ---- numbers ---- */

/* metal-flash-attention #8: scores of thousands, in every storage type. */
START_TEST(thousandfold_logits_stay_exact) {
    const dense_case tile = {SIZES(1, 2, 30, 300, 16), .type = (clattn_type)_i, .deviation = 1000, .tolerance = 5e-3};
    const dense_case split = {SIZES(1, 2, 3, 300, 16), .type = (clattn_type)_i, .deviation = 1000, .tolerance = 5e-3};
    check_dense_case(device(), &tile);
    check_dense_case(device(), &split);
}
END_TEST

static const dense_case stored[] = {
    {SIZES(2, 3, 30, 40, 16), .causal = TOP_LEFT, .nan = true},
    {SIZES(2, 3, 30, 40, 24), .HKV = 1, .DV = 9, .bias = BIAS_FULL, .hidden = 0.3, .q = BOTH, .kv = BOTH, .o = BOTH},
    {SIZES(3, 2, 4, 301, 16), .key_lengths = keys_of_few, .causal = BOTTOM_RIGHT, .nan = true},
    {SIZES(2, 3, 5, 200, 24), .HKV = 1, .DV = 9, .bias = BIAS_FULL, .hidden = 0.3, .q = BOTH, .kv = BOTH, .o = BOTH},
};

START_TEST(storage_types_agree) {
    dense_case c = stored[_i / 2];
    c.type = _i % 2 ? CLATTN_BF16 : CLATTN_F16;
    check_dense_case(device(), &c);
}
END_TEST

START_TEST(off_alignment_agrees) {
    device()->shift = 1; /* until aligned_again */
    dense_case c = stored[_i / 2];
    c.type = _i % 2 ? CLATTN_F16 : CLATTN_F32;
    check_dense_case(device(), &c);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

START_TEST(scale_is_taken) {
    const dense_case c = {SIZES(1, 2, 30, 40, 16), .scale = -0.7f};
    check_dense_case(device(), &c);
}
END_TEST

/* ---- what broke elsewhere ---- */

/* o and lse of the first `sane` queries. */
static void check_rows(const dense_case *c, const dense_data *data, int sane) {
    double *o, *lse;
    dense_run(device(), c, data, &o, &lse);
    for (int bh = 0; bh < c->B * c->H; bh++) {
        const size_t at = (size_t)bh * c->M;
        assert_close("o", o + at * c->D, data->o + at * c->D, (size_t)sane * c->D, 2e-5);
        assert_close("lse", lse + at, data->lse + at, (size_t)sane, 2e-5);
    }
    free(o);
    free(lse);
}

/* pytorch #101967: a NaN, or an Inf, in a later key or value reaches no earlier query. */
START_TEST(nan_in_the_causal_triangle_stays_there) {
    const dense_case c = {SIZES(2, 2, _i ? 30 : 5, _i ? 30 : 5, 16), .causal = TOP_LEFT};
    const int last = c.N - 2;
    dense_data data;
    dense_data_make(&c, &data);
    for (int bh = 0; bh < c.B * c.H; bh++)
        for (int e = last * c.D; e < c.N * c.D; e++) {
            data.k[(size_t)bh * c.N * c.D + e] = e % 2 ? NAN : INFINITY;
            data.v[(size_t)bh * c.N * c.D + e] = e % 2 ? INFINITY : NAN;
        }
    check_rows(&c, &data, last);
    dense_data_free(&data);
}
END_TEST

/* The same behind a bias of -inf, in the middle of what a row sees. */
START_TEST(nan_behind_a_bias_stays_there) {
    const dense_case c = {SIZES(1, 2, _i ? 30 : 3, 50, 16), .bias = BIAS_KEY};
    dense_data data;
    dense_data_make(&c, &data);
    data.bias[20] = data.bias[21] = -INFINITY;
    ref_dense_core(&data.ref, data.o, data.lse);
    for (int h = 0; h < c.H; h++)
        for (int e = 0; e < 2 * c.D; e++)
            data.v[((size_t)h * c.N + 20) * c.D + e] = NAN;
    check_rows(&c, &data, c.M);
    dense_data_free(&data);
}
END_TEST

/* pytorch #41508, burn #4697, vllm #48364: causal and bias together empty a row; its neighbours do not notice. */
START_TEST(fully_masked_row_gives_zero) {
    const dense_case c = {SIZES(1, 2, _i ? 30 : 4, _i ? 30 : 4, 16), .causal = TOP_LEFT, .bias = BIAS_KEY};
    dense_data data;
    double *o, *lse;
    dense_data_make(&c, &data);
    data.bias[0] = data.bias[1] = -INFINITY;
    ref_dense_core(&data.ref, data.o, data.lse);
    dense_run(device(), &c, &data, &o, &lse);
    for (int h = 0; h < c.H; h++)
        for (int i = 0; i < 2; i++) {
            ck_assert(lse[h * c.M + i] == -INFINITY);
            for (int e = 0; e < c.D; e++)
                ck_assert(o[(h * c.M + i) * c.D + e] == 0);
        }
    assert_close("o", o, data.o, data.o_count, 2e-5);
    free(o);
    free(lse);
    dense_data_free(&data);
}
END_TEST

/* pytorch #141218: B, H, M or N of 0. */
START_TEST(nothing_to_do_is_done) {
    static const dense_case empty[] = {{SIZES(0, 2, 3, 4, 16)},  {SIZES(2, 0, 3, 4, 16)},  {SIZES(2, 2, 0, 4, 16)},
                                       {SIZES(2, 2, 3, 0, 16)},  {SIZES(2, 2, 30, 0, 16)}, {SIZES(0, 0, 0, 0, 16)},
                                       {SIZES(0, 2, 30, 4, 16)}, {SIZES(2, 0, 30, 4, 16)}};
    check_dense_case(device(), &empty[_i]);
}
END_TEST

static TCase *add(Suite *suite, const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, NULL, aligned_again);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void) {
    Suite *suite = suite_create("dense");
    TCase *values = add(suite, "values"), *seen = add(suite, "masks"), *numbers = add(suite, "numbers");
    tcase_add_loop_test(values, shapes_agree, 0, sizeof(shapes) / sizeof(*shapes));
    tcase_add_loop_test(values, head_sizes_agree, 0, sizeof(head_sizes) / sizeof(*head_sizes));
    tcase_add_loop_test(values, nothing_to_do_is_done, 0, 8);
    tcase_add_loop_test(seen, masks_agree, 0, sizeof(masks) / sizeof(*masks));
    tcase_add_loop_test(seen, window_bounds_are_inclusive, 0, 16);
    tcase_add_test(seen, window_of_length_is_causal);
    tcase_add_loop_test(seen, nan_in_the_causal_triangle_stays_there, 0, 2);
    tcase_add_loop_test(seen, nan_behind_a_bias_stays_there, 0, 2);
    tcase_add_loop_test(seen, fully_masked_row_gives_zero, 0, 2);
    tcase_add_loop_test(numbers, thousandfold_logits_stay_exact, 0, 3);
    tcase_add_loop_test(numbers, storage_types_agree, 0, 8);
    tcase_add_loop_test(numbers, off_alignment_agrees, 0, 8);
    tcase_add_test(numbers, scale_is_taken);
    return run_device_suite(suite);
}
