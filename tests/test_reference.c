/* The references' own sanity: properties that hold whatever the formula's code looks like. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/device.h"
#include "harness/layer_case.h"
#include "harness/rng.h"
#include "harness/storage.h"
#include "reference/reference.h"

static const double exact = 1e-12;

/* A random core problem, for attention_free. */
static ref_attention attention_make(uint64_t seed, int B, int H, int HKV, int M, int N, int D) {
    rng r = rng_make(seed);
    return (ref_attention){.B = B,
                           .H = H,
                           .HKV = HKV,
                           .M = M,
                           .N = N,
                           .D = D,
                           .DV = D,
                           .scale = 1 / sqrt(D),
                           .mask = ref_mask_make(false, NULL),
                           .q = rng_array(&r, 1, (size_t)B * H * M * D),
                           .k = rng_array(&r, 1, (size_t)B * HKV * N * D),
                           .v = rng_array(&r, 1, (size_t)B * HKV * N * D)};
}

static void attention_free(ref_attention *a) {
    free((void *)a->q);
    free((void *)a->k);
    free((void *)a->v);
}

static size_t outputs(const ref_attention *a) { return (size_t)a->B * a->H * a->M * a->DV; }

/* ---- dense ---- */

START_TEST(constant_values_come_back) {
    ref_attention a = attention_make(1, 2, 4, 2, 5, 7, 3);
    for (int e = 0; e < 2 * 2 * 7 * 3; e++)
        ((double *)a.v)[e] = 2.5;
    double *o = ref_array(outputs(&a)), *want = ref_array(outputs(&a));
    for (size_t e = 0; e < outputs(&a); e++)
        want[e] = 2.5;
    ref_dense_core(&a, o, NULL);
    assert_close("dense", o, want, outputs(&a), exact);
    ref_assa_topk_core(&a, 3, REF_SELECTED, o, NULL, NULL);
    assert_close("top-k", o, want, outputs(&a), exact);
    free(want);
    free(o);
    attention_free(&a);
}
END_TEST

/* Keys 0..2 and 3..6 apart, merged with the weights e^{lse}, give the whole. */
START_TEST(split_keys_merge_by_log_sum_exp) {
    ref_attention whole = attention_make(2, 1, 1, 1, 4, 7, 3), first = whole, second = whole;
    first.N = 3;
    second.N = 4;
    second.k += 3 * 3;
    second.v += 3 * 3;
    double o[3][12], lse[3][4];
    ref_dense_core(&whole, o[0], lse[0]);
    ref_dense_core(&first, o[1], lse[1]);
    ref_dense_core(&second, o[2], lse[2]);
    for (int e = 0; e < 12; e++) {
        double w1 = exp(lse[1][e / 3] - lse[0][e / 3]), w2 = exp(lse[2][e / 3] - lse[0][e / 3]);
        ck_assert_double_eq_tol(w1 + w2, 1, exact);
        ck_assert_double_eq_tol(w1 * o[1][e] + w2 * o[2][e], o[0][e], exact);
    }
    attention_free(&whole);
}
END_TEST

/* The first 4 rows of 9 causal ones are the causal answer for 4. */
START_TEST(causal_prefix_is_the_shorter_problem) {
    ref_attention whole = attention_make(3, 1, 1, 1, 9, 9, 3), prefix = whole;
    whole.mask.causal = prefix.mask.causal = true;
    prefix.M = prefix.N = 4;
    double o[27], p[12];
    ref_dense_core(&whole, o, NULL);
    ref_dense_core(&prefix, p, NULL);
    assert_close("prefix", o, p, 12, exact);
    attention_free(&whole);
}
END_TEST

/* Bottom-right with more queries than keys: the first M − N rows see nothing. A −inf bias empties one more. */
START_TEST(empty_rows_are_zero) {
    ref_attention a = attention_make(4, 1, 1, 1, 6, 4, 2);
    a.mask.causal = a.mask.bottom_right = true;
    double bias[6] = {0, 0, 0, -INFINITY, 0, 0}, o[12], lse[6];
    a.bias = bias;
    a.bias_stride[2] = 1;
    ref_dense_core(&a, o, lse);
    for (int i = 0; i < 6; i++) {
        ck_assert((lse[i] == -INFINITY) == (i < 2 || i == 3));
        ck_assert((o[2 * i] == 0 && o[2 * i + 1] == 0) == (i < 2 || i == 3));
    }
    attention_free(&a);
}
END_TEST

