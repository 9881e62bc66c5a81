/* The core of the aft family, on strided tensors with keys of any size. */
#include <clattn/aft.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

/* What stands among the keys. */
typedef enum keys { PLAIN, LARGE, FUTURE, LOW, WILD, EQUAL, KEYS } keys;

/* n tokens of H heads of D channels, batch 2. gap elements lie between heads, in_place: y over q. */
typedef struct core_case {
    clattn_aft_mode mode;
    int n, H, D, gap, local, taps, rank;
    bool causal, in_place, lengths, large_w;
    clattn_type type;
} core_case;

static const core_case cores[] = {
    {CLATTN_AFT_FULL, 150, 3, 11, 3, .type = CLATTN_F32},
    {CLATTN_AFT_FULL, 290, 1, 9, .causal = true, .rank = 4, .in_place = true},
    {CLATTN_AFT_FULL, 70, 2, 8, .causal = true, .lengths = true, .large_w = true},
    {CLATTN_AFT_LOCAL, 150, 3, 11, 5, .local = 6},
    {CLATTN_AFT_LOCAL, 97, 2, 8, .local = 40, .causal = true, .lengths = true, .in_place = true, .rank = 3},
    {CLATTN_AFT_LOCAL, 70, 1, 5, .local = 9, .large_w = true, .type = CLATTN_F16},
    {CLATTN_AFT_LOCAL, 290, 2, 9, 3, .local = 20, .lengths = true, .large_w = true},
    {CLATTN_AFT_LOCAL, 210, 1, 8, .local = 70, .causal = true, .lengths = true},
    {CLATTN_AFT_SIMPLE, 150, 3, 11, 1, .lengths = true},
    {CLATTN_AFT_SIMPLE, 150, 3, 16, 0, .causal = true, .in_place = true, .type = CLATTN_BF16},
    {CLATTN_AFT_CONV, 150, 3, 11, 2, .taps = 7, .lengths = true},
    {CLATTN_AFT_CONV, 33, 2, 24, 0, .taps = 3, .causal = true, .large_w = true},
};

enum { CORES = sizeof(cores) / sizeof(*cores), B = 2 };

typedef struct core_data {
    int lengths[B], key_size;
    double *q, *k, *v, *w, *left, *right, *taps;
} core_data;

static void place_keys(const core_case *c, keys kind, core_data *data) {
    const int row = c->H * data->key_size;
    for (int e = 0; e < B * c->n * row; e++) {
        const int token = e / row % c->n;
        double *k = &data->k[e];
        *k = kind == LARGE && token == c->n / 2                           ? 1e4
             : kind == FUTURE && (token == c->n - 1 || token == c->n / 3) ? 1e4 + token
             : kind == LOW && token % 2 == 0                              ? -1e4
             : kind == WILD                                               ? 1e4 * *k
             : kind == EQUAL                                              ? data->k[e % data->key_size]
                                                                          : *k;
    }
    storage_round(c->type, data->k, (size_t)(B * c->n * row));
}

static core_data core_data_make(const core_case *c, keys kind) {
    rng r = rng_make(400 + (uint64_t)kind);
    core_data data = {.lengths = {c->n, c->n / 2}, .key_size = c->mode == CLATTN_AFT_CONV ? 1 : c->D};
    const size_t rows = (size_t)(B * c->n * c->H);
    const double size = c->large_w ? 100 : 1;
    data.q = rng_array(&r, 1, rows * (size_t)c->D);
    data.k = rng_array(&r, 1, rows * (size_t)data.key_size);
    data.v = rng_array(&r, 1, rows * (size_t)c->D);
    data.w = rng_array(&r, size, (size_t)(c->n * c->n));
    data.left = rng_array(&r, size, (size_t)(c->n * c->rank + 1));
    data.right = rng_array(&r, 1, (size_t)(c->n * c->rank + 1));
    data.taps = rng_array(&r, size, (size_t)(c->H * c->taps + 1));
    storage_round(c->type, data.q, rows * (size_t)c->D);
    storage_round(c->type, data.v, rows * (size_t)c->D);
    place_keys(c, kind, &data);
    for (int e = 0; c->mode == CLATTN_AFT_LOCAL && e < c->n * c->n; e++)
        if (abs(e / c->n - e % c->n) >= c->local)
            data.w[e] = NAN; /* never read */
    return data;
}

