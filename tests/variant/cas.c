/* The cas family: layers against their references at the edges of blocks, the core on strided tensors, invariants. */
#include <clattn/cas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "harness/close.h"
#include "harness/guarded.h"
#include "harness/layer_case.h"
#include "harness/rng.h"
#include "harness/storage.h"

enum { BLOCK = 64 }; /* tokens of a block on a CPU device */

/* The same device as a GPU's shapes see it: work-groups, local memory, barriers. */
static fixture gpu_shaped;

static void make_gpu_shaped(void) {
    gpu_shaped = *device();
    assert_ok(clattn_context_create(gpu_shaped.cl, gpu_shaped.device, NULL, &gpu_shaped.context));
    clattn__caps caps = gpu_shaped.context->target.caps;
    caps.kind = CLATTN__GPU;
    clattn__target_choose(&caps, CLATTN_GEMM_TILE, &gpu_shaped.context->target);
}

static void free_gpu_shaped(void) { clattn_context_destroy(gpu_shaped.context); }

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

/* ---- core ---- */

/* tokens_first  q, k, v and o lie in memory as [B, n, H, D]
 * with_q        the problem has a q
 * one_k         k has one batch, broadcast
 * k_type, v_type, o_type   storage */
typedef struct core_case {
    int B, H, n, D, DV;
    bool causal, tokens_first, with_q, one_k;
    const int *lengths;
    clattn_type k_type, v_type, o_type;
    double spread, scale;
} core_case;

/* The fields that every case has. */
#define CORE(B_, H_, n_, D_, DV_) .B = B_, .H = H_, .n = n_, .D = D_, .DV = DV_

typedef struct core_data {
    double *q, *k, *v;
} core_data;

static size_t rows_of(const core_case *c) { return (size_t)c->B * c->H * c->n; }

static void fill_padding(const core_case *c, double *t, int size) {
    for (size_t e = 0; e < rows_of(c) * size && c->lengths; e++) {
        const size_t row = e / size;
        if ((int)(row % c->n) >= c->lengths[row / c->n / c->H])
            t[e] = NAN;
    }
}

/* Whole numbers in k, so that scores are exact however large. */
static core_data core_data_make(const core_case *c, uint64_t seed) {
    rng r = rng_make(seed);
    core_data data = {rng_array(&r, 1, rows_of(c) * c->D),
                      rng_array(&r, c->spread != 0 ? c->spread : 1, rows_of(c) * c->D),
                      rng_array(&r, 1, rows_of(c) * c->DV)};
    for (size_t e = 0; e < rows_of(c) * c->D && c->spread != 0; e++)
        data.k[e] = floor(data.k[e]);
    for (size_t e = 0; e < rows_of(c) * c->D && c->one_k; e++)
        data.k[e] = data.k[e % ((size_t)c->H * c->n * c->D)];
    storage_round(c->k_type, data.k, rows_of(c) * c->D);
    storage_round(c->v_type, data.v, rows_of(c) * c->DV);
    fill_padding(c, data.q, c->D);
    fill_padding(c, data.k, c->D);
    fill_padding(c, data.v, c->DV);
    return data;
}

static void core_data_free(core_data *data) {
    free(data->q);
    free(data->k);
    free(data->v);
}

/* From [B, H, n, size] to the order in memory, or back. */
static void reorder(const core_case *c, double *t, int size, bool back) {
    if (!c->tokens_first)
        return;
    double *copy = ref_array(rows_of(c) * size);
    memcpy(copy, t, rows_of(c) * size * sizeof(double));
    for (int b = 0; b < c->B; b++)
        for (int h = 0; h < c->H; h++)
            for (int i = 0; i < c->n; i++) {
                const size_t here = (((size_t)b * c->H + h) * c->n + i) * size;
                const size_t there = (((size_t)b * c->n + i) * c->H + h) * size;
                memcpy(t + (back ? here : there), copy + (back ? there : here), size * sizeof(double));
            }
    free(copy);
}

static clattn_tensor layout(const core_case *c, clattn_type type, int size, const guarded *g) {
    const int64_t shape[] = {c->B, c->H, c->n, size};
    clattn_tensor t = clattn_tensor_make(NULL, type, 4, shape);
    if (g) {
        t.memory = g->memory;
        t.offset = g->before / clattn_type_size(type);
    }
    if (c->tokens_first) {
        t.stride[1] = size;
        t.stride[2] = (int64_t)c->H * size;
    }
    return t;
}

static clattn_cas_problem problem_of(const core_case *c) {
    clattn_cas_problem p = {.k = layout(c, c->k_type, c->D, NULL),
                            .v = layout(c, c->v_type, c->DV, NULL),
                            .o = layout(c, c->o_type, c->DV, NULL),
                            .causal = c->causal,
                            .scale = (float)c->scale};
    if (c->with_q)
        p.q = layout(c, CLATTN_F32, c->D, NULL);
    if (c->one_k)
        p.k.stride[0] = 0;
    const int64_t batch = c->B;
    if (c->lengths)
        p.lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &batch);
    return p;
}

