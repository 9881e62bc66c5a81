/* The cores of the assa family on strided tensors against their references, indices exactly; special values;
 * invariants. */
#include <clattn/assa.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/assa_case.h"
#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

/* ---- top-k against the reference ---- */

/* The reference lists the largest first, the library by ascending key. */
static void sort_by_key(int *keys, double *scores, int k) {
    for (int i = 1; i < k; i++)
        for (int j = i; j > 0 && keys[j] >= 0 && keys[j - 1] > keys[j]; j--) {
            const int key = keys[j];
            const double score = scores[j];
            keys[j] = keys[j - 1];
            scores[j] = scores[j - 1];
            keys[j - 1] = key;
            scores[j - 1] = score;
        }
}

static void check_lists(const assa_data *d, int *keys, double *scores) {
    const assa_case *c = &d->c;
    for (size_t row = 0; row < assa_queries(c); row++) {
        sort_by_key(keys + row * c->k, scores + row * c->k, c->k);
        for (int t = 0; t < c->k; t++)
            ck_assert_msg(keys[row * c->k + t] == (int)d->indices[row * c->k + t],
                          "row %zu, place %d: key %d, wanted %d", row, t, (int)d->indices[row * c->k + t],
                          keys[row * c->k + t]);
    }
    assert_close("scores", d->scores, scores, assa_queries(c) * c->k, 1e-5);
}

/* Log of the sum of exponentials that the weights were divided by. */
static double *expect_lse(const assa_data *d, const double *kept, ref_attention *a) {
    const assa_case *c = &d->c;
    double *lse = ref_array(assa_queries(c)), *p = ref_array((size_t)c->k + 1), *o = ref_array(assa_queries(c) * c->DV);
    bool *sees = ref_flags((size_t)c->k);
    for (int t = 0; t < c->k; t++)
        sees[t] = true;
    if (c->all)
        ref_dense_core(a, o, lse);
    for (size_t row = 0; row < assa_queries(c) && !c->all; row++)
        lse[row] = ref_softmax(kept + row * c->k, sees, c->k, p);
    free(sees);
    free(o);
    free(p);
    return lse;
}

static void check_topk(const fixture *f, const assa_case *given) {
    assa_data d;
    assa_data_make(given, &d);
    const assa_case *c = &d.c;
    ref_attention a = assa_attention(&d);
    double *o = ref_array(assa_queries(c) * c->DV), *kept = ref_array(assa_queries(c) * c->k);
    int *keys = calloc(assa_queries(c) * c->k + 1, sizeof(int));
    ck_assert_ptr_nonnull(keys);
    assa_run(f, &d);
    ref_assa_topk_core(&a, c->k, c->all ? REF_ALL : REF_SELECTED, o, keys, kept);
    double *lse = expect_lse(&d, kept, &a);
    if (c->listed)
        check_lists(&d, keys, kept);
    assert_close("o", d.o, o, assa_queries(c) * c->DV, c->spread > 10 ? 1e-4 : storage_tolerance(c->type));
    assert_close("lse", d.lse, lse, assa_queries(c), 1e-5);
    free(lse);
    free(keys);
    free(kept);
    free(o);
    assa_data_free(&d);
}

static const int short_keys[] = {300, 0, 1, 257}, short_queries[] = {0, 33, 40, 12};

#define SIZES(B_, H_, M_, N_, D_, k_) .B = B_, .H = H_, .M = M_, .N = N_, .D = D_, .k = k_

