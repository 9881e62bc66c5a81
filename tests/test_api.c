/* Calls that must be refused: what they answer, what the sentence says, and that nothing happened. One table: each line
 * spoils one part of a call that would succeed. */
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "spy.h"

/* Handles of another world, made once: another OpenCL context on the same device, and a part of the device. */
static struct {
    fixture other;
    cl_mem memory;    /* of the other context, large enough for anything here */
    cl_event event;   /* of the other context */
    cl_context parts; /* of device and its parts; NULL where it has none */
    cl_device_id part;
    cl_command_queue part_queue;
} alien;

typedef struct wrong {
    const char *what;
    void (*spoil)(job *j);
    clattn_status status;
    const char *says[3]; /* parts of the sentence */
} wrong;

static clattn_tensor *x_of(job *j) { return &j->call.tensors[CLATTN_LAYER_X]; }
static clattn_tensor *y_of(job *j) { return &j->call.tensors[CLATTN_LAYER_Y]; }
static clattn_tensor *lengths_of(job *j) { return &j->call.tensors[CLATTN_LAYER_LENGTHS]; }

/* A buffer of the job's context with this many bytes, released by swap_back. */
static cl_mem swapped;

static cl_mem of_bytes(const job *j, size_t bytes) {
    swapped = clCreateBuffer(j->f.cl, CL_MEM_READ_WRITE, bytes, NULL, NULL);
    ck_assert_ptr_nonnull(swapped);
    return swapped;
}

static void swap_back(void) {
    if (swapped)
        clReleaseMemObject(swapped);
    swapped = NULL;
}

/* ---- arguments ---- */

static void no_plan(job *j) { j->call.plan = NULL; }
static void no_queue(job *j) { j->call.queue = NULL; }
static void no_tensors(job *j) { j->call.no_tensors = true; }
static void no_count(job *j) { j->call.count = 0; }
static void one_too_few(job *j) { j->call.count--; }
static void one_too_many(job *j) { j->call.count++; }
static void list_without_count(job *j) { j->call.wait_list = &alien.event; }
static void count_without_list(job *j) { j->call.waits = 1; }
static void null_in_list(job *j) {
    static const cl_event none[1];
    j->call.waits = 1;
    j->call.wait_list = none;
}
static void alien_in_list(job *j) {
    j->call.waits = 1;
    j->call.wait_list = &alien.event;
}
static void alien_queue(job *j) { j->call.queue = alien.other.queue; }

/* ---- tensors ---- */

static void x_missing(job *j) { x_of(j)->memory = NULL; }
static void y_missing(job *j) { y_of(j)->memory = NULL; }
static void x_absent(job *j) { *x_of(j) = (clattn_tensor){0}; }
static void x_half(job *j) { x_of(j)->type = CLATTN_F16; }
static void x_no_type(job *j) { x_of(j)->type = (clattn_type)99; }
static void y_integer(job *j) { y_of(j)->type = CLATTN_I32; }
static void x_flat(job *j) { x_of(j)->rank = 2; }
static void x_deep(job *j) { x_of(j)->rank = 5; }
static void x_negative_rank(job *j) { x_of(j)->rank = -1; }
static void x_short(job *j) { x_of(j)->shape[1]--; }
static void y_long(job *j) { y_of(j)->shape[1]++; }
static void x_negative(job *j) { x_of(j)->shape[0] = -2; }
static void x_strided(job *j) { x_of(j)->stride[1]++; }
static void y_broadcast(job *j) { y_of(j)->stride[0] = 0; }
static void x_backwards(job *j) { x_of(j)->stride[1] = -JOB_WIDTH; }
static void x_far(job *j) { x_of(j)->offset = UINT64_MAX; }
static void x_far_in_bytes(job *j) { x_of(j)->offset = UINT64_MAX / 4 + 1; }
static void x_past_the_end(job *j) { x_of(j)->offset = 1u << 20; }
static void x_alien(job *j) { x_of(j)->memory = alien.memory; }
static void y_alien(job *j) { y_of(j)->memory = alien.memory; }
static void lengths_missing(job *j) { lengths_of(j)->memory = NULL; }
static void lengths_wide(job *j) { lengths_of(j)->type = CLATTN_I64; }
static void lengths_many(job *j) { lengths_of(j)->shape[0]++; }
static void x_a_byte_short(job *j) {
    x_of(j)->memory = of_bytes(j, 4 * JOB_ELEMENTS - 1);
    x_of(j)->offset = 0;
}
static void y_an_element_late(job *j) {
    y_of(j)->memory = of_bytes(j, 4 * JOB_ELEMENTS);
    y_of(j)->offset = 1;
}