static guarded upload(const fixture *f, const core_case *c, clattn_type type, const double *values, int size) {
    double *copy = ref_array(rows_of(c) * size);
    memcpy(copy, values, rows_of(c) * size * sizeof(double));
    reorder(c, copy, size, false);
    const guarded g = guarded_upload(f, type, copy, rows_of(c) * size);
    free(copy);
    return g;
}

/* o [B, H, n, DV]; a new array. */
static double *run_core(const fixture *f, const core_case *c, const core_data *data) {
    const clattn_cas_problem p = problem_of(c);
    clattn_plan *plan = NULL;
    assert_ok(clattn_cas_plan(f->context, &p, &plan));
    guarded k = upload(f, c, c->k_type, data->k, c->D), v = upload(f, c, c->v_type, data->v, c->DV),
            o = guarded_make(f, c->o_type, rows_of(c) * c->DV), lengths = {0};
    clattn_tensor t[CLATTN_CAS_SLOTS] = {[CLATTN_CAS_K] = layout(c, c->k_type, c->D, &k),
                                         [CLATTN_CAS_V] = layout(c, c->v_type, c->DV, &v),
                                         [CLATTN_CAS_O] = layout(c, c->o_type, c->DV, &o)};
    if (c->one_k)
        t[CLATTN_CAS_K].stride[0] = 0;
    if (c->lengths) {
        lengths = guarded_ints(f, c->lengths, c->B);
        t[CLATTN_CAS_LENGTHS] = guarded_tensor(&lengths, 1, c->B, 0, 0, 0);
    }
    run_plan(f, plan, t, CLATTN_CAS_SLOTS);
    double *result = guarded_read(f, &o, "o");
    reorder(c, result, c->DV, true);
    guarded_free(&lengths);
    guarded_free(&o);
    guarded_free(&v);
    guarded_free(&k);
    clattn_plan_destroy(plan);
    return result;
}

static const int core_lengths[] = {BLOCK + 1, 0, 7};

static const core_case cores[] = {
    {CORE(1, 1, 1, 1, 1)},
    {CORE(2, 3, BLOCK, 8, 8), .with_q = true},
    {CORE(2, 3, BLOCK + 1, 5, 16)},
    {CORE(3, 2, BLOCK + 1, 16, 24), .lengths = core_lengths},
    {CORE(3, 2, BLOCK + 1, 7, 3), .lengths = core_lengths, .tokens_first = true, .with_q = true},
    {CORE(2, 2, 300, 64, 64), .tokens_first = true, .one_k = true},
    {CORE(1, 1, 1500, 4, 4)},
    {CORE(1, 2, 130, 16, 8), .spread = 3000, .scale = 1},
    {CORE(2, 2, 70, 8, 8), .k_type = CLATTN_F16, .v_type = CLATTN_BF16, .o_type = CLATTN_F32},
    {CORE(2, 2, 70, 8, 8), .k_type = CLATTN_BF16, .v_type = CLATTN_F16, .o_type = CLATTN_F16},
};

enum { CORES = sizeof(cores) / sizeof(*cores) };

static void check_core(const fixture *f, const core_case *c, int seed) {
    core_data data = core_data_make(c, 200 + (uint64_t)seed);
    ref_attention a = {.B = c->B, .H = c->H, .HKV = c->H, .M = c->n, .N = c->n, .D = c->D, .DV = c->DV};
    a.scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D);
    a.mask = ref_mask_make(c->causal, c->lengths);
    a.q = c->with_q ? data.q : NULL;
    a.k = data.k;
    a.v = data.v;
    double *want = ref_array(rows_of(c) * c->DV), *got = run_core(f, c, &data);
    ref_cas_additive_core(&a, want);
    char name[64];
    snprintf(name, sizeof name, "core %d%s", seed, c->causal ? ", causal" : "");
    assert_close(name, got, want, rows_of(c) * c->DV, storage_tolerance(c->o_type));
    free(got);
    free(want);
    core_data_free(&data);
}

static core_case core_of(int number) {
    core_case c = cores[number / 2];
    c.causal = number % 2;
    return c;
}

START_TEST(core) {
    const core_case c = core_of(_i);
    check_core(device(), &c, _i);
}
END_TEST

START_TEST(core_gpu_shaped) {
    const core_case c = core_of(_i);
    check_core(&gpu_shaped, &c, _i);
}
END_TEST

START_TEST(core_returns_a_constant_value) {
    const core_case c = {CORE(2, 2, 150, 8, 8), .causal = _i, .spread = 1000, .scale = 1};
    core_data data = core_data_make(&c, 300);
    for (size_t e = 0; e < rows_of(&c) * c.DV; e++)
        data.v[e] = 0.5 + (double)(e % c.DV);
    double *o = run_core(device(), &c, &data);
    assert_close("constant", o, data.v, rows_of(&c) * c.DV, 1e-6);
    free(o);
    core_data_free(&data);
}
END_TEST

