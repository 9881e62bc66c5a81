/* Plans and shapes without a device: facts made up, plans as data. */
#include <clattn/clattn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/variant.h"
#include "harness/device.h"
#include "harness/expect.h"
#include "variant/cjar.h"
#include "variant/dense.h"
#include "variant/dense_backward.h"

static clattn__caps caps_of(clattn__device_kind kind, uint32_t width) {
    return (clattn__caps){.kind = kind,
                          .compute_units = 8,
                          .vector_width_f32 = width,
                          .local_bytes = 49152,
                          .max_alloc_bytes = UINT64_C(1) << 32,
                          .max_work_group = 1024,
                          .max_work_item = {1024, 1024, 64}};
}

static clattn__target target_of(const clattn__caps *caps) {
    clattn__target target;
    memset(&target, 0, sizeof target);
    clattn__target_choose(caps, CLATTN_GEMM_TILE, &target);
    return target;
}

static const struct {
    clattn__device_kind kind;
    uint32_t width;
} devices[] = {{CLATTN__CPU, 4}, {CLATTN__CPU, 8}, {CLATTN__CPU, 16}, {CLATTN__GPU, 1}, {CLATTN__OTHER_DEVICE, 4}};

enum { DEVICES = sizeof devices / sizeof *devices };

/* ---- shapes ---- */

static void check_rules(const clattn__tile *t, bool gemm) {
    ck_assert_int_eq(t->pw % (t->tnv * t->vw), 0);
    ck_assert_int_eq(t->bm % t->tm, 0);
    ck_assert_int_eq(t->bn % t->pw, 0);
    ck_assert(!gemm || (t->kb >= 16 && t->kb <= 512));
    ck_assert_msg(t->wg == 1 || t->bm / t->tm * (t->bn / (t->tnv * t->vw)) >= t->wg || !gemm, "idle work-items");
}

START_TEST(shapes_keep_their_rules) {
    const clattn__caps caps = caps_of(devices[_i].kind, devices[_i].width);
    const clattn__target target = target_of(&caps);
    check_rules(&target.gemm, true);
    check_rules(&target.attention, false);
    ck_assert_int_eq(target.gemm.pw, target.attention.pw);
    ck_assert_int_eq(clattn__target_fits(&target, "", NULL), CLATTN_SUCCESS);
}
END_TEST

START_TEST(shapes_follow_the_device) {
    const clattn__caps narrow = caps_of(CLATTN__CPU, 1), avx2 = caps_of(CLATTN__CPU, 8),
                       avx512 = caps_of(CLATTN__CPU, 16);
    const clattn__caps gpu = caps_of(CLATTN__GPU, 1);
    ck_assert_int_eq(target_of(&narrow).attention.vw, 4);
    ck_assert_int_eq(target_of(&avx2).attention.vw, 8);
    ck_assert_int_eq(target_of(&avx512).attention.vw, 16);
    ck_assert_int_eq(target_of(&avx512).gemm.wg, 1);
    ck_assert_int_eq(target_of(&gpu).gemm.wg, 128);
}
END_TEST

/* llama.cpp #26383: what the device does not have is not asked for; the next shape is taken. */
START_TEST(the_next_shape_is_taken) {
    static const struct {
        uint64_t local;
        size_t group;
        int wg, bm; /* of attention */
    } limits[] = {{49152, 1024, 128, 32}, {49152, 127, 64, 16}, {32768, 256, 64, 16}, {32768, 63, 16, 8},
                  {16384, 256, 16, 8},    {4096, 256, 1, 8},    {49152, 8, 1, 8}};
    clattn__caps caps = caps_of(CLATTN__GPU, 4);
    caps.local_bytes = limits[_i].local;
    caps.max_work_group = limits[_i].group;
    const clattn__target target = target_of(&caps);
    ck_assert_int_eq(target.attention.wg, limits[_i].wg);
    ck_assert_int_eq(target.attention.bm, limits[_i].bm);
    check_rules(&target.gemm, true);
    check_rules(&target.attention, false);
    ck_assert_int_eq(clattn__target_fits(&target, "", NULL), CLATTN_SUCCESS);
}
END_TEST

/* ---- layers of every family ---- */