START_TEST(masks_are_inclusive) {
    ref_mask mask = ref_mask_make(false, NULL);
    mask.window_left = 2;
    mask.window_right = 1;
    for (int j = 0; j < 10; j++)
        ck_assert(ref_sees(&mask, 0, 5, j, 10, 10) == (j >= 3 && j <= 6));
    ref_mask causal = ref_mask_make(true, NULL), window = ref_mask_make(false, NULL);
    window.window_left = 9;
    window.window_right = 0;
    for (int e = 0; e < 100; e++)
        ck_assert(ref_sees(&causal, 0, e / 10, e % 10, 10, 10) == ref_sees(&window, 0, e / 10, e % 10, 10, 10));
}
END_TEST

/* NaN behind the lengths changes nothing, and a padded batch equals its sequences alone. */
START_TEST(padding_does_not_leak) {
    const int lengths[] = {6, 2};
    ref_attention a = attention_make(5, 2, 1, 1, 6, 6, 3), alone = a;
    a.mask = ref_mask_make(false, lengths);
    double o[36], p[6], zero[12] = {0};
    for (int e = 18 + 6; e < 36; e++)
        ((double *)a.q)[e] = ((double *)a.k)[e] = ((double *)a.v)[e] = NAN;
    ref_dense_core(&a, o, NULL);
    alone.B = 1;
    alone.M = alone.N = 2;
    alone.q += 18;
    alone.k += 18;
    alone.v += 18;
    ref_dense_core(&alone, p, NULL);
    assert_close("alone", o + 18, p, 6, exact);
    assert_close("padding", o + 24, zero, 12, exact);
    attention_free(&a);
}
END_TEST

/* ---- assa ---- */

START_TEST(topk_takes_the_lowest_key_of_a_tie) {
    double q[1] = {1}, k[6] = {1, 3, 2, 3, 2, 2}, v[6] = {1, 2, 4, 8, 16, 32}, o, kept[4];
    int indices[4];
    const int wanted[4] = {1, 3, 2, 4};
    ref_attention a = {.B = 1, .H = 1, .HKV = 1, .M = 1, .N = 6, .D = 1, .DV = 1, .scale = 1, .q = q, .k = k, .v = v};
    a.mask = ref_mask_make(false, NULL);
    ref_assa_topk_core(&a, 4, REF_SELECTED, &o, indices, kept);
    ck_assert_mem_eq(indices, wanted, sizeof(wanted));
    double e = exp(-1);
    ck_assert_double_eq_tol(o, (2 + 8 + 4 * e + 16 * e) / (2 + 2 * e), exact);
    ref_assa_topk_core(&a, 4, REF_ALL, &o, NULL, NULL);
    ck_assert_double_eq_tol(o, (2 + 8 + 4 * e + 16 * e) / (2 + 3 * e + e * e), exact);
}
END_TEST

/* ---- gradients ---- */

enum { DENSE, SELECTED, ALL, ADAPTIVE, KINDS };

/* Σ o grad_o of a core as a function of its inputs; w, bias, of ADAPTIVE. */
typedef struct core_loss {
    ref_attention *a;
    int kind;
    double *w, *bias, *grad_o;
} core_loss;

static double loss_of(const core_loss *l) {
    double *o = ref_array(outputs(l->a)), sum = 0;
    if (l->kind == DENSE)
        ref_dense_core(l->a, o, NULL);
    else if (l->kind == ADAPTIVE)
        ref_assa_adaptive_core(l->a, l->w, o);
    else
        ref_assa_topk_core(l->a, 3, l->kind == ALL ? REF_ALL : REF_SELECTED, o, NULL, NULL);
    for (size_t e = 0; e < outputs(l->a); e++)
        sum += o[e] * l->grad_o[e];
    free(o);
    return sum;
}