static void core_data_free(core_data *data) {
    double *const all[] = {data->q, data->k, data->v, data->w, data->left, data->right, data->taps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* w of head h's queries and keys, as the mode sees it. */
static double bias_at(const core_case *c, const core_data *data, int h, int i, int j) {
    const int tap = j - i + c->taps / 2;
    if (c->mode == CLATTN_AFT_SIMPLE || (c->mode == CLATTN_AFT_LOCAL && abs(i - j) >= c->local))
        return 0;
    if (c->mode == CLATTN_AFT_CONV)
        return tap >= 0 && tap < c->taps ? data->taps[h * c->taps + tap] : 0;
    return c->rank ? ref_dot(data->left + (size_t)(i * c->rank), data->right + (size_t)(j * c->rank), c->rank)
                   : data->w[i * c->n + j];
}

static double *expect_core(const core_case *c, const core_data *data) {
    const int d = c->H * c->D;
    double *y = ref_array((size_t)(B * c->n * d)), *w = ref_array((size_t)(c->H * c->n * c->n));
    for (int e = 0; e < c->H * c->n * c->n; e++)
        w[e] = bias_at(c, data, e / c->n / c->n, e / c->n % c->n, e % c->n);
    const ref_aft a = {.B = B,
                       .n = c->n,
                       .d = d,
                       .keys = c->H * data->key_size,
                       .biases = c->H,
                       .mask = ref_mask_make(c->causal, c->lengths ? data->lengths : NULL),
                       .Q = data->q,
                       .K = data->k,
                       .V = data->v,
                       .w = w};
    ref_aft_core(&a, y);
    free(w);
    return y;
}

/* [B, n, H, size] with gap elements behind each head. */
static clattn_tensor layout(const core_case *c, int size, const guarded *g) {
    const int64_t shape[] = {B, c->n, c->H, size};
    clattn_tensor t = clattn_tensor_make(NULL, c->type, 4, shape);
    t.stride[2] = size + c->gap;
    t.stride[1] = c->H * t.stride[2];
    t.stride[0] = c->n * t.stride[1];
    if (g) {
        t.memory = g->memory;
        t.offset = g->before / clattn_type_size(c->type);
    }
    return t;
}

/* Values among NaN gaps; tokens of padding NaN. */
static guarded upload(const fixture *f, const core_case *c, const core_data *data, const double *values, int size) {
    const int stride = size + c->gap;
    const size_t count = (size_t)(B * c->n * c->H * stride);
    double *copy = ref_array(count);
    for (size_t e = 0; e < count; e++) {
        const size_t row = e / (size_t)stride, column = e % (size_t)stride, token = row / (size_t)c->H;
        const bool padding = c->lengths && (int)(token % (size_t)c->n) >= data->lengths[token / (size_t)c->n];
        copy[e] = padding || (int)column >= size ? NAN : values[row * (size_t)size + column];
    }
    const guarded g = guarded_upload(f, c->type, copy, count);
    free(copy);
    return g;
}

/* y without its gaps, which must still be NaN where y is not over q; frees raw. */
static double *without_gaps(const core_case *c, double *raw) {
    const int stride = c->D + c->gap;
    double *y = ref_array((size_t)(B * c->n * c->H * c->D));
    for (int row = 0; row < B * c->n * c->H; row++) {
        memcpy(y + (size_t)row * c->D, raw + (size_t)row * stride, (size_t)c->D * sizeof(double));
        for (int e = c->D; e < stride; e++)
            ck_assert_msg(isnan(raw[row * stride + e]), "row %d: the gap was written", row);
    }
    free(raw);
    return y;
}

static double *run_core(const fixture *f, const core_case *c, const core_data *data) {
    guarded q = upload(f, c, data, data->q, c->D), k = upload(f, c, data, data->k, data->key_size),
            v = upload(f, c, data, data->v, c->D), y = guarded_make(f, c->type, q.count),
            lengths = guarded_ints(f, data->lengths, B),
            w = guarded_upload(f, CLATTN_F32, data->w, (size_t)(c->n * c->n)),
            left = guarded_upload(f, CLATTN_F32, data->left, (size_t)(c->n * c->rank + 1)),
            right = guarded_upload(f, CLATTN_F32, data->right, (size_t)(c->n * c->rank + 1)),
            taps = guarded_upload(f, CLATTN_F32, data->taps, (size_t)(c->H * c->taps + 1));
    clattn_tensor t[CLATTN_AFT_SLOTS] = {[CLATTN_AFT_Q] = layout(c, c->D, &q),
                                         [CLATTN_AFT_K] = layout(c, data->key_size, &k),
                                         [CLATTN_AFT_V] = layout(c, c->D, &v),
                                         [CLATTN_AFT_Y] = layout(c, c->D, c->in_place ? &q : &y)};
    if (c->lengths)
        t[CLATTN_AFT_LENGTHS] = guarded_tensor(&lengths, 1, B, 0, 0, 0);
    if (c->mode == CLATTN_AFT_CONV) {
        t[CLATTN_AFT_TAPS] = guarded_tensor(&taps, 2, c->H, c->taps, 0, 0);
    } else if (c->rank) {
        t[CLATTN_AFT_W_LEFT] = guarded_tensor(&left, 2, c->n, c->rank, 0, 0);
        t[CLATTN_AFT_W_RIGHT] = guarded_tensor(&right, 2, c->n, c->rank, 0, 0);
    } else if (c->mode != CLATTN_AFT_SIMPLE) {
        t[CLATTN_AFT_W] = guarded_tensor(&w, 2, c->n, c->n, 0, 0);
    }
    clattn_aft_problem p = {.mode = (int)c->mode, .causal = c->causal, .local = c->local};
    memcpy(p.tensor, t, sizeof t);
    clattn_plan *plan = NULL;
    assert_ok(clattn_aft_plan(f->context, &p, &plan));
    run_plan(f, plan, t, CLATTN_AFT_SLOTS);
    double *result = without_gaps(c, guarded_read(f, c->in_place ? &q : &y, "y"));
    clattn_plan_destroy(plan);
    guarded *const all[] = {&q, &k, &v, &y, &lengths, &w, &left, &right, &taps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        guarded_free(all[i]);
    return result;
}

static void check_core(const fixture *f, int number, keys kind) {
    static const char *const names[KEYS] = {"plain", "large", "future", "low", "wild", "equal"};
    const core_case *c = &cores[number];
    char name[80];
    core_data data = core_data_make(c, kind);
    double *want = expect_core(c, &data), *got = run_core(f, c, &data);
    snprintf(name, sizeof name, "core %d, %s keys", number, names[kind]);
    assert_close(name, got, want, (size_t)(B * c->n * c->H * c->D),
                 c->type == CLATTN_F32 ? 3e-6 : storage_tolerance(c->type));
    free(got);
    free(want);
    core_data_free(&data);
}

START_TEST(core_with_keys_of_any_size) { check_core(device(), _i / KEYS, (keys)(_i % KEYS)); }
END_TEST

START_TEST(core_gpu_shaped) { check_core(&gpu_shaped, _i / KEYS, (keys)(_i % KEYS)); }
END_TEST

/* ---- refusals ---- */

static void refuse_problem(clattn_aft_problem *p, clattn_status wanted, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_aft_plan(device()->context, p, &plan), wanted, fragment);
}

START_TEST(bad_problems_are_refused) {
    const clattn_tensor x = clattn_tensor_make(NULL, CLATTN_F32, 4, (const int64_t[]){1, 20, 2, 8});
    const clattn_aft_problem good = {.tensor = {x, x, x, x}};
    clattn_aft_problem p = good;
    p.tensor[CLATTN_AFT_V].shape[1] = 19;
    refuse_problem(&p, CLATTN_INVALID_SHAPE, "v has shape");
    p = good;
    p.tensor[CLATTN_AFT_K].type = CLATTN_F16;
    refuse_problem(&p, CLATTN_INVALID_TYPE, "k has type f16, but q has f32");
    p = good;
    p.mode = CLATTN_AFT_FULL;
    refuse_problem(&p, CLATTN_INVALID_SHAPE, "w_left has rank 0");
    p.tensor[CLATTN_AFT_W] = clattn_tensor_make(NULL, CLATTN_F32, 2, (const int64_t[]){19, 19});
    refuse_problem(&p, CLATTN_INVALID_SHAPE, "w has 19 rows, but q has 20 tokens");
    p = good;
    p.mode = CLATTN_AFT_CONV;
    refuse_problem(&p, CLATTN_INVALID_SHAPE, "k has shape [1, 20, 2, 8], but must have [1, 20, 2, 1]");
    p.tensor[CLATTN_AFT_K] = clattn_tensor_make(NULL, CLATTN_F32, 4, (const int64_t[]){1, 20, 2, 1});
    p.tensor[CLATTN_AFT_TAPS] = clattn_tensor_make(NULL, CLATTN_F32, 2, (const int64_t[]){2, 4});
    refuse_problem(&p, CLATTN_INVALID_SHAPE, "taps has 4 columns");
    p = good;
    p.mode = CLATTN_AFT_LOCAL;
    refuse_problem(&p, CLATTN_INVALID_ARGUMENT, "local is 0");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("aft_core");
    TCase *cores_case = tcase_create("core");
    tcase_add_unchecked_fixture(cores_case, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(cores_case, core_with_keys_of_any_size, 0, CORES * KEYS);
    tcase_add_loop_test(cores_case, core_gpu_shaped, 0, CORES * KEYS);
    tcase_add_test(cores_case, bad_problems_are_refused);
    suite_add_tcase(suite, cores_case);
    return run_device_suite(suite);
}
