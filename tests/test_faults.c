/* When OpenCL or the host's memory refuses, at every place in turn: the code comes through, nothing is made, nothing is
 * kept, and the next call works. */
#include <clattn/clattn.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "spy.h"

enum { MANY = 2000 }; /* more than any call has places */

static const clattn_dense_layer_desc desc = {.model_size = JOB_WIDTH, .heads = JOB_HEADS, .causal = true};
static const clattn_layer_shape shape = {.batch = JOB_BATCH, .length = JOB_LENGTH};

/* ---- calls ---- */

/* Each stage, and each argument of each stage, refused in turn. */
static void check_call(job *j, spy_call kind, cl_int code) {
    double *want = job_run(j);
    spy_reset();
    int places = 0;
    for (int number = 1; number < MANY; number++) {
        cl_event event = (cl_event)j;
        const int live = spy_live_events();
        spy_fail(kind, number, code);
        const clattn_status status = job_enqueue(&j->call, &event);
        if (!spy_failed()) {
            assert_ok(status);
            clWaitForEvents(1, &event);
            clReleaseEvent(event);
            break;
        }
        assert_refused(status, code, clattn_status_string(code));
        ck_assert_ptr_null(event);
        clFinish(j->f.queue);
        ck_assert_int_eq(spy_live_events(), live);
        places++;
    }
    spy_reset();
    ck_assert_int_gt(places, 1);
    job_refill(j);
    double *got = job_run(j);
    ck_assert(job_same(got, want));
    free(got);
    free(want);
}

START_TEST(a_refused_launch) {
    job j;
    job_open(&j, device(), true);
    check_call(&j, SPY_KERNEL, CL_OUT_OF_RESOURCES);
    check_call(&j, SPY_SET_ARG, CL_INVALID_ARG_VALUE);
    job_close(&j);
}
END_TEST

/* The first stage refused: y is as it was. */
START_TEST(a_refused_first_launch) {
    job j;
    job_open(&j, device(), true);
    spy_fail(SPY_KERNEL, 1, CL_OUT_OF_HOST_MEMORY);
    ck_assert_int_eq(job_enqueue(&j.call, NULL), CL_OUT_OF_HOST_MEMORY);
    clFinish(j.f.queue);
    ck_assert(job_untouched(&j));
    job_close(&j);
}
END_TEST

/* ---- making ---- */

/* Make a context, a layer and a plan, and destroy them. *tidy: what could not be made is NULL, and the context has a
 * sentence for it. No Check in here: its own allocations would be refused too. */
static clattn_status make_all(const fixture *f, const char *cache_dir, bool *tidy) {
    const clattn_context_options options = {.cache_dir = cache_dir};
    clattn_context *context = (clattn_context *)&options;
    clattn_layer *layer = (clattn_layer *)&options;
    clattn_plan *plan = (clattn_plan *)&options;
    clattn_status status = clattn_context_create(f->cl, f->device, &options, &context);
    *tidy = (context == NULL) == (status != CLATTN_SUCCESS);
    if (status != CLATTN_SUCCESS)
        return status;
    status = clattn_dense_layer(context, &desc, &layer);
    *tidy &= (layer == NULL) == (status != CLATTN_SUCCESS);
    if (status == CLATTN_SUCCESS) {
        status = clattn_layer_plan(layer, &shape, &plan);
        *tidy &= (plan == NULL) == (status != CLATTN_SUCCESS);
        clattn_plan_destroy(plan);
        clattn_layer_destroy(layer);
    }
    *tidy &= status == CLATTN_SUCCESS || clattn_context_error(context, NULL, 0) > 0;
    clattn_context_destroy(context);
    return status;
}

/* Refuse each such call of make_all in turn. A place that can do without (the disk cache) may succeed. */
static void check_making(spy_call kind, cl_int code, int least) {
    const char *cache_dir = getenv("CLATTN_CACHE_DIR");
    if (!cache_dir || !*cache_dir) {
        test_skip("each place would compile: CLATTN_CACHE_DIR is not set");
        return;
    }
    const fixture f = device_apart();
    const references before = references_of(f.cl, f.queue);
    bool tidy;
    assert_ok(make_all(&f, cache_dir, &tidy)); /* now the disk has the kernels */
    int refused = 0, number = 1;
    for (; number < MANY; number++) {
        spy_reset();
        spy_fail(kind, number, code);
        const clattn_status status = make_all(&f, cache_dir, &tidy);
        const bool refusal = spy_failed();
        spy_reset();
        if (!refusal)
            break;
        ck_assert_msg(tidy, "%s at place %d: something was kept, or nothing was said", clattn_status_string(status),
                      number);
        ck_assert_msg(status == CLATTN_SUCCESS || status == code || status == CLATTN_OUT_OF_HOST_MEMORY ||
                          status == CL_OUT_OF_HOST_MEMORY,
                      "%s at place %d", clattn_status_string(status), number);
        refused += status != CLATTN_SUCCESS;
    }
    spy_reset();
    ck_assert_int_lt(number, MANY);
    ck_assert_int_ge(refused, least);
    assert_references(f.cl, f.queue, before);
    assert_ok(make_all(&f, cache_dir, &tidy));
    clReleaseCommandQueue(f.queue);
    clReleaseContext(f.cl);
}

START_TEST(no_memory_on_the_host) { check_making(SPY_MALLOC, CLATTN_OUT_OF_HOST_MEMORY, 10); }
END_TEST

START_TEST(no_memory_on_the_device) { check_making(SPY_CREATE_BUFFER, CL_MEM_OBJECT_ALLOCATION_FAILURE, 2); }
END_TEST

START_TEST(no_kernel_objects) { check_making(SPY_CREATE_KERNEL, CL_OUT_OF_HOST_MEMORY, 2); }
END_TEST

int main(void) {
    Suite *suite = suite_create("faults");
    TCase *faults = tcase_create("faults");
    tcase_add_test(faults, a_refused_launch);
    tcase_add_test(faults, a_refused_first_launch);
    tcase_add_test(faults, no_memory_on_the_host);
    tcase_add_test(faults, no_memory_on_the_device);
    tcase_add_test(faults, no_kernel_objects);
    suite_add_tcase(suite, faults);
    return run_device_suite(suite);
}