/* Keys with their values in another order: nothing changes. */
START_TEST(core_ignores_the_order_of_keys) {
    const core_case c = {CORE(1, 1, 203, 8, 8)};
    core_data data = core_data_make(&c, 301);
    double *before = run_core(device(), &c, &data);
    for (int j = 0; j < c.n / 2; j++)
        for (int ch = 0; ch < 8; ch++) {
            const int a = j * 8 + ch, b = (c.n - 1 - j) * 8 + ch;
            const double k = data.k[a], v = data.v[a];
            data.k[a] = data.k[b];
            data.v[a] = data.v[b];
            data.k[b] = k;
            data.v[b] = v;
        }
    double *after = run_core(device(), &c, &data);
    assert_close("reversed", after, before, rows_of(&c) * c.DV, 2e-6);
    free(after);
    free(before);
    core_data_free(&data);
}
END_TEST

/* The largest score comes last: weights must not be taken against a maximum that a causal row does not see. */
START_TEST(core_causal_with_a_late_peak) {
    const core_case c = {CORE(1, 1, 200, 1, 4), .causal = true, .scale = 1};
    core_data data = core_data_make(&c, 302);
    for (int j = 0; j < c.n; j++)
        data.k[j] = j < 190 ? -10000.0 - j % 3 : 10000.0;
    ref_attention a = {
        .B = 1, .H = 1, .HKV = 1, .M = c.n, .N = c.n, .D = 1, .DV = 4, .scale = 1, .k = data.k, .v = data.v};
    a.mask = ref_mask_make(true, NULL);
    double *want = ref_array(rows_of(&c) * c.DV), *got = run_core(device(), &c, &data);
    ref_cas_additive_core(&a, want);
    assert_close("late peak", got, want, rows_of(&c) * c.DV, 2e-6);
    free(got);
    free(want);
    core_data_free(&data);
}
END_TEST

START_TEST(core_without_elements) {
    for (int axis = 0; axis < 3; axis++) {
        const int sizes[] = {axis != 0 ? 2 : 0, axis != 1 ? 2 : 0, axis != 2 ? 2 : 0};
        const core_case c = {CORE(sizes[0], sizes[1], sizes[2], 4, 4)};
        const clattn_cas_problem p = problem_of(&c);
        clattn_plan *plan = NULL;
        assert_ok(clattn_cas_plan(device()->context, &p, &plan));
        ck_assert_uint_eq(clattn_plan_workspace_size(plan), 0);
        clattn_plan_destroy(plan);
    }
}
END_TEST

/* ---- mistakes ---- */

static void refuse_core(const clattn_cas_problem *p, clattn_status wanted, const char *fragment) {
    clattn_plan *plan = NULL;
    assert_refused(clattn_cas_plan(device()->context, p, &plan), wanted, fragment);
    ck_assert_ptr_null(plan);
}

START_TEST(core_mistakes) {
    const core_case c = {CORE(2, 3, 5, 4, 4), .with_q = true, .lengths = core_lengths};
    clattn_cas_problem p = problem_of(&c);
    p.v.shape[2] = 6;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "v has shape [2, 3, 6, 4]");
    p = problem_of(&c);
    p.q.shape[3] = 5;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "q has shape [2, 3, 5, 5]");
    p = problem_of(&c);
    p.o.stride[0] = 0;
    refuse_core(&p, CLATTN_INVALID_SHAPE, "o is an output");
    p = problem_of(&c);
    p.lengths.type = CLATTN_I64;
    refuse_core(&p, CLATTN_INVALID_TYPE, "lengths has type i64");
    p = problem_of(&c);
    p.scale = NAN;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "scale is");
    p = problem_of(&c);
    p.q.rank = 0;
    p.k.shape[3] = 0;
    refuse_core(&p, CLATTN_INVALID_ARGUMENT, "head size of k is 0");
}
END_TEST

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
    tcase_set_timeout(layer, 60);
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

    TCase *cores_case = tcase_create("core");
    tcase_set_timeout(cores_case, 60);
    tcase_add_unchecked_fixture(cores_case, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(cores_case, core, 0, 2 * CORES);
    tcase_add_loop_test(cores_case, core_gpu_shaped, 6, 12);
    tcase_add_loop_test(cores_case, core_returns_a_constant_value, 0, 2);
    tcase_add_test(cores_case, core_ignores_the_order_of_keys);
    tcase_add_test(cores_case, core_causal_with_a_late_peak);
    tcase_add_test(cores_case, core_without_elements);
    suite_add_tcase(suite, cores_case);

    TCase *mistakes = tcase_create("mistakes");
    tcase_add_test(mistakes, core_mistakes);
    tcase_add_test(mistakes, layer_mistakes);
    tcase_add_test(mistakes, grid_and_length_must_agree);
    suite_add_tcase(suite, mistakes);
    return run_device_suite(suite);
}
