/* Every layer and mode against its reference: variant × shape × options × storage type, through the public API. */
#include <string.h>

#include "core/variant.h"
#include "harness/layer_case.h"

static const int full_and_short[] = {37, 11}, full_and_empty[] = {37, 0};

static const layer_case cases[] = {
    {LAYER("dense", "", 2, 37, 24, 3)},
    {LAYER("dense", "causal", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true},
    {LAYER("dense", "scale=0.5", 1, 1, 8, 8)},
    {LAYER("dense", "", 2, 37, 16, 2), .lengths = full_and_empty, .padding_nan = true, .spread = 30},
    {LAYER("dense", "causal", 1, 129, 64, 1)},

    {LAYER("assa", "mode=topk k=5", 2, 37, 24, 3)},
    {LAYER("assa", "mode=topk k=5 causal", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true},
    {LAYER("assa", "mode=topk k=64", 2, 37, 24, 3), .lengths = full_and_empty, .padding_nan = true},
    {LAYER("assa", "mode=topk k=3 normalise=all", 2, 37, 24, 3), .lengths = full_and_short},
    {LAYER("assa", "mode=adaptive", 2, 37, 24, 3)},
    {LAYER("assa", "mode=adaptive grid=8x12 window=4", 2, 96, 24, 3)},
    {LAYER("assa", "mode=adaptive grid=8x12 window=4 shift=1", 2, 96, 24, 3)},

    {LAYER("cas", "mode=additive", 2, 37, 24, 3)},
    {LAYER("cas", "mode=additive", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true, .kernel = 5},
    {LAYER("cas", "mode=additive causal", 2, 37, 24, 3), .lengths = full_and_empty, .padding_nan = true, .kernel = 9},
    {LAYER("cas", "mode=additive causal", 1, 301, 16, 2), .spread = 10},
    {LAYER("cas", "mode=vit grid=5x7", 2, 35, 12, 1)},
    {LAYER("cas", "mode=vit grid=1x1", 1, 1, 3, 1)},

    {LAYER("cjar", "", 2, 150, 24, 3)},
    {LAYER("cjar", "window-left=3 window-right=5", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true,
     .links = 60},
    {LAYER("cjar", "window-left=3 window-right=none causal scale-by=model", 2, 37, 24, 3), .lengths = full_and_empty,
     .padding_nan = true, .memory = -1},
    {LAYER("cjar", "window-left=4 window-right=0 masked=multiply", 2, 37, 24, 3), .links = 60, .memory_kv = true},
    {LAYER("cjar", "window-left=4 window-right=2 masked=multiply causal", 2, 37, 24, 3), .lengths = full_and_short,
     .padding_nan = true, .links = 60},

    {LAYER("aft", "mode=gated", 2, 37, 24, 3)},
    {LAYER("aft", "mode=gated", 1, 9, 24, 3)},
    {LAYER("aft", "mode=gated causal", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true},
    {LAYER("aft", "mode=gated-matrix", 2, 37, 24, 3), .lengths = full_and_empty, .padding_nan = true},
    {LAYER("aft", "mode=gated-matrix causal", 2, 150, 24, 3)},
    {LAYER("aft", "mode=full", 2, 37, 24, 3), .table = 50},
    {LAYER("aft", "mode=full causal", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true, .spread = 100},
    {LAYER("aft", "mode=full", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true, .rank = 4},
    {LAYER("aft", "mode=local local=5", 2, 37, 24, 3), .lengths = full_and_empty, .padding_nan = true},
    {LAYER("aft", "mode=local local=5 causal", 2, 37, 24, 3), .rank = 4},
    {LAYER("aft", "mode=simple", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true},
    {LAYER("aft", "mode=simple causal", 2, 37, 24, 3), .spread = 100},
    {LAYER("aft", "mode=conv", 2, 37, 24, 3), .kernel = 7, .reparam = true},
    {LAYER("aft", "mode=conv causal", 2, 37, 24, 3), .lengths = full_and_short, .padding_nan = true, .kernel = 3},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

typedef void check(const fixture *f, const layer_case *c);

static void check_on(const fixture *f, const layer_case *given, clattn_type type, clattn_type weight_type, check *how) {
    layer_case c = *given;
    c.type = type;
    c.weight_type = weight_type;
    c.seed = 1000 + (uint64_t)(given - cases);
    if (clattn__variant_find(c.variant))
        how(f, &c);
    else
        test_skip("this family is not built");
}

static void check_as(const layer_case *given, clattn_type type) {
    check_on(device(), given, type, CLATTN_F32, check_layer_case);
}

static bool has_case(const char *variant, const char *mode) {
    for (int i = 0; i < CASES; i++) {
        settings s;
        settings_parse(cases[i].settings, &s);
        if (!strcmp(cases[i].variant, variant) && !strcmp(settings_mode(&s, variant), mode))
            return true;
    }
    return false;
}

START_TEST(layers_in_f32) { check_as(&cases[_i], CLATTN_F32); }
END_TEST

START_TEST(layers_in_f16) { check_as(&cases[_i], CLATTN_F16); }
END_TEST

START_TEST(layers_in_bf16) { check_as(&cases[_i], CLATTN_BF16); }
END_TEST

START_TEST(layers_of_f16_weights) { check_on(device(), &cases[_i], CLATTN_F32, CLATTN_F16, check_weight_storage); }
END_TEST

START_TEST(layers_of_bf16_weights) { check_on(device(), &cases[_i], CLATTN_F32, CLATTN_BF16, check_weight_storage); }
END_TEST

/* A family that is added, or a mode, has a case: so its weights are read in every type. */
START_TEST(every_mode_has_a_case) {
    for (int v = 0; clattn__variants[v]; v++) {
        const clattn__option *option = clattn__variants[v]->options;
        while (option->name && strcmp(option->name, "mode"))
            option++;
        for (int m = 0; m == 0 || (option->name && option->choices[m]); m++)
            ck_assert_msg(has_case(clattn__variants[v]->name, option->name ? option->choices[m] : ""),
                          "%s %s has no case", clattn__variants[v]->name, option->name ? option->choices[m] : "");
    }
}
END_TEST

/* Tensors that begin one element off every alignment, weights too. */
START_TEST(layers_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    const clattn_type type = _i % 2 ? CLATTN_F16 : CLATTN_F32;
    check_on(device(), &cases[_i], type, type, check_layer_case);
}
END_TEST

START_TEST(layers_out_of_order) {
    fixture f = *device();
    f.queue = f.out_of_order;
    if (f.queue)
        check_on(&f, &cases[_i], CLATTN_F32, CLATTN_BF16, check_layer_case);
    else
        test_skip("the device has no out-of-order queue");
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

int main(void) {
    Suite *suite = suite_create("layers");
    TCase *layers = tcase_create("layers");
    tcase_add_checked_fixture(layers, NULL, aligned_again);
    tcase_add_loop_test(layers, layers_in_f32, 0, CASES);
    tcase_add_loop_test(layers, layers_in_f16, 0, CASES);
    tcase_add_loop_test(layers, layers_in_bf16, 0, CASES);
    tcase_add_loop_test(layers, layers_of_f16_weights, 0, CASES);
    tcase_add_loop_test(layers, layers_of_bf16_weights, 0, CASES);
    tcase_add_test(layers, every_mode_has_a_case);
    tcase_add_loop_test(layers, layers_off_alignment, 0, CASES);
    tcase_add_loop_test(layers, layers_out_of_order, 0, CASES);
    suite_add_tcase(suite, layers);
    return run_device_suite(suite);
}