static const struct {
    const char *variant, *settings;
    bool links;
} layers[] = {
    {"dense", "causal", false},
    {"cjar", "", false},
    {"cjar", "masked=multiply window-left=3", true},
    {"assa", "mode=topk k=8", false},
    {"assa", "mode=adaptive", false},
    {"cas", "mode=additive", false},
    {"cas", "mode=additive causal", false},
    {"aft", "mode=gated", false},
    {"aft", "mode=gated-matrix causal", false},
    {"aft", "mode=simple causal", false},
};

enum { LAYERS = sizeof layers / sizeof *layers };

/* The forward plan of layer number, n tokens; false where its family is not built. */
static bool plan_layer(int number, const clattn__target *target, int64_t n, clattn__plan *plan) {
    const clattn__variant *variant = clattn__variant_find(layers[number].variant);
    const bool lengths = !strstr(layers[number].settings, "adaptive");
    const clattn_layer_shape shape = {
        .batch = 2, .length = n, .has_lengths = lengths, .links = layers[number].links ? n : 0};
    clattn__error error = {0};
    settings s;
    if (!variant)
        return false;
    void *desc = calloc(1, variant->desc_size);
    ck_assert_ptr_nonnull(desc);
    settings_parse(layers[number].settings, &s);
    variant->defaults(desc);
    ((int64_t *)desc)[0] = 64;
    ((int64_t *)desc)[1] = 4;
    clattn__plan_init(plan, CLATTN_LAYER_SLOTS);
    ck_assert_int_eq(clattn__options_apply(variant, desc, s.items, s.count, &error), CLATTN_SUCCESS);
    ck_assert_msg(variant->forward(desc, &shape, target, plan, &error) == CLATTN_SUCCESS, "%s", error.text);
    ck_assert_msg(clattn__plan_finish(plan, &target->caps, &error) == CLATTN_SUCCESS, "%s", error.text);
    free(desc);
    return true;
}

static void check_same_programs(const clattn__plan *a, const clattn__plan *b) {
    ck_assert_int_eq(a->stage_count, b->stage_count);
    for (int i = 0; i < a->stage_count; i++) {
        const clattn__stage *x = &a->stages[i], *y = &b->stages[i];
        if (x->engine != CLATTN__ENGINE_KERNEL)
            continue;
        ck_assert_str_eq(x->kernel, y->kernel);
        ck_assert_int_eq(x->define_count, y->define_count);
        for (int d = 0; d < x->define_count; d++) {
            ck_assert_str_eq(x->defines[d].name, y->defines[d].name);
            ck_assert_msg(x->defines[d].value == y->defines[d].value, "%s: %s is %ld, then %ld", x->kernel,
                          x->defines[d].name, (long)x->defines[d].value, (long)y->defines[d].value);
        }
    }
}

START_TEST(a_growing_layer_never_recompiles) {
    clattn__plan *small = malloc(sizeof *small), *large = malloc(sizeof *large);
    const clattn__caps caps = caps_of(devices[_i / LAYERS].kind, devices[_i / LAYERS].width);
    const clattn__target target = target_of(&caps);
    ck_assert(small && large);
    if (plan_layer(_i % LAYERS, &target, 1000, small) && plan_layer(_i % LAYERS, &target, 1777, large))
        check_same_programs(small, large);
    free(small);
    free(large);
}
END_TEST

/* llama.cpp #26331: no n x n array anywhere. */
START_TEST(workspace_grows_with_length) {
    clattn__plan *small = malloc(sizeof *small), *large = malloc(sizeof *large);
    const clattn__caps caps = caps_of(devices[_i / LAYERS].kind, devices[_i / LAYERS].width);
    const clattn__target target = target_of(&caps);
    ck_assert(small && large);
    if (plan_layer(_i % LAYERS, &target, 4000, small) && plan_layer(_i % LAYERS, &target, 16000, large)) {
        const double ratio = (double)large->workspace_bytes / (double)small->workspace_bytes;
        ck_assert_msg(ratio < 4.1, "%s: workspace grew %g-fold, length 4-fold", layers[_i % LAYERS].variant, ratio);
    }
    free(small);
    free(large);
}
END_TEST

/* ---- the dense core ---- */