static void check_slopes(const core_loss *l, const char *name, const double *values, size_t count, const double *got) {
    const double h = 1e-5;
    double *want = ref_array(count), *moved = (double *)values;
    for (size_t e = 0; e < count; e++) {
        const double kept = moved[e];
        moved[e] = kept + h;
        want[e] = loss_of(l);
        moved[e] = kept - h;
        want[e] = isinf(kept) ? 0 : (want[e] - loss_of(l)) / (2 * h);
        moved[e] = kept;
    }
    assert_close(name, got, want, count, 1e-8);
    free(want);
}

/* 2 x 6 tokens in windows of 2 x 2, rolled; heads share keys. */
START_TEST(gradients_are_slopes) {
    const ref_grid grid = {2, 6, 2, 1};
    const int n = 12, heads = 4;
    ref_attention a = attention_make(30, 2, heads, 2, n, n, 3);
    rng r = rng_make(31);
    const size_t rows = (size_t)2 * heads * n, keys = rows / 2 * 3;
    double *table = rng_array(&r, 1, 9 * heads), *bias = ref_array((size_t)heads * n * n), grad_w[2] = {0, 0};
    const core_loss l = {&a, _i, rng_array(&r, 1, 2), bias, rng_array(&r, 1, outputs(&a))};
    const ref_gradients g = {ref_array(rows * 3), ref_array(keys), ref_array(keys), ref_array(rows * n)};
    a.mask.causal = _i != ADAPTIVE;
    ref_assa_window_bias(&grid, heads, table, bias);
    if (_i == ADAPTIVE) {
        const ptrdiff_t strides[] = {0, n * n, n, 1};
        a.bias = bias;
        memcpy(a.bias_stride, strides, sizeof strides);
        ref_assa_adaptive_gradients(&a, l.w, l.grad_o, &g, grad_w);
        check_slopes(&l, "w", l.w, 2, grad_w);
        for (size_t e = 0; e < rows / 2 * n; e++)
            g.bias[e] += g.bias[rows / 2 * n + e]; /* both sequences have it */
        check_slopes(&l, "bias", bias, rows / 2 * n, g.bias);
    } else if (_i == DENSE) {
        ref_dense_gradients(&a, l.grad_o, &g);
    } else {
        ref_assa_topk_gradients(&a, 3, _i == ALL ? REF_ALL : REF_SELECTED, l.grad_o, &g);
    }
    check_slopes(&l, "q", a.q, rows * 3, g.q);
    check_slopes(&l, "k", a.k, keys, g.k);
    check_slopes(&l, "v", a.v, keys, g.v);
    double *const owned[] = {table, bias, l.w, l.grad_o, g.q, g.k, g.v, g.bias};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    attention_free(&a);
}
END_TEST

/* Windows as a bias over the whole sequence are the layer's windows. */
START_TEST(windows_are_a_bias) {
    const ref_grid grid = {4, 6, 2, 1};
    rng r = rng_make(33);
    double *table = rng_array(&r, 1, 9), *bias = ref_array(24 * 24), *x = rng_array(&r, 1, 24 * 3), w[2] = {0.3, -0.2};
    double eye[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, both[18] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1};
    double y[72], o[72];
    const ref_weight weights[] = {{"qkv.to_q.weight", 2, {3, 3}, eye},
                                  {"qkv.to_kv.weight", 2, {6, 3}, both},
                                  {"proj.weight", 2, {3, 3}, eye},
                                  {"w", 1, {2}, w},
                                  {"relative_position_bias_table", 2, {9, 1}, table}};
    const ref_layer layer = {.B = 1, .n = 24, .d = 3, .H = 1, .weights = weights, .weight_count = 5};
    ref_attention a = {.B = 1, .H = 1, .HKV = 1, .M = 24, .N = 24, .D = 3, .DV = 3, .scale = 1 / sqrt(3), .q = x, .k = x,
                       .v = x, .bias = bias, .bias_stride = {0, 0, 24, 1}};
    a.mask = ref_mask_make(false, NULL);
    ref_assa_window_bias(&grid, 1, table, bias);
    ref_assa_adaptive_core(&a, w, o);
    ref_assa_adaptive_layer(&layer, 4, 6, 2, 1, x, y);
    assert_close("windows", o, y, 72, exact);
    free(x);
    free(bias);
    free(table);
}
END_TEST