/* ---- workspace ---- */

static size_t needed(const job *j) { return (size_t)clattn_plan_workspace_size(j->plan); }

static void no_workspace(job *j) { j->call.no_workspace = true; }
static void empty_workspace(job *j) { j->call.workspace.memory = NULL; }
static void crooked_workspace(job *j) { j->call.workspace.offset += 4; }
static void odd_workspace(job *j) { j->call.workspace.offset += 255; }
static void far_workspace(job *j) { j->call.workspace.offset = UINT64_MAX - 255; }
static void alien_workspace(job *j) { j->call.workspace.memory = alien.memory; }
static void short_workspace(job *j) { j->call.workspace = (clattn_workspace){of_bytes(j, needed(j) - 1), 0}; }
static void late_workspace(job *j) { j->call.workspace = (clattn_workspace){of_bytes(j, needed(j) + 255), 256}; }

static const wrong wrongs[] = {
    {"no plan", no_plan, CLATTN_INVALID_ARGUMENT, {NULL}},
    {"no queue", no_queue, CLATTN_INVALID_ARGUMENT, {"queue is NULL"}},
    {"no tensors", no_tensors, CLATTN_INVALID_ARGUMENT, {"tensors is NULL"}},
    {"count 0", no_count, CLATTN_INVALID_ARGUMENT, {"count is 0", "takes"}},
    {"one tensor too few", one_too_few, CLATTN_INVALID_ARGUMENT, {"count is", "takes"}},
    {"one tensor too many", one_too_many, CLATTN_INVALID_ARGUMENT, {"count is", "takes"}},
    {"a wait list without count", list_without_count, CLATTN_INVALID_ARGUMENT, {"wait_count is 0", "not NULL"}},
    {"a count without wait list", count_without_list, CLATTN_INVALID_ARGUMENT, {"wait_count is 1", "is NULL"}},
    {"NULL in the wait list", null_in_list, CLATTN_INVALID_ARGUMENT, {"wait_list[0] is NULL"}},
    {"another context's event", alien_in_list, CLATTN_INVALID_CONTEXT, {"wait_list[0]", "another OpenCL context"}},
    {"another context's queue", alien_queue, CLATTN_INVALID_CONTEXT, {"queue", "another OpenCL context"}},

    {"x without memory", x_missing, CLATTN_INVALID_ARGUMENT, {"x is missing"}},
    {"y without memory", y_missing, CLATTN_INVALID_ARGUMENT, {"y is missing"}},
    {"x all zero", x_absent, CLATTN_INVALID_ARGUMENT, {"x is missing"}},
    {"x f16", x_half, CLATTN_INVALID_TYPE, {"x is f16 [2, 37, 24]", "f32 [2, 37, 24]"}},
    {"x of no type", x_no_type, CLATTN_INVALID_TYPE, {"x is ?", "f32"}},
    {"y i32", y_integer, CLATTN_INVALID_TYPE, {"y is i32", "f32"}},
    {"x of rank 2", x_flat, CLATTN_INVALID_SHAPE, {"x is f32 [2, 37]", "[2, 37, 24]"}},
    {"x of rank 5", x_deep, CLATTN_INVALID_SHAPE, {"x is f32", "[2, 37, 24]"}},
    {"x of rank -1", x_negative_rank, CLATTN_INVALID_SHAPE, {"x is f32 []", "[2, 37, 24]"}},
    {"x a token short", x_short, CLATTN_INVALID_SHAPE, {"x is f32 [2, 36, 24]", "[2, 37, 24]"}},
    {"y a token long", y_long, CLATTN_INVALID_SHAPE, {"y is f32 [2, 38, 24]", "[2, 37, 24]"}},
    {"x of a negative extent", x_negative, CLATTN_INVALID_SHAPE, {"x is f32 [-2, 37, 24]", "[2, 37, 24]"}},
    {"x of another stride", x_strided, CLATTN_INVALID_SHAPE, {"[888, 25, 1]", "[888, 24, 1]"}},
    {"y of stride 0", y_broadcast, CLATTN_INVALID_SHAPE, {"[0, 24, 1]", "[888, 24, 1]"}},
    {"x of a negative stride", x_backwards, CLATTN_INVALID_SHAPE, {"[888, -24, 1]", "[888, 24, 1]"}},
    {"x at the largest offset", x_far, CLATTN_INVALID_SHAPE, {"x: offset 18446744073709551615"}},
    {"x at an offset whose bytes wrap", x_far_in_bytes, CLATTN_INVALID_SHAPE, {"x: offset 4611686018427387904"}},
    {"x past its buffer", x_past_the_end, CLATTN_INVALID_BUFFER, {"x: ", "4201408 are needed"}},
    {"x a byte short", x_a_byte_short, CLATTN_INVALID_BUFFER, {"x: ", "7103 bytes", "7104 are needed"}},
    {"y an element late", y_an_element_late, CLATTN_INVALID_BUFFER, {"y: ", "7104 bytes", "7108 are needed"}},
    {"x of another context", x_alien, CLATTN_INVALID_BUFFER, {"x: ", "another OpenCL context"}},
    {"y of another context", y_alien, CLATTN_INVALID_BUFFER, {"y: ", "another OpenCL context"}},
    {"no lengths", lengths_missing, CLATTN_INVALID_ARGUMENT, {"lengths is missing"}},
    {"lengths i64", lengths_wide, CLATTN_INVALID_TYPE, {"lengths is i64 [2]", "i32 [2]"}},
    {"a length too many", lengths_many, CLATTN_INVALID_SHAPE, {"lengths is i32 [3]", "i32 [2]"}},

    {"no workspace", no_workspace, CLATTN_INVALID_WORKSPACE, {"workspace is NULL", "bytes are needed"}},
    {"a workspace without memory", empty_workspace, CLATTN_INVALID_WORKSPACE, {"workspace is NULL"}},
    {"a workspace off alignment", crooked_workspace, CLATTN_INVALID_WORKSPACE, {"offset is 4100", "multiple of 256"}},
    {"a workspace at an odd byte", odd_workspace, CLATTN_INVALID_WORKSPACE, {"offset is 4351", "multiple of 256"}},
    {"a workspace at the end of the world", far_workspace, CLATTN_INVALID_WORKSPACE, {"workspace"}},
    {"a workspace a byte short", short_workspace, CLATTN_INVALID_WORKSPACE, {"workspace: ", "bytes, but"}},
    {"a workspace that begins late", late_workspace, CLATTN_INVALID_WORKSPACE, {"workspace: ", "bytes, but"}},
    {"a workspace of another context",
     alien_workspace,
     CLATTN_INVALID_BUFFER,
     {"workspace: ", "another OpenCL context"}},
};