static clattn_dense_problem problem(int64_t queries, int64_t keys, int64_t size) {
    const int64_t q[] = {1, 2, queries, size}, k[] = {1, 2, keys, size};
    return (clattn_dense_problem){.q = clattn_tensor_make(NULL, CLATTN_F32, 4, q),
                                  .k = clattn_tensor_make(NULL, CLATTN_F32, 4, k),
                                  .v = clattn_tensor_make(NULL, CLATTN_F32, 4, k),
                                  .o = clattn_tensor_make(NULL, CLATTN_F32, 4, q)};
}

static clattn_status plan_dense(const clattn__target *target, int64_t queries, int64_t keys, int64_t size,
                                clattn__plan *plan, clattn__error *error) {
    const clattn_dense_problem p = problem(queries, keys, size);
    *error = (clattn__error){0};
    clattn_status status = clattn__dense_core(&p, target, plan, error);
    return status == CLATTN_SUCCESS ? clattn__plan_finish(plan, &target->caps, error) : status;
}

static const struct {
    int64_t queries, keys, size;
    const char *first;
} choices[] = {
    {1, 4096, 64,
     "dense: split\ndense_split BM=1 BN=64 D=64 DV=64 HAS_BIAS=0 HAS_LSE=0 PW=16 TM=1 TNV=1 TYPE_O=0 TYPE_Q=0 "
     "VW=8 WG=1 global=16x2x1 local=1 local_bytes=0\ndense_merge "},
    {6, 64, 64, "dense: split\ndense_split BM=8 "},
    {7, 4096, 64,
     "dense: tile; not split: 7 queries, at most 6\npack_keys BM=12 BN=256 D=64 PW=16 TM=6 TNV=2 TYPE_X=0 VW=8 "
     "WG=1 global=256x2x1 local=1 local_bytes=0\npack_values "},
};

START_TEST(plans_say_what_was_chosen) {
    const clattn__caps caps = caps_of(CLATTN__CPU, 8);
    const clattn__target target = target_of(&caps);
    clattn__plan *plan = malloc(sizeof *plan);
    clattn__error error;
    char text[4096], cut[40], end[64];
    ck_assert_ptr_nonnull(plan);
    ck_assert_int_eq(plan_dense(&target, choices[_i].queries, choices[_i].keys, choices[_i].size, plan, &error), 0);
    const size_t length = clattn__plan_text(plan, text, sizeof text);
    ck_assert_uint_eq(length, strlen(text));
    ck_assert_msg(strncmp(text, choices[_i].first, strlen(choices[_i].first)) == 0, "%s", text);
    snprintf(end, sizeof end, "workspace=%lu\n", (unsigned long)plan->workspace_bytes);
    ck_assert_ptr_nonnull(strstr(text, end));
    ck_assert_uint_eq(clattn__plan_text(plan, cut, sizeof cut), length);
    ck_assert_int_eq(strncmp(cut, text, sizeof cut - 1), 0);
    ck_assert_uint_eq(strlen(cut), sizeof cut - 1);
    free(plan);
}
END_TEST

/* A joint backward pass keeps parts for every compute unit, as long as they take little memory. */
START_TEST(parts_stay_small) {
    clattn__caps caps = caps_of(CLATTN__CPU, 16);
    caps.compute_units = 64;
    const clattn__target target = target_of(&caps);
    clattn__plan *plan = malloc(sizeof *plan);
    clattn__error error = {0};
    ck_assert_ptr_nonnull(plan);
    for (int64_t n = 4096; n <= 65536; n *= 16) {
        clattn_dense_problem p = problem(n, n, 64);
        p.train = true;
        p.grad_o = p.grad_q = p.o;
        p.grad_k = p.grad_v = p.k;
        ck_assert_int_eq(clattn__dense_core_backward(&p, &target, plan, &error), CLATTN_SUCCESS);
        ck_assert_str_eq(plan->note, n == 4096 ? "dense backward: joint"
                                               : "dense backward: separate; not joint: 4294967296 bytes of parts");
        ck_assert_uint_le(plan->workspace_bytes, (UINT64_C(1) << 29) + 64 * 4 * 2 * 64 * (uint64_t)n);
    }
    free(plan);
}
END_TEST

