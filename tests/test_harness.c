/* The harness on the device: what is uploaded comes back, and a write outside a tensor is noticed. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "harness/close.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/storage.h"

START_TEST(buffers_give_back_what_they_got) {
    const clattn_type types[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    fixture *f = device();
    rng r = rng_make(1);
    double *values = rng_array(&r, 1, 37);
    storage_round(types[_i], values, 37);
    for (f->shift = 0; f->shift < 3; f->shift++) {
        guarded g = guarded_upload(f, types[_i], values, 37);
        ck_assert_uint_eq(guarded_tensor(&g, 1, 37, 0, 0, 0).offset * clattn_type_size(types[_i]), g.before);
        double *back = guarded_read(f, &g, "buffer");
        assert_close("buffer", back, values, 37, 0);
        free(back);
        guarded_free(&g);
    }
    f->shift = 0;
    free(values);
}
END_TEST

START_TEST(fresh_buffers_are_nan) {
    const clattn_type types[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
    guarded g = guarded_make(device(), types[_i], 5);
    double *back = guarded_read(device(), &g, "buffer");
    for (int e = 0; e < 5; e++)
        ck_assert(isnan(back[e]));
    free(back);
    guarded_free(&g);
}
END_TEST

/* The first and last byte of each band, counted from the first element. */
START_TEST(every_byte_outside_is_guarded) {
    const fixture *f = device();
    const long places[] = {-GUARD_BYTES, -1, 20, 20 + GUARD_BYTES - 1};
    guarded g = guarded_make(f, CLATTN_F32, 5);
    ck_assert(guarded_intact(f, &g, NULL));
    for (int p = 0; p < 4; p++) {
        unsigned char before, other;
        size_t at = (size_t)((long)g.before + places[p]);
        long where;
        ck_assert_int_eq(clEnqueueReadBuffer(f->queue, g.memory, CL_TRUE, at, 1, &before, 0, NULL, NULL), CL_SUCCESS);
        other = before ^ 1;
        ck_assert_int_eq(clEnqueueWriteBuffer(f->queue, g.memory, CL_TRUE, at, 1, &other, 0, NULL, NULL), CL_SUCCESS);
        ck_assert(!guarded_intact(f, &g, &where));
        ck_assert_int_eq(where, places[p]);
        guarded_refill(f, &g);
    }
    guarded_free(&g);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("harness");
    TCase *buffers = tcase_create("buffers");
    tcase_add_loop_test(buffers, buffers_give_back_what_they_got, 0, 3);
    tcase_add_loop_test(buffers, fresh_buffers_are_nan, 0, 3);
    tcase_add_test(buffers, every_byte_outside_is_guarded);
    suite_add_tcase(suite, buffers);
    return run_device_suite(suite);
}