enum { WRONGS = sizeof wrongs / sizeof *wrongs };

/* Refuse twice: with an event wanted, and without. */
static void check_refused(job *j, const wrong *w) {
    for (int wants_event = 0; wants_event < 2; wants_event++) {
        cl_event event = (cl_event)j; /* not NULL */
        const int live = spy_live_events();
        spy_reset();
        clattn_status status = job_enqueue(&j->call, wants_event ? &event : NULL);
        ck_assert_msg(status == w->status, "%s: %s, wanted %s", w->what, clattn_status_string(status),
                      clattn_status_string(w->status));
        for (int part = 0; part < 3 && w->says[part]; part++)
            assert_refused(status, w->status, w->says[part]);
        ck_assert_msg(!wants_event || event == NULL, "%s: an event came back", w->what);
        ck_assert_msg(spy_live_events() == live, "%s: an event was kept", w->what);
    }
}

START_TEST(wrong_calls_are_refused) {
    job j;
    const wrong *w = &wrongs[_i];
    job_open(&j, device(), true);
    w->spoil(&j);
    check_refused(&j, w);
    swap_back();
    clFinish(j.f.queue);
    ck_assert_msg(job_untouched(&j), "%s: y was written", w->what);
    job_close(&j);
}
END_TEST

/* Each refusal of before did not spoil the next call. */
START_TEST(a_good_call_after_bad_ones) {
    job j;
    job_open(&j, device(), true);
    const job_call good = j.call;
    double *want = job_run(&j);
    for (int i = 0; i < WRONGS; i++) {
        wrongs[i].spoil(&j);
        ck_assert_int_ne(job_enqueue(&j.call, NULL), CLATTN_SUCCESS);
        swap_back();
        j.call = good;
    }
    job_refill(&j);
    double *got = job_run(&j);
    ck_assert(job_same(got, want));
    free(got);
    free(want);
    job_close(&j);
}
END_TEST

