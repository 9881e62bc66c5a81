/* A layer loaded in turn from one storage and another; and mixed. test_layers.c and test_gradients.c compare them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/layer.h>

#include "core/variant.h"
#include "harness/guarded.h"
#include "harness/storage.h"

enum { BATCH = 2, LENGTH = 5, SIZE = 24, HEADS = 3, MOST = 16, ELEMENTS = BATCH * LENGTH * SIZE };

static double *numbers(size_t count, unsigned seed, clattn_type type) {
    double *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1103515245U + 12345U;
        values[i] = ((double)(seed >> 16 & 1023) - 512) / 1500;
    }
    storage_round(type, values, count);
    return values;
}

static clattn_layer *make_layer(const char *variant) {
    clattn_layer *layer;
    assert_ok(clattn_layer_from_settings(device()->context, variant, SIZE, HEADS, NULL, 0, NULL, 0, &layer));
    ck_assert_uint_le(clattn_layer_weight_count(layer), MOST);
    return layer;
}

/* Load numbers that are exact in `exact`, stored as type; an odd one out has a type of its own. */
static clattn_status load(clattn_layer *layer, clattn_type exact, clattn_type type, int odd, clattn_type odd_type) {
    guarded held[MOST];
    clattn_tensor tensors[MOST];
    const size_t count = clattn_layer_weight_count(layer);
    for (size_t i = 0; i < count; i++) {
        clattn_weight_info w;
        size_t size = 1;
        assert_ok(clattn_layer_weight(layer, i, &w));
        for (int axis = 0; axis < w.rank; axis++)
            size *= (size_t)w.shape[axis];
        double *values = numbers(size, (unsigned)i, exact);
        held[i] = guarded_upload(device(), (int)i == odd ? odd_type : type, values, size);
        tensors[i] = guarded_tensor(&held[i], w.rank, w.shape[0], w.shape[1], w.shape[2], w.shape[3]);
        free(values);
    }
    clattn_status status = clattn_layer_load(layer, device()->queue, tensors, count, 0, NULL, NULL);
    clFinish(device()->queue);
    for (size_t i = 0; i < count; i++)
        guarded_free(&held[i]);
    return status;
}

static double *run(clattn_layer *layer) {
    fixture *f = device();
    const clattn_layer_shape shape = {.batch = BATCH, .length = LENGTH};
    clattn_plan *plan;
    assert_ok(clattn_layer_plan(layer, &shape, &plan));
    double *values = numbers(ELEMENTS, 99, CLATTN_F32);
    guarded x = guarded_upload(f, CLATTN_F32, values, ELEMENTS), y = guarded_make(f, CLATTN_F32, ELEMENTS);
    guarded scratch = guarded_bytes(f, (size_t)clattn_plan_workspace_size(plan));
    clattn_tensor tensors[CLATTN_LAYER_SLOTS] = {{0}};
    tensors[CLATTN_LAYER_X] = guarded_tensor(&x, 3, BATCH, LENGTH, SIZE, 0);
    tensors[CLATTN_LAYER_Y] = guarded_tensor(&y, 3, BATCH, LENGTH, SIZE, 0);
    const clattn_workspace workspace = {scratch.memory, scratch.before};
    assert_ok(clattn_enqueue(plan, f->queue, tensors, CLATTN_LAYER_SLOTS, &workspace, 0, NULL, NULL));
    double *got = guarded_read(f, &y, "y");
    guarded_free(&x);
    guarded_free(&y);
    guarded_free(&scratch);
    free(values);
    clattn_plan_destroy(plan);
    return got;
}

/* One layer, loaded from float32, from 16 bits, and from float32 again. */
START_TEST(reloaded) {
    const clattn_type type = _i % 2 ? CLATTN_F16 : CLATTN_BF16;
    clattn_layer *layer = make_layer(clattn__variants[_i / 2]->name);
    assert_ok(load(layer, type, CLATTN_F32, -1, CLATTN_F32));
    double *wide = run(layer);
    assert_ok(load(layer, type, type, -1, CLATTN_F32));
    double *got = run(layer);
    ck_assert(!memcmp(got, wide, ELEMENTS * sizeof *got));
    free(got);
    assert_ok(load(layer, type, CLATTN_F32, -1, CLATTN_F32));
    got = run(layer);
    ck_assert(!memcmp(got, wide, ELEMENTS * sizeof *got));
    free(got);
    free(wide);
    clattn_layer_destroy(layer);
}
END_TEST

/* The first weight tells the type; the odd one is named. Integers are no weights. */
START_TEST(mixed_storage_is_refused) {
    clattn_layer *layer = make_layer(clattn__variants[_i]->name);
    const int last = (int)clattn_layer_weight_count(layer) - 1;
    clattn_weight_info odd;
    for (int i = 1; i <= last; i += last - 1) {
        assert_ok(clattn_layer_weight(layer, (size_t)i, &odd));
        assert_refused(load(layer, CLATTN_BF16, CLATTN_BF16, i, CLATTN_F32), CLATTN_INVALID_TYPE, odd.name);
        assert_refused(load(layer, CLATTN_BF16, CLATTN_BF16, i, CLATTN_F16), CLATTN_INVALID_TYPE, odd.name);
        assert_refused(load(layer, CLATTN_F32, CLATTN_F32, i, CLATTN_F16), CLATTN_INVALID_TYPE, odd.name);
    }
    assert_refused(load(layer, CLATTN_I32, CLATTN_I32, -1, CLATTN_I32), CLATTN_INVALID_TYPE, "must be f32, f16 or bf16");
    clattn_layer_destroy(layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weights");
    TCase *tests = tcase_create("storage");
    int families = 0;
    while (clattn__variants[families])
        families++;
    tcase_add_loop_test(tests, reloaded, 0, 2 * families);
    tcase_add_loop_test(tests, mixed_storage_is_refused, 0, families);
    suite_add_tcase(suite, tests);
    return run_device_suite(suite);
}