/* More places than keys: dense attention, and the places left over hold −1. */
START_TEST(topk_of_all_keys_is_dense) {
    ref_attention a = attention_make(6, 1, 2, 1, 3, 5, 2);
    double o[12], dense[12];
    int indices[6 * 8];
    ref_dense_core(&a, dense, NULL);
    for (int normalise = REF_SELECTED; normalise <= REF_ALL; normalise++) {
        ref_assa_topk_core(&a, 8, (ref_normalise)normalise, o, indices, NULL);
        assert_close("top-k", o, dense, 12, exact);
        ck_assert(indices[4] >= 0 && indices[5] == -1 && indices[7] == -1);
    }
    attention_free(&a);
}
END_TEST

/* Run a case's layer with the reference alone; a new array. */
static double *layer_of(const layer_case *c, const layer_data *data) {
    layer_run r = layer_run_of(c, data);
    double *y = ref_array((size_t)c->B * c->n * c->d);
    expect_layer(c->variant, &data->settings, &r.ref, r.links, data->x, y);
    return y;
}

/* A window of one token, shifted or not, sees only itself: nothing may move. */
START_TEST(adaptive_shift_is_undone) {
    double *y[2];
    for (int shift = 0; shift < 2; shift++) {
        layer_case c = {.variant = "assa", .B = 1, .n = 12, .d = 4, .H = 1, .seed = 8};
        c.settings = shift ? "mode=adaptive grid=3x4 window=1 shift=1" : "mode=adaptive grid=3x4 window=1";
        layer_data data;
        layer_data_make(&c, &data);
        y[shift] = layer_of(&c, &data);
        layer_data_free(&data);
    }
    assert_close("shifted", y[1], y[0], 48, exact);
    free(y[1]);
    free(y[0]);
}
END_TEST

/* ---- cas, cjar, aft ---- */

/* The query term cancels: leaving q out changes nothing, and every row is the same. */
START_TEST(cas_query_cancels) {
    ref_attention a = attention_make(9, 1, 2, 2, 6, 6, 3), collapsed = a;
    double o[36], p[36];
    collapsed.q = NULL;
    ref_cas_additive_core(&a, o);
    ref_cas_additive_core(&collapsed, p);
    assert_close("collapsed", p, o, 36, exact);
    for (int i = 1; i < 6; i++)
        assert_close("row", o + (size_t)3 * i, o, 3, exact);
    attention_free(&a);
}
END_TEST

/* The multiplied mask over all keys is Σ_near (e^s − 1) v + Σ_all v, divided by the same with v = 1. */
START_TEST(cjar_multiply_is_a_sum_over_the_window) {
    ref_attention a = attention_make(10, 1, 1, 1, 8, 8, 1);
    const long rows[9] = {0, 1, 1, 1, 1, 1, 1, 1, 1}; /* one link: query 0 to key 7 */
    const int keys[1] = {7};
    a.mask.window_left = a.mask.window_right = 1;
    ref_cjar c = {.links = {.rows = rows, .keys = keys}, .masked = REF_MULTIPLY};
    double o[8];
    ref_cjar_core(&a, &c, o, NULL);
    for (int i = 0; i < 8; i++) {
        double above = 0, below = 0;
        for (int j = 0; j < 8; j++) {
            bool near = abs(i - j) <= 1 || (i == 0 && j == 7);
            double weight = 1 + (near ? expm1(a.q[i] * a.k[j]) : 0);
            above += weight * a.v[j];
            below += weight;
        }
        ck_assert_double_eq_tol(o[i], above / below, exact);
    }
    attention_free(&a);
}
END_TEST

/* A causal mode whose future keys are larger by 10000: finite, and the future is not seen. */
START_TEST(aft_survives_huge_keys) {
    double Q[3] = {0, 0, 0}, K[3] = {-10000, 0, 10000}, V[3] = {1, 2, 4}, y[3];
    const double want[3] = {0.5, 1, 2};
    ref_aft a = {
        .B = 1, .n = 3, .d = 1, .keys = 1, .biases = 1, .mask = ref_mask_make(true, NULL), .Q = Q, .K = K, .V = V};
    ref_aft_core(&a, y);
    assert_close("aft", y, want, 3, exact);
}
END_TEST