/* ---- another device of the same context ---- */

/* A clattn context on the whole device in the context of device and part; the part's queue is then wrong. */
START_TEST(a_queue_of_another_device) {
    job j;
    if (!alien.parts) {
        test_skip("the device cannot be partitioned");
        return;
    }
    fixture f = *device();
    f.cl = alien.parts;
    f.queue = clCreateCommandQueue(f.cl, f.device, 0, NULL);
    const clattn_context_options options = {.cache_dir = getenv("CLATTN_CACHE_DIR")};
    ck_assert_int_eq(clattn_context_create(f.cl, f.device, &options, &f.context), CLATTN_SUCCESS);
    job_open(&j, &f, false);
    j.call.queue = alien.part_queue;
    cl_event event = (cl_event)&j;
    char text[256];
    ck_assert_int_eq(job_enqueue(&j.call, &event), CLATTN_INVALID_CONTEXT);
    ck_assert_ptr_null(event);
    clattn_context_error(f.context, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "another device"));
    ck_assert(job_untouched(&j));
    job_close(&j);
    clattn_context_destroy(f.context);
    clReleaseCommandQueue(f.queue);
}
END_TEST

/* The device is not one of the context's. */
START_TEST(a_context_without_the_device) {
    clattn_context *context = (clattn_context *)&context;
    if (!alien.parts) {
        test_skip("the device cannot be partitioned");
        return;
    }
    ck_assert_int_eq(clattn_context_create(device()->cl, alien.part, NULL, &context), CLATTN_INVALID_CONTEXT);
    ck_assert_ptr_null(context);
}
END_TEST

/* ---- the other world ---- */

static void open_part(void) {
    const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[64];
    cl_uint count = 0;
    if (clCreateSubDevices(device()->device, one_unit, 64, parts, &count) != CL_SUCCESS || count == 0)
        return;
    for (cl_uint i = 1; i < count; i++)
        clReleaseDevice(parts[i]);
    alien.part = parts[0];
    const cl_device_id both[] = {device()->device, alien.part};
    alien.parts = clCreateContext(NULL, 2, both, NULL, NULL, NULL);
    if (alien.parts)
        alien.part_queue = clCreateCommandQueue(alien.parts, alien.part, 0, NULL);
}

static void open_alien(void) {
    fixture *o = &alien.other;
    cl_int code;
    o->device = device()->device;
    o->cl = clCreateContext(NULL, 1, &o->device, NULL, NULL, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    o->queue = clCreateCommandQueue(o->cl, o->device, 0, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    alien.memory = clCreateBuffer(o->cl, CL_MEM_READ_WRITE, 1 << 20, NULL, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    alien.event = clCreateUserEvent(o->cl, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    clSetUserEventStatus(alien.event, CL_COMPLETE);
    open_part();
}

static void close_alien(void) {
    clReleaseEvent(alien.event);
    clReleaseMemObject(alien.memory);
    clReleaseCommandQueue(alien.other.queue);
    clReleaseContext(alien.other.cl);
    if (alien.part_queue)
        clReleaseCommandQueue(alien.part_queue);
    if (alien.parts)
        clReleaseContext(alien.parts);
    if (alien.part)
        clReleaseDevice(alien.part);
}

int main(void) {
    Suite *suite = suite_create("api");
    TCase *calls = tcase_create("calls");
    tcase_add_unchecked_fixture(calls, open_alien, close_alien);
    tcase_add_loop_test(calls, wrong_calls_are_refused, 0, WRONGS);
    tcase_add_test(calls, a_good_call_after_bad_ones);
    tcase_add_test(calls, a_queue_of_another_device);
    tcase_add_test(calls, a_context_without_the_device);
    suite_add_tcase(suite, calls);
    return run_device_suite(suite);
}
