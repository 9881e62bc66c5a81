/* What a call promises beside its result: nothing is uploaded or allocated, queues and wait lists of every kind, plans
 * shared by threads, objects that outlive what they were made from, the same bits every time. */
#include <clattn/clattn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"
#include "spy.h"

enum { THREADS = 8, REPEATS = 20 };

/* ---- cost ---- */

/* A warm call sets arguments and queues kernels, and that is all. */
START_TEST(a_warm_call_only_queues) {
    static const spy_call expected[] = {SPY_SET_ARG, SPY_KERNEL, SPY_CALLS};
    job j;
    job_open(&j, device(), true);
    for (int call = 0; call < 3; call++) {
        const int live = spy_live_events();
        spy_reset();
        assert_ok(job_enqueue(&j.call, NULL));
        ck_assert_str_eq(spy_calls_except(expected), "");
        ck_assert_int_gt(spy_count(SPY_KERNEL), 0);
        ck_assert_int_eq(spy_live_events(), live);
    }
    clFinish(j.f.queue);
    job_close(&j);
}
END_TEST

/* A plan for another length compiles nothing. */
START_TEST(another_length_compiles_nothing) {
    job j;
    job_open(&j, device(), false);
    for (int64_t length = 1; length < 600; length = 2 * length + 1) {
        spy_reset();
        job_resize(&j, 1, length);
        ck_assert_int_eq(spy_count(SPY_BUILD) + spy_count(SPY_CREATE_PROGRAM) + spy_count(SPY_CREATE_KERNEL), 0);
    }
    job_close(&j);
}
END_TEST

/* Everything of OpenCL that was retained is released. */
START_TEST(counts_of_references_return) {
    job j;
    fixture f = device_apart();
    const references before = references_of(f.cl, f.queue);
    const clattn_context_options options = {.cache_dir = getenv("CLATTN_CACHE_DIR")};
    assert_ok(clattn_context_create(f.cl, f.device, &options, &f.context));
    job_open(&j, &f, true);
    free(job_run(&j));
    job_close(&j);
    clattn_context_destroy(f.context);
    clFinish(f.queue);
    assert_references(f.cl, f.queue, before);
    clReleaseCommandQueue(f.queue);
    clReleaseContext(f.cl);
}
END_TEST

/* ---- nothing to do ---- */

START_TEST(nothing_to_do_succeeds) {
    static const int64_t sizes[][2] = {{0, JOB_LENGTH}, {JOB_BATCH, 0}, {0, 0}};
    job j;
    job_open(&j, device(), false);
    job_resize(&j, sizes[_i][0], sizes[_i][1]);
    ck_assert_uint_eq(clattn_plan_workspace_size(j.plan), 0);
    cl_event gate = clCreateUserEvent(j.f.cl, NULL), done = NULL;
    j.call.waits = 1;
    j.call.wait_list = &gate;
    j.call.no_workspace = true;
    spy_reset();
    assert_ok(job_enqueue(&j.call, &done));
    ck_assert_int_eq(spy_count(SPY_KERNEL), 0);
    ck_assert_ptr_nonnull(done);
    cl_int status = CL_COMPLETE;
    clFlush(j.f.queue);
    clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    ck_assert_int_ne(status, CL_COMPLETE); /* the wait list counts although there is nothing to do */
    clSetUserEventStatus(gate, CL_COMPLETE);
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    j.call.waits = 0;
    j.call.wait_list = NULL;
    j.call.tensors[CLATTN_LAYER_X].memory = NULL; /* no element, no memory needed */
    j.call.tensors[CLATTN_LAYER_Y].memory = NULL;
    assert_ok(job_enqueue(&j.call, NULL));
    clReleaseEvent(gate);
    job_close(&j);
}
END_TEST

/* ---- queues and wait lists ---- */

