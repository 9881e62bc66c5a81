/* Weights stored in 16 bits: the layer is the one of the same numbers in float32, bit by bit. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/layer.h>

#include "core/variant.h"
#include "harness/guarded.h"
#include "harness/storage.h"

enum { BATCH = 2, LENGTH = 5, SIZE = 24, HEADS = 3, MOST = 8, ELEMENTS = BATCH * LENGTH * SIZE };

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

static const clattn_type narrow[] = {CLATTN_F16, CLATTN_BF16};

START_TEST(as_in_float32) {
    clattn_layer *layer = make_layer("dense");
    assert_ok(load(layer, narrow[_i], CLATTN_F32, -1, CLATTN_F32));
    double *wide = run(layer);
    assert_ok(load(layer, narrow[_i], narrow[_i], -1, CLATTN_F32));
    double *got = run(layer);
    ck_assert(!memcmp(got, wide, ELEMENTS * sizeof *got));
    free(got);
    assert_ok(load(layer, narrow[_i], CLATTN_F32, -1, CLATTN_F32)); /* and back */
    got = run(layer);
    ck_assert(!memcmp(got, wide, ELEMENTS * sizeof *got));
    free(got);
    free(wide);
    clattn_layer_destroy(layer);
}
END_TEST

START_TEST(mixed_storage_is_refused) {
    clattn_layer *layer = make_layer("dense");
    assert_refused(load(layer, CLATTN_BF16, CLATTN_BF16, 3, CLATTN_F32), CLATTN_INVALID_TYPE, "out_proj.bias");
    assert_refused(load(layer, CLATTN_F32, CLATTN_F32, 1, CLATTN_F16), CLATTN_INVALID_TYPE, "in_proj_bias");
    clattn_layer_destroy(layer);
}
END_TEST

/* A family either takes 16-bit weights or says which kernel does not. */
START_TEST(every_family_loads_or_refuses) {
    const clattn__variant *variant = clattn__variants[_i];
    clattn_layer *layer;
    if (clattn_layer_from_settings(device()->context, variant->name, SIZE, HEADS, NULL, 0, NULL, 0, &layer))
        return;
    if (clattn_layer_weight_count(layer) <= MOST) {
        const clattn_status status = load(layer, CLATTN_F16, CLATTN_F16, -1, CLATTN_F16);
        if (status)
            assert_refused(status, CLATTN_UNSUPPORTED, "packs f32 alone");
    }
    clattn_layer_destroy(layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weights");
    TCase *tests = tcase_create("storage");
    int families = 0;
    while (clattn__variants[families])
        families++;
    if (clattn__variant_find("dense")) {
        tcase_add_loop_test(tests, as_in_float32, 0, 2);
        tcase_add_test(tests, mixed_storage_is_refused);
    }
    tcase_add_loop_test(tests, every_family_loads_or_refuses, 0, families);
    suite_add_tcase(suite, tests);
    return run_device_suite(suite);
}