/* ---- the harness's own numbers ---- */

START_TEST(storage_rounds_to_nearest_even) {
    const struct {
        clattn_type type;
        double from, to;
    } cases[] = {
        {CLATTN_F16, 1 + 0x1p-11, 1},
        {CLATTN_F16, 1 + 3 * 0x1p-11, 1 + 0x1p-9},
        {CLATTN_F16, 65519, 65504},
        {CLATTN_F16, -65520, -INFINITY},
        {CLATTN_F16, 0x1p-25, 0},
        {CLATTN_F16, 3 * 0x1p-25, 0x1p-23},
        {CLATTN_F16, 0x1.ff8p-15, 0x1.ff8p-15},
        {CLATTN_F16, 0x1.ffcp-15, 0x1p-14},
        {CLATTN_BF16, 1 + 0x1p-8, 1},
        {CLATTN_BF16, -0x1p-133, -0x1p-133},
        {CLATTN_BF16, 3.4e38, INFINITY},
        {CLATTN_BF16, INFINITY, INFINITY},
        {CLATTN_F32, 1 + 0x1p-24, 1},
        {CLATTN_I64, -5, -5},
    };
    for (size_t e = 0; e < sizeof(cases) / sizeof(*cases); e++) {
        double value = cases[e].from;
        storage_round(cases[e].type, &value, 1);
        ck_assert_msg(value == cases[e].to, "case %zu: %a became %a, not %a", e, cases[e].from, value, cases[e].to);
    }
    double nan[2] = {NAN, NAN};
    storage_round(CLATTN_F16, nan, 1);
    storage_round(CLATTN_BF16, nan + 1, 1);
    ck_assert(isnan(nan[0]) && isnan(nan[1]));
}
END_TEST

START_TEST(comparison_notices_what_it_should) {
    const double want[3] = {1, -4, -INFINITY}, close[3] = {1.0004, -4, -INFINITY}, nan[3] = {1, NAN, -INFINITY};
    const double finite[3] = {1, -4, -1e30};
    size_t where;
    ck_assert_double_eq_tol(largest_error(close, want, 3, &where), 1e-4, 1e-9);
    ck_assert_uint_eq(where, 0);
    ck_assert(isinf(largest_error(nan, want, 3, &where)) && where == 1);
    ck_assert(isinf(largest_error(finite, want, 3, &where)) && where == 2);
}
END_TEST

static Suite *reference_suite(void) {
    Suite *suite = suite_create("reference");
    TCase *cores = tcase_create("cores");
    tcase_add_test(cores, constant_values_come_back);
    tcase_add_test(cores, split_keys_merge_by_log_sum_exp);
    tcase_add_test(cores, causal_prefix_is_the_shorter_problem);
    tcase_add_test(cores, empty_rows_are_zero);
    tcase_add_test(cores, masks_are_inclusive);
    tcase_add_test(cores, padding_does_not_leak);
    tcase_add_test(cores, topk_takes_the_lowest_key_of_a_tie);
    tcase_add_test(cores, topk_of_all_keys_is_dense);
    tcase_add_loop_test(cores, gradients_are_slopes, 0, KINDS);
    tcase_add_test(cores, windows_are_a_bias);
    tcase_add_test(cores, cas_query_cancels);
    tcase_add_test(cores, cjar_multiply_is_a_sum_over_the_window);
    tcase_add_test(cores, aft_survives_huge_keys);
    suite_add_tcase(suite, cores);
    TCase *layers = tcase_create("layers");
    tcase_add_test(layers, adaptive_shift_is_undone);
    suite_add_tcase(suite, layers);
    TCase *harness = tcase_create("harness");
    tcase_add_test(harness, storage_rounds_to_nearest_even);
    tcase_add_test(harness, comparison_notices_what_it_should);
    suite_add_tcase(suite, harness);
    return suite;
}

int main(void) { return run_suite(reference_suite()); }