/* Blocks of a CPU are 8 or 12 queries by 128, 256 or 512 keys, of a GPU 32 by 32. */
static const assa_case topk_cases[] = {
    {SIZES(1, 1, 1, 1, 8, 1), .listed = true},
    {SIZES(1, 2, 13, 33, 8, 1), .listed = true},
    {SIZES(1, 2, 33, 31, 8, 1), .all = true, .listed = true},
    {SIZES(1, 1, 12, 256, 8, 32), .listed = true},
    {SIZES(1, 1, 11, 257, 8, 31), .all = true, .listed = true},
    {SIZES(1, 1, 8, 513, 64, 33), .listed = true},
    {SIZES(1, 2, 25, 1031, 8, 7), .all = true, .listed = true},
    {SIZES(1, 1, 31, 255, 8, 254), .listed = true},
    {SIZES(1, 1, 9, 700, 8, 257), .all = true, .listed = true},
    {SIZES(2, 1, 40, 300, 8, 300), .listed = true},              /* k = N, listed */
    {SIZES(2, 1, 40, 300, 8, 400), .all = true, .listed = true}, /* lists longer than there are keys */
    {SIZES(2, 2, 40, 300, 8, 300)},                              /* k = N without lists: dense */
    {SIZES(2, 2, 40, 300, 8, 5000), .all = true},
    {SIZES(1, 1, 14, 1500, 8, 1000), .listed = true},              /* lists past a GPU's local memory */
    {SIZES(1, 2, 26, 3000, 8, 1200), .all = true, .listed = true}, /* and past a CPU's private arrays */
    {SIZES(2, 4, 40, 90, 16, 6), .HKV = 2, .DV = 40, .listed = true},
    {SIZES(1, 1, 13, 90, 256, 6), .DV = 1, .listed = true},
    {SIZES(1, 1, 13, 90, 1, 6), .DV = 256, .all = true, .listed = true},
    {SIZES(1, 2, 300, 300, 8, 16), .causal = CLATTN_CAUSAL_TOP_LEFT, .listed = true},
    {SIZES(1, 2, 270, 40, 8, 5), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .all = true, .listed = true}, /* rows see none */
    {SIZES(1, 1, 40, 270, 8, 300), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
    {SIZES(4, 1, 40, 300, 8, 16), .key_lengths = short_keys, .query_lengths = short_queries, .listed = true},
    {SIZES(4, 1, 40, 300, 8, 16), .key_lengths = short_keys, .all = true, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     .query_lengths = short_queries, .listed = true},
    {SIZES(4, 2, 40, 300, 8, 500), .key_lengths = short_keys, .causal = CLATTN_CAUSAL_TOP_LEFT},
    {SIZES(1, 1, 30, 1100, 8, 32), .fill = FILL_TIES, .listed = true}, /* hundreds of equal scores */
    {SIZES(1, 1, 30, 1100, 8, 300), .fill = FILL_TIES, .all = true, .listed = true},
    {SIZES(1, 1, 30, 1100, 1, 6), .fill = FILL_TIES, .all = true, .causal = CLATTN_CAUSAL_TOP_LEFT, .listed = true},
    {SIZES(1, 2, 30, 1100, 8, 32), .fill = FILL_CONSTANT, .listed = true},
    {SIZES(1, 1, 14, 1300, 8, 1024), .fill = FILL_TIES, .listed = true},
    {SIZES(1, 1, 30, 300, 8, 300), .fill = FILL_DENORMAL},       /* products underflow: no order among them */
    {SIZES(1, 2, 30, 600, 8, 32), .spread = 30, .listed = true}, /* logits of thousands */
    {SIZES(1, 2, 30, 300, 16, 300), .type = CLATTN_F16, .all = true},
    {SIZES(1, 2, 30, 600, 16, 20), .type = CLATTN_BF16, .listed = true},
    {SIZES(1, 2, 30, 600, 16, 20), .type = CLATTN_F16, .fill = FILL_TIES, .listed = true},
};

enum { TOPK_CASES = sizeof(topk_cases) / sizeof(*topk_cases) };

START_TEST(topk) { check_topk(device(), &topk_cases[_i]); }
END_TEST

/* Every second one: its programs take long to compile. */
START_TEST(topk_gpu_shaped) { check_topk(&gpu_shaped, &topk_cases[2 * _i + 1]); }
END_TEST

START_TEST(topk_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    check_topk(device(), &topk_cases[_i]);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

/* ---- special values ---- */

/* Put x into channel 0 of key j, of batch and head 0. */
static void set_key(assa_data *d, int j, double x) { d->k[(size_t)j * d->c.D] = x; }

static bool row_is_nan(const assa_data *d, int i) {
    bool nan = true;
    for (int e = 0; e < d->c.DV; e++)
        nan = nan && isnan(d->o[(size_t)i * d->c.DV + e]);
    return nan;
}

static bool row_is_finite(const assa_data *d, int i) {
    bool finite = true;
    for (int e = 0; e < d->c.DV; e++)
        finite = finite && isfinite(d->o[(size_t)i * d->c.DV + e]);
    return finite;
}

/* A NaN among the keys of a causal problem: the rows before it are those of the shorter one, the others NaN; every
 * index stays inside and ascends. */
START_TEST(nan_scores_stay_in_their_rows) {
    const assa_case c = {SIZES(1, 1, 300, 300, 8, 21), .causal = CLATTN_CAUSAL_TOP_LEFT, .all = _i % 2, .listed = true};
    static const double poison[] = {NAN, INFINITY};
    assa_data d, clean;
    assa_data_make(&c, &d);
    assa_data_make(&c, &clean);
    for (int i = 0; i < c.M; i++)
        d.q[(size_t)i * c.D] = fabs(d.q[(size_t)i * c.D]) + 1;
    memcpy(clean.q, d.q, (size_t)c.M * c.D * sizeof(double));
    set_key(&d, 150, poison[_i / 2]);
    set_key(&d, 151, poison[_i / 2]);
    assa_run(device(), &d);
    assa_run(device(), &clean);
    for (int i = 0; i < c.M; i++) {
        ck_assert_msg(i < 150 ? row_is_finite(&d, i) : row_is_nan(&d, i), "row %d", i);
        for (int t = 0; t < c.k; t++) {
            int key = (int)d.indices[i * c.k + t], before = t ? (int)d.indices[i * c.k + t - 1] : -1;
            ck_assert_msg(key <= i && (key > before || (key == -1 && t > i)), "row %d: key %d", i, key);
        }
    }
    assert_close("rows before", d.o, clean.o, (size_t)150 * c.D, 0);
    assa_data_free(&clean);
    assa_data_free(&d);
}
END_TEST

/* −inf hides a key; a row of nothing else gives 0. */
START_TEST(minus_infinity_is_never_kept) {
    const assa_case c = {SIZES(1, 1, 20, 90, 8, 12), .all = _i % 2, .listed = true};
    assa_data d;
    assa_data_make(&c, &d);
    for (int i = 0; i < c.M; i++)
        d.q[(size_t)i * c.D] = 1;
    for (int j = 0; j < c.N; j++)
        if (j != 40 || _i / 2)
            set_key(&d, j, -INFINITY);
    assa_run(device(), &d);
    for (int i = 0; i < c.M; i++) {
        ck_assert_int_eq((int)d.indices[i * c.k], _i / 2 ? -1 : 40);
        ck_assert_int_eq((int)d.indices[i * c.k + 1], -1);
        for (int e = 0; e < c.D; e++)
            ck_assert_double_eq_tol(d.o[i * c.D + e], _i / 2 ? 0 : d.v[40 * c.D + e], 1e-6);
    }
    assa_data_free(&d);
}
END_TEST

/* What lies past the lengths, NaN or Inf, changes no bit. */
START_TEST(padding_does_not_leak) {
    const assa_case c = {SIZES(4, 2, 40, 300, 8, 16), .key_lengths = short_keys, .query_lengths = short_queries,
                         .all = _i % 2, .listed = true};
    assa_data clean, d;
    assa_data_make(&c, &clean);
    assa_data_make(&c, &d);
    for (int b = 0; b < c.B; b++)
        for (int h = 0; h < c.H; h++) {
            for (int j = c.key_lengths[b]; j < c.N; j++)
                for (int e = 0; e < c.D; e++) {
                    d.k[(((size_t)b * c.H + h) * c.N + j) * c.D + e] = e % 2 ? NAN : INFINITY;
                    d.v[(((size_t)b * c.H + h) * c.N + j) * c.D + e] = NAN;
                }
            for (int i = c.query_lengths[b]; i < c.M; i++)
                d.q[(((size_t)b * c.H + h) * c.M + i) * c.D] = NAN;
        }
    const fixture *f = _i / 2 ? &gpu_shaped : device();
    assa_run(f, &clean);
    assa_run(f, &d);
    ck_assert_int_eq(memcmp(d.o, clean.o, (size_t)4 * 2 * 40 * 8 * sizeof(double)), 0);
    ck_assert_int_eq(memcmp(d.indices, clean.indices, (size_t)4 * 2 * 40 * 16 * sizeof(double)), 0);
    assa_data_free(&clean);
    assa_data_free(&d);
}
END_TEST

/* ---- invariants ---- */

START_TEST(permuting_keys_with_values_changes_nothing) {
    const assa_case c = {SIZES(1, 1, 30, 500, 8, 21), .all = _i, .listed = true};
    assa_data d, turned;
    assa_data_make(&c, &d);
    assa_data_make(&c, &turned);
    for (int j = 0; j < c.N; j++) {
        int to = (j * 177 + 31) % c.N; /* 177 and 500 share no factor */
        memcpy(turned.k + (size_t)to * c.D, d.k + (size_t)j * c.D, c.D * sizeof(double));
        memcpy(turned.v + (size_t)to * c.D, d.v + (size_t)j * c.D, c.D * sizeof(double));
    }
    assa_run(device(), &d);
    assa_run(device(), &turned);
    assert_close("o", turned.o, d.o, (size_t)c.M * c.D, 2e-6);
    assa_data_free(&turned);
    assa_data_free(&d);
}
END_TEST

START_TEST(same_inputs_same_bits) {
    const assa_case c = {SIZES(1, 2, 40, 700, 8, 21), .all = _i, .listed = true};
    assa_data a, b;
    assa_data_make(&c, &a);
    assa_data_make(&c, &b);
    assa_run(device(), &a);
    assa_run(device(), &b);
    ck_assert_int_eq(memcmp(a.o, b.o, (size_t)2 * 40 * 8 * sizeof(double)), 0);
    assa_data_free(&a);
    assa_data_free(&b);
}
END_TEST

/* ---- adaptive against the reference ---- */

static void check_adaptive(const fixture *f, const assa_case *given) {
    assa_data d;
    assa_data_make(given, &d);
    const assa_case *c = &d.c;
    double *o = ref_array(assa_queries(c) * c->DV);
    ref_attention a = assa_attention(&d);
    assa_run(f, &d);
    ref_assa_adaptive_core(&a, d.mix, o);
    assert_close("o", d.o, o, assa_queries(c) * c->DV, storage_tolerance(c->type));
    free(o);
    assa_data_free(&d);
}

#define ADAPTIVE(B_, H_, n_, D_) SIZES(B_, H_, n_, 0, D_, 0), .adaptive = true

static const assa_case adaptive_cases[] = {
    {ADAPTIVE(1, 1, 1, 1)},
    {ADAPTIVE(2, 3, 13, 8)},
    {ADAPTIVE(1, 1, 255, 20)},
    {ADAPTIVE(1, 1, 257, 64), .spread = 2},
    {ADAPTIVE(1, 1, 520, 5), .DV = 33, .spread = 3},
    {ADAPTIVE(2, 4, 33, 16), .HKV = 2, .DV = 40},
    {ADAPTIVE(1, 1, 40, 256)},
    {ADAPTIVE(1, 2, 70, 8), .fill = FILL_CONSTANT},
    {ADAPTIVE(1, 2, 70, 16), .type = CLATTN_BF16},
};

enum { ADAPTIVE_CASES = sizeof(adaptive_cases) / sizeof(*adaptive_cases) };

START_TEST(adaptive) { check_adaptive(device(), &adaptive_cases[_i]); }
END_TEST

START_TEST(adaptive_gpu_shaped) { check_adaptive(&gpu_shaped, &adaptive_cases[_i]); }
END_TEST

/* Windows of one token, without neighbours: softmax is 1, and o = (w'0 + w'1 relu(s)^2) v. */
START_TEST(windows_of_one_token) {
    const assa_case c = {ADAPTIVE(2, 3, 15, 4), .window = 1, .rows = 3, .columns = 5};
    assa_data d;
    assa_data_make(&c, &d);
    assa_run(_i ? &gpu_shaped : device(), &d);
    double mix[2], *o = ref_array(assa_queries(&d.c) * c.D);
    ref_softmax(d.mix, (bool[]){true, true}, 2, mix);
    for (size_t row = 0; row < assa_queries(&d.c); row++) {
        double s = ref_dot(d.q + row * c.D, d.k + row * c.D, c.D) / 2 + d.table[row / c.M % c.H];
        for (int e = 0; e < c.D; e++)
            o[row * c.D + e] = (mix[0] + (s > 0 ? mix[1] * s * s : 0)) * d.v[row * c.D + e];
    }
    assert_close("o", d.o, o, assa_queries(&d.c) * c.D, 2e-6);
    free(o);
    assa_data_free(&d);
}
END_TEST

START_TEST(no_keys_give_zeros) {
    static const int none[] = {0, 0};
    const assa_case c = {SIZES(2, 1, 20, 30, 8, _i ? 40 : 5), .key_lengths = none, .listed = _i == 0};
    check_topk(device(), &c);
    check_topk(&gpu_shaped, &c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("assa core");
    TCase *t = tcase_create("assa core");
    tcase_add_unchecked_fixture(t, make_gpu_shaped, free_gpu_shaped);
    tcase_add_checked_fixture(t, NULL, aligned_again);
    tcase_add_loop_test(t, topk, 0, TOPK_CASES);
    tcase_add_loop_test(t, topk_gpu_shaped, 0, TOPK_CASES / 2);
    tcase_add_loop_test(t, topk_off_alignment, 0, TOPK_CASES);
    tcase_add_loop_test(t, nan_scores_stay_in_their_rows, 0, 4);
    tcase_add_loop_test(t, minus_infinity_is_never_kept, 0, 4);
    tcase_add_loop_test(t, padding_does_not_leak, 0, 4);
    tcase_add_loop_test(t, permuting_keys_with_values_changes_nothing, 0, 2);
    tcase_add_loop_test(t, same_inputs_same_bits, 0, 2);
    tcase_add_loop_test(t, adaptive, 0, ADAPTIVE_CASES);
    tcase_add_loop_test(t, adaptive_gpu_shaped, 0, ADAPTIVE_CASES);
    tcase_add_loop_test(t, windows_of_one_token, 0, 2);
    tcase_add_loop_test(t, no_keys_give_zeros, 0, 2);
    suite_add_tcase(suite, t);
    return run_device_suite(suite);
}