START_TEST(defines_are_sorted) {
    const clattn__caps caps = caps_of(devices[_i].kind, devices[_i].width);
    const clattn__target target = target_of(&caps);
    clattn__plan *plan = malloc(sizeof *plan);
    clattn__error error;
    ck_assert_ptr_nonnull(plan);
    for (int queries = 1; queries < 40; queries += 38) {
        ck_assert_int_eq(plan_dense(&target, queries, 100, 64, plan, &error), CLATTN_SUCCESS);
        for (int i = 0; i < plan->stage_count; i++)
            for (int d = 1; d < plan->stages[i].define_count; d++)
                ck_assert_str_lt(plan->stages[i].defines[d - 1].name, plan->stages[i].defines[d].name);
    }
    free(plan);
}
END_TEST

START_TEST(a_growing_core_never_recompiles) {
    const clattn__caps caps = caps_of(devices[_i].kind, devices[_i].width);
    const clattn__target target = target_of(&caps);
    clattn__plan *small = malloc(sizeof *small), *large = malloc(sizeof *large);
    clattn__error error;
    ck_assert(small && large);
    for (int queries = 1; queries < 60; queries += 57) {
        ck_assert_int_eq(plan_dense(&target, queries, 100, 64, small, &error), CLATTN_SUCCESS);
        ck_assert_int_eq(plan_dense(&target, queries, 100000, 64, large, &error), CLATTN_SUCCESS);
        check_same_programs(small, large);
    }
    /* Decoding: partial results are bounded by the device, not by the keys. */
    ck_assert_int_eq(plan_dense(&target, 1, 10000, 64, small, &error), CLATTN_SUCCESS);
    ck_assert_int_eq(plan_dense(&target, 1, 1000000, 64, large, &error), CLATTN_SUCCESS);
    ck_assert_uint_lt(large->workspace_bytes, 2 * small->workspace_bytes);
    free(small);
    free(large);
}
END_TEST

/* ---- limits ---- */

static const struct {
    size_t group;
    uint64_t local, alloc;
    int64_t queries, size;
    const char *sentence;
} limits[] = {
    {32, 49152, UINT64_C(1) << 32, 40, 64, "dense_forward: needs work-groups of 128, the device allows 32"},
    {1024, 20000, UINT64_C(1) << 32, 40, 256,
     "no plan serves this; not split: 40 queries, at most 4; not tile: 37632 bytes of local memory, the device has "
     "20000"},
    {1024, 1000, UINT64_C(1) << 32, 1, 256, "not split: 3352 bytes of local memory, the device has 1000; not tile: "},
    {1024, 49152, 100000, 40, 64, "needs a workspace of 2056192 bytes, the device allocates at most 100000"},
};

/* A target made for a larger device: what a plan needs is held against the device before anything is built. */
START_TEST(limits_are_refused_with_both_values) {
    const clattn__caps large = caps_of(CLATTN__GPU, 4);
    clattn__target target = target_of(&large);
    clattn__plan *plan = malloc(sizeof *plan);
    clattn__error error;
    ck_assert_ptr_nonnull(plan);
    target.caps.max_work_group = limits[_i].group;
    target.caps.local_bytes = limits[_i].local;
    target.caps.max_alloc_bytes = limits[_i].alloc;
    ck_assert_int_eq(plan_dense(&target, limits[_i].queries, 2000, limits[_i].size, plan, &error), CLATTN_UNSUPPORTED);
    ck_assert_msg(strstr(error.text, limits[_i].sentence), "\"%s\" does not hold \"%s\"", error.text,
                  limits[_i].sentence);
    free(plan);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *all = tcase_create("plan");
    tcase_add_loop_test(all, shapes_keep_their_rules, 0, DEVICES);
    tcase_add_test(all, shapes_follow_the_device);
    tcase_add_loop_test(all, the_next_shape_is_taken, 0, 7);
    tcase_add_loop_test(all, a_growing_layer_never_recompiles, 0, DEVICES * LAYERS);
    tcase_add_loop_test(all, workspace_grows_with_length, 0, DEVICES * LAYERS);
    tcase_add_loop_test(all, plans_say_what_was_chosen, 0, 3);
    tcase_add_test(all, parts_stay_small);
    tcase_add_loop_test(all, defines_are_sorted, 0, DEVICES);
    tcase_add_loop_test(all, a_growing_core_never_recompiles, 0, DEVICES);
    tcase_add_loop_test(all, limits_are_refused_with_both_values, 0, sizeof limits / sizeof *limits);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
