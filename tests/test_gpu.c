/* Tiny layers of each family in a GPU's shape, forward and backward: what oclgrind.py runs under Oclgrind, whose
 * interpreter takes seconds for what a device does in microseconds. */
#include <string.h>

#include "core/variant.h"
#include "harness/gpu_shaped.h"
#include "harness/gradients.h"

static const int full_and_short[] = {7, 3};

#define PADDED .lengths = full_and_short, .padding_nan = true

static const layer_case cases[] = {
    {LAYER("dense", "causal", 2, 7, 8, 2), PADDED},
    {LAYER("assa", "k=3", 2, 7, 8, 2), PADDED},
    {LAYER("assa", "k=3 normalise=all", 2, 7, 8, 2), PADDED},
    {LAYER("assa", "mode=adaptive window=2 grid=2x4 shift=1", 1, 8, 8, 2)},
    {LAYER("cas", "", 2, 7, 8, 2), PADDED},
    {LAYER("cas", "causal", 1, 7, 8, 2)},
    {LAYER("cas", "mode=vit grid=3x3", 1, 9, 8, 1)},
    {LAYER("cjar", "window-left=1 window-right=2 masked=multiply", 2, 7, 8, 2), PADDED, .memory = 2, .links = 6},
    {LAYER("cjar", "window-left=1 window-right=0 causal", 1, 7, 8, 2), .memory = 2, .links = 6},
    {LAYER("aft", "mode=gated", 2, 7, 8, 2), PADDED},
    {LAYER("aft", "mode=gated-matrix causal", 1, 7, 8, 2)},
    {LAYER("aft", "mode=full", 2, 7, 8, 2), PADDED},
    {LAYER("aft", "mode=local local=2 causal", 1, 7, 8, 2), .rank = 2},
    {LAYER("aft", "mode=simple causal", 2, 7, 8, 2), PADDED},
    {LAYER("aft", "mode=conv", 1, 7, 8, 2), .kernel = 3},
};

enum { CASES = sizeof(cases) / sizeof(*cases) };

START_TEST(layers_in_a_gpu_shape) {
    layer_case c = cases[_i];
    c.seed = 5000 + (uint64_t)_i;
    if (!clattn__variant_find(c.variant)) {
        test_skip("this family is not built");
        return;
    }
    check_layer_case(&gpu_shaped, &c);
    check_layer_gradients(&gpu_shaped, &c, NULL);
}
END_TEST

/* A test case a family, so that CK_RUN_CASE=dense runs one. */
static int add_family(Suite *suite, int first) {
    int end = first;
    while (end < CASES && !strcmp(cases[end].variant, cases[first].variant))
        end++;
    TCase *family = tcase_create(cases[first].variant);
    tcase_add_unchecked_fixture(family, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(family, layers_in_a_gpu_shape, first, end);
    suite_add_tcase(suite, family);
    return end;
}

int main(void) {
    Suite *suite = suite_create("gpu");
    for (int first = 0; first < CASES;)
        first = add_family(suite, first);
    return run_device_suite(suite);
}
