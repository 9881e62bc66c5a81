/* README's example, cut out of it by extract.py, against the reference. */
#include <stdlib.h>

#include "harness/close.h"
#include "harness/guarded.h"
#include "harness/layer_case.h"
#include "harness/storage.h"

clattn_status attend(cl_context cl, cl_device_id device, cl_command_queue queue, const cl_mem *weights, cl_mem x,
                     cl_mem y, int64_t n);

enum { LENGTH = 19, WIDTH = 64 };

static const char *const names[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};

/* Buffers without bands: the example knows no offsets. */
static cl_mem bare(const fixture *f, const double *values, size_t count) {
    float *floats = malloc(count * sizeof *floats);
    storage_pack(CLATTN_F32, values, count, floats);
    cl_mem memory =
        clCreateBuffer(f->cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count * sizeof *floats, floats, NULL);
    free(floats);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

START_TEST(the_readme_is_right) {
    const layer_case c = {LAYER("dense", "", 1, LENGTH, WIDTH, 4), .seed = 11};
    const fixture *f = device();
    const size_t count = (size_t)LENGTH * WIDTH;
    layer_data data;
    cl_mem weights[4];
    layer_data_make(&c, &data);
    const layer_run r = layer_run_of(&c, &data);
    for (int w = 0; w < 4; w++) {
        const ref_weight *weight = ref_find(&r.ref, names[w]);
        weights[w] =
            bare(f, weight->data, (size_t)weight->shape[0] * (size_t)(weight->rank > 1 ? weight->shape[1] : 1));
    }
    double *want = ref_array(count), *got = ref_array(count);
    float *floats = malloc(count * sizeof *floats);
    cl_mem x = bare(f, data.x, count), y = bare(f, want, count);
    expect_layer("dense", &data.settings, &r.ref, NULL, data.x, want);
    ck_assert_int_eq(attend(f->cl, f->device, f->queue, weights, x, y, LENGTH), CLATTN_SUCCESS);
    clEnqueueReadBuffer(f->queue, y, CL_TRUE, 0, count * sizeof *floats, floats, 0, NULL, NULL);
    storage_unpack(CLATTN_F32, floats, count, got);
    assert_close("README", got, want, count, storage_tolerance(CLATTN_F32));
    ck_assert_int_eq(attend(f->cl, f->device, NULL, weights, x, y, LENGTH), CLATTN_INVALID_ARGUMENT);
    for (int w = 0; w < 4; w++)
        clReleaseMemObject(weights[w]);
    clReleaseMemObject(x);
    clReleaseMemObject(y);
    free(floats);
    free(got);
    free(want);
    layer_data_free(&data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("readme");
    TCase *readme = tcase_create("readme");
    tcase_add_test(readme, the_readme_is_right);
    suite_add_tcase(suite, readme);
    return run_device_suite(suite);
}
