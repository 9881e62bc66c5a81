/* Every layer's backward pass against differences of its reference, and what must hold of any gradient. */
#include "core/variant.h"
#include "harness/gradients.h"

static const int full_and_short[] = {21, 9}, full_and_empty[] = {21, 0}, none[] = {0, 0};
static const int one_and_none[] = {1, 0};

#define PADDED(lengths_) .lengths = lengths_, .padding_nan = true

static const layer_case cases[] = {
    {LAYER("cas", "", 2, 21, 12, 3)},
    {LAYER("cas", "", 2, 21, 15, 3), PADDED(full_and_short), .kernel = 5},
    {LAYER("cas", "", 2, 21, 10, 2), PADDED(full_and_empty), .kernel = 9},
    {LAYER("cas", "", 2, 21, 10, 2), PADDED(none), .kernel = 7},
    {LAYER("cas", "", 1, 1, 8, 8), .kernel = 1},
    {LAYER("cas", "", 1, 131, 8, 1), .spread = 3},
    {LAYER("cas", "causal", 2, 21, 12, 3)},
    {LAYER("cas", "causal", 2, 21, 15, 3), PADDED(full_and_short), .kernel = 5},
    {LAYER("cas", "causal", 2, 21, 10, 2), PADDED(full_and_empty), .kernel = 9},
    {LAYER("cas", "causal", 2, 21, 10, 2), PADDED(none), .kernel = 7},
    {LAYER("cas", "causal", 1, 1, 8, 8), .kernel = 1},
    {LAYER("cas", "causal", 1, 131, 8, 1), .spread = 3},
    {LAYER("cas", "mode=vit grid=3x7", 2, 21, 12, 1)},
    {LAYER("cas", "mode=vit grid=1x1", 2, 1, 8, 1)},
    {LAYER("cas", "mode=vit grid=2x33", 1, 66, 5, 1)},
    {LAYER("cas", "mode=vit grid=5x2", 3, 10, 16, 1)},

    {LAYER("dense", "", 2, 21, 12, 3)},
    {LAYER("dense", "causal", 2, 21, 12, 3), PADDED(full_and_short)},
    {LAYER("dense", "scale=0.5", 1, 1, 8, 8)},
    {LAYER("dense", "", 2, 21, 10, 2), PADDED(full_and_empty), .spread = 10},
    {LAYER("dense", "", 2, 21, 10, 2), PADDED(none)},
    {LAYER("dense", "causal", 1, 67, 20, 1)},

    {LAYER("assa", "k=5", 2, 21, 12, 3)},
    {LAYER("assa", "k=4 causal normalise=all", 2, 21, 10, 2), PADDED(full_and_short)},
    {LAYER("assa", "k=40 causal", 2, 21, 10, 2), PADDED(full_and_empty)},
    {LAYER("assa", "k=3", 2, 21, 10, 2), PADDED(none)},
    {LAYER("assa", "mode=adaptive window=3 grid=6x9 shift=1", 1, 54, 12, 3)},
    {LAYER("assa", "mode=adaptive", 2, 21, 12, 2)},

    /* 5 n > 4 d: without K and V */
    {LAYER("aft", "mode=gated", 2, 40, 12, 3)},
    {LAYER("aft", "mode=gated", 2, 21, 25, 5), PADDED(one_and_none)},
    {LAYER("aft", "mode=gated", 2, 21, 26, 2), PADDED(full_and_short)},
    {LAYER("aft", "mode=gated", 2, 21, 27, 3), PADDED(full_and_short)},
    {LAYER("aft", "mode=gated", 1, 1, 1, 1)},
    {LAYER("aft", "mode=gated causal", 2, 21, 12, 3), PADDED(full_and_short)},
    {LAYER("aft", "mode=gated-matrix", 2, 21, 10, 2), PADDED(full_and_empty)},
    {LAYER("aft", "mode=gated-matrix", 2, 21, 26, 2), PADDED(full_and_short)},
    {LAYER("aft", "mode=gated-matrix", 2, 21, 27, 3), PADDED(one_and_none)},
    {LAYER("aft", "mode=gated-matrix causal", 1, 40, 12, 3)},
    {LAYER("aft", "mode=full", 2, 21, 12, 3), PADDED(full_and_short), .table = 25},
    {LAYER("aft", "mode=full causal", 1, 40, 10, 1), .rank = 3},
    {LAYER("aft", "mode=full", 1, 1, 8, 2)},
    {LAYER("aft", "mode=local local=4", 2, 40, 12, 3)},
    {LAYER("aft", "mode=local local=3 causal", 2, 21, 10, 2), PADDED(full_and_empty), .rank = 2, .table = 30},
    {LAYER("aft", "mode=simple", 2, 40, 12, 3), PADDED(full_and_short)},
    {LAYER("aft", "mode=simple causal", 2, 21, 10, 2), PADDED(none)},
    {LAYER("aft", "mode=conv", 2, 40, 12, 3), .kernel = 7, .reparam = true},
    {LAYER("aft", "mode=conv causal", 2, 21, 10, 2), PADDED(full_and_short), .kernel = 3},

    {LAYER("cjar", "", 2, 70, 12, 3)},
    {LAYER("cjar", "window-left=3 window-right=5", 2, 21, 12, 3), PADDED(full_and_short), .links = 40},
    {LAYER("cjar", "window-left=3 window-right=none causal scale-by=model", 2, 21, 12, 3), PADDED(full_and_empty),
     .memory = -1},
    {LAYER("cjar", "window-left=none window-right=2", 1, 33, 10, 2), .memory = 17, .links = 90},
    {LAYER("cjar", "window-left=4 window-right=0 masked=multiply", 2, 21, 12, 3), .links = 40, .memory_kv = true},
    {LAYER("cjar", "window-left=4 window-right=2 masked=multiply causal", 2, 21, 12, 3), PADDED(full_and_short),
     .links = 60},
    {LAYER("cjar", "window-left=0 window-right=0 masked=multiply", 1, 40, 10, 1), .memory = -1},
    {LAYER("cjar", "window-left=2 window-right=2", 2, 21, 12, 3), PADDED(none), .links = 60},
    {LAYER("cjar", "", 1, 1, 8, 2)},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

static bool built(const char *variant) {
    const clattn__variant *v = clattn__variant_find(variant);
    return v && v->backward;
}

static void check_on(const fixture *f, const layer_case *given, clattn_type type, const gradient_options *options) {
    layer_case c = *given;
    c.type = type;
    c.seed = 3000 + (uint64_t)(given - cases);
    if (built(c.variant))
        check_layer_gradients(f, &c, options);
    else
        test_skip("this family is not built, or has no backward pass");
}

START_TEST(gradients_in_f32) { check_on(device(), &cases[_i], CLATTN_F32, NULL); }
END_TEST

START_TEST(gradients_in_16_bits) {
    const clattn_type type = _i % 2 ? CLATTN_F16 : CLATTN_BF16;
    check_on(device(), &cases[_i], type, &(gradient_options){.grad_type = type});
}
END_TEST

START_TEST(gradients_of_16_bit_weights) {
    layer_case c = cases[_i / 2];
    c.weight_type = _i % 2 ? CLATTN_F16 : CLATTN_BF16;
    c.seed = 3500 + (uint64_t)_i;
    if (built(c.variant))
        check_gradient_storage(device(), &c, &(gradient_options){.grad_type = c.weight_type});
    else
        test_skip("this family is not built, or has no backward pass");
}
END_TEST

START_TEST(gradients_added) { check_on(device(), &cases[_i], CLATTN_F32, &(gradient_options){.before = 0.5}); }
END_TEST

START_TEST(gradients_have_the_same_bits) {
    check_on(device(), &cases[_i], CLATTN_F32, &(gradient_options){.repeats = 20});
}
END_TEST

START_TEST(gradients_out_of_order) {
    fixture f = *device();
    f.queue = f.out_of_order;
    if (f.queue)
        check_on(&f, &cases[_i], CLATTN_F32, NULL);
    else
        test_skip("the device has no out-of-order queue");
}
END_TEST

START_TEST(gradients_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    check_on(device(), &cases[_i], _i % 2 ? CLATTN_F16 : CLATTN_F32, NULL);
}
END_TEST

/* Without tokens every gradient is 0, or what was there before. */
START_TEST(gradients_of_nothing) {
    static const char *const variants[] = {"dense", "cjar", "assa", "cas", "aft"};
    layer_case c = {.variant = variants[_i / 2], .B = 2, .n = 3, .d = 8, .H = 2};
    *(_i % 2 ? &c.B : &c.n) = 0;
    c.table = 4; /* aft's w exists without tokens */
    if (built(c.variant)) {
        check_layer_gradients(device(), &c, NULL);
        check_layer_gradients(device(), &c, &(gradient_options){.before = 0.5});
    } else {
        test_skip("this family is not built, or has no backward pass");
    }
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

int main(void) {
    Suite *suite = suite_create("gradients");
    TCase *layers = tcase_create("layers");
    tcase_add_checked_fixture(layers, NULL, aligned_again);
    tcase_add_loop_test(layers, gradients_in_f32, 0, CASES);
    tcase_add_loop_test(layers, gradients_in_16_bits, 0, CASES);
    tcase_add_loop_test(layers, gradients_of_16_bit_weights, 0, 2 * CASES);
    tcase_add_loop_test(layers, gradients_added, 0, CASES);
    tcase_add_loop_test(layers, gradients_have_the_same_bits, 0, CASES);
    tcase_add_loop_test(layers, gradients_out_of_order, 0, CASES);
    tcase_add_loop_test(layers, gradients_off_alignment, 0, CASES);
    tcase_add_loop_test(layers, gradients_of_nothing, 0, 10);
    suite_add_tcase(suite, layers);
    return run_device_suite(suite);
}