/* A call behind a user event does nothing before it; a second call waits for the first one's event. */
static void check_waiting(cl_command_queue queue, const double *want) {
    job j;
    job_open(&j, device(), false);
    cl_int code, status = CL_COMPLETE;
    cl_event gate = clCreateUserEvent(j.f.cl, &code), first = NULL, second = NULL;
    j.call.queue = queue;
    j.call.waits = 1;
    j.call.wait_list = &gate;
    assert_ok(job_enqueue(&j.call, &first));
    job_call then = j.call;
    then.wait_list = &first;
    assert_ok(job_enqueue(&then, &second));
    clFlush(queue);
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL); /* time enough to run, if nothing held it back */
    clGetEventInfo(first, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    ck_assert_int_gt(status, CL_RUNNING);
    clSetUserEventStatus(gate, CL_COMPLETE);
    ck_assert_int_eq(clWaitForEvents(1, &second), CL_SUCCESS);
    double *got = job_read(&j);
    ck_assert(job_same(got, want));
    free(got);
    clReleaseEvent(first);
    clReleaseEvent(second);
    clReleaseEvent(gate);
    job_close(&j);
}

START_TEST(calls_wait_for_their_list) {
    job j;
    job_open(&j, device(), false);
    double *want = job_run(&j);
    job_close(&j);
    check_waiting(device()->queue, want);
    if (device()->out_of_order)
        check_waiting(device()->out_of_order, want);
    else
        test_skip("the device has no out-of-order queue");
    free(want);
}
END_TEST

START_TEST(the_same_bits_every_time) {
    job j;
    job_open(&j, device(), true);
    double *want = job_run(&j);
    for (int i = 0; i < REPEATS; i++) {
        job_refill(&j);
        if (device()->out_of_order)
            j.call.queue = i % 2 ? device()->out_of_order : device()->queue;
        double *got = job_run(&j);
        ck_assert_msg(job_same(got, want), "call %d has other bits than the first", i);
        free(got);
    }
    free(want);
    job_close(&j);
}
END_TEST

/* ---- lifetimes ---- */

/* The caller may release everything but the plan and its queue. */
START_TEST(a_plan_outlives_context_and_layer) {
    job j;
    fixture f = device_apart();
    const clattn_context_options options = {.cache_dir = getenv("CLATTN_CACHE_DIR")};
    assert_ok(clattn_context_create(f.cl, f.device, &options, &f.context));
    job_open(&j, &f, false);
    double *want = job_run(&j);
    job_refill(&j);
    clattn_context_destroy(f.context);
    clattn_layer_destroy(j.layer);
    j.layer = NULL;
    clReleaseContext(f.cl);
    double *got = job_run(&j);
    ck_assert(job_same(got, want));
    j.call.queue = NULL; /* an error finds its context too */
    ck_assert_int_eq(job_enqueue(&j.call, NULL), CLATTN_INVALID_ARGUMENT);
    free(got);
    free(want);
    job_close(&j);
    clReleaseCommandQueue(f.queue);
}
END_TEST

/* A plan made before its layer's weights. */
START_TEST(a_layer_without_weights) {
    const clattn_dense_layer_desc desc = {.model_size = JOB_WIDTH, .heads = JOB_HEADS, .causal = true};
    job j;
    clattn_layer *empty;
    clattn_plan *plan;
    job_open(&j, device(), false);
    assert_ok(clattn_dense_layer(j.f.context, &desc, &empty));
    assert_ok(clattn_layer_plan(empty, &(clattn_layer_shape){.batch = JOB_BATCH, .length = JOB_LENGTH}, &plan));
    j.call.plan = plan;
    cl_event event = (cl_event)&j;
    assert_refused(job_enqueue(&j.call, &event), CLATTN_INVALID_STATE, "clattn_layer_load");
    ck_assert_ptr_null(event);
    ck_assert(job_untouched(&j));
    clattn_plan_destroy(plan);
    clattn_layer_destroy(empty);
    job_close(&j);
}
END_TEST

/* ---- threads ---- */

typedef struct worker {
    const job *shared;
    job own; /* its buffers, and its plan where it makes one */
    const double *want;
    bool plans; /* makes a plan of its own, in a context that all share */
    int good;
} worker;

static void *work(void *data) {
    worker *w = data;
    if (w->plans) {
        const clattn_layer_shape shape = {.batch = JOB_BATCH, .length = JOB_LENGTH};
        if (clattn_layer_plan(w->shared->layer, &shape, &w->own.plan) != CLATTN_SUCCESS)
            return NULL;
        w->own.call.plan = w->own.plan;
    }
    for (int i = 0; i < REPEATS; i++) {
        float *y = malloc(JOB_ELEMENTS * sizeof *y);
        cl_event done = NULL;
        bool same = job_enqueue(&w->own.call, &done) == CLATTN_SUCCESS &&
                    clEnqueueReadBuffer(w->own.call.queue, w->own.y.memory, CL_TRUE, w->own.y.before,
                                        JOB_ELEMENTS * sizeof *y, y, 1, &done, NULL) == CL_SUCCESS;
        for (int e = 0; same && e < JOB_ELEMENTS; e++)
            same = (double)y[e] == w->want[e];
        clReleaseEvent(done);
        free(y);
        w->good += same;
    }
    return NULL;
}

/* Every worker has x, y, workspace and queue of its own. */
static void check_threads(const fixture *f, bool plans, const double *want) {
    pthread_t threads[THREADS];
    static worker workers[THREADS];
    job shared;
    job_open(&shared, f, false);
    for (int t = 0; t < THREADS; t++) {
        worker *w = &workers[t];
        *w = (worker){.shared = &shared, .want = want, .plans = plans};
        job_open(&w->own, f, false);
        clattn_plan_destroy(w->own.plan);
        w->own.plan = NULL;
        w->own.call.plan = shared.plan;
        w->own.call.queue = clCreateCommandQueue(f->cl, f->device, 0, NULL);
    }
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        ck_assert_msg(workers[t].good == REPEATS, "thread %d: %d of %d calls were right", t, workers[t].good, REPEATS);
        clReleaseCommandQueue(workers[t].own.call.queue);
        job_close(&workers[t].own);
    }
    job_close(&shared);
}

START_TEST(a_plan_shared_by_threads) {
    job j;
    job_open(&j, device(), false);
    double *want = job_run(&j);
    job_close(&j);
    check_threads(device(), false, want);
    check_threads(device(), true, want);
    free(want);
}
END_TEST

typedef struct opener {
    cl_context cl;
    clattn_status status;
} opener;

/* A first call: context, layer and plan. */
static void *open_all(void *data) {
    opener *o = data;
    const clattn_context_options options = {.cache_dir = getenv("CLATTN_CACHE_DIR")};
    const clattn_dense_layer_desc desc = {.model_size = JOB_WIDTH, .heads = JOB_HEADS};
    const clattn_layer_shape shape = {.batch = 1, .length = 5};
    clattn_context *context = NULL;
    clattn_layer *layer = NULL;
    clattn_plan *plan = NULL;
    o->status = clattn_context_create(o->cl, device()->device, &options, &context);
    if (o->status == CLATTN_SUCCESS)
        o->status = clattn_dense_layer(context, &desc, &layer);
    if (o->status == CLATTN_SUCCESS)
        o->status = clattn_layer_plan(layer, &shape, &plan);
    clattn_context_destroy(context);
    clattn_layer_destroy(layer);
    clattn_plan_destroy(plan);
    return NULL;
}

START_TEST(first_calls_of_threads) {
    pthread_t threads[THREADS];
    opener openers[THREADS];
    for (int t = 0; t < THREADS; t++)
        openers[t] = (opener){.cl = device()->cl, .status = -1};
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, open_all, &openers[t]), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(openers[t].status, CLATTN_SUCCESS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("calls");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, a_warm_call_only_queues);
    tcase_add_test(calls, another_length_compiles_nothing);
    tcase_add_test(calls, counts_of_references_return);
    tcase_add_loop_test(calls, nothing_to_do_succeeds, 0, 3);
    tcase_add_test(calls, calls_wait_for_their_list);
    tcase_add_test(calls, the_same_bits_every_time);
    tcase_add_test(calls, a_plan_outlives_context_and_layer);
    tcase_add_test(calls, a_layer_without_weights);
    tcase_add_test(calls, a_plan_shared_by_threads);
    tcase_add_test(calls, first_calls_of_threads);
    suite_add_tcase(suite, calls);
    return run_device_suite(suite);
}
