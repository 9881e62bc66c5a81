#include "harness/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_FOUND = 16, EXIT_SKIPPED = 77, MILLISECOND = 1000 * 1000, PATIENCE = 10 * 1000 };

/* ---- choosing ---- */

typedef struct found {
    cl_device_id device;
    cl_device_type type;
    cl_uint platform, number; /* P:D */
    char name[256];
} found;

static cl_uint list_platform(cl_platform_id platform, cl_uint p, found *list, cl_uint room) {
    cl_device_id ids[MAX_FOUND];
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_FOUND, ids, &count) != CL_SUCCESS)
        return 0;
    count = count < MAX_FOUND ? count : MAX_FOUND;
    count = count < room ? count : room;
    for (cl_uint d = 0; d < count; d++) {
        list[d] = (found){.device = ids[d], .platform = p, .number = d};
        clGetDeviceInfo(ids[d], CL_DEVICE_TYPE, sizeof(list[d].type), &list[d].type, NULL);
        clGetDeviceInfo(ids[d], CL_DEVICE_NAME, sizeof(list[d].name) - 1, list[d].name, NULL);
    }
    return count;
}

static cl_uint list_devices(found *list) {
    cl_platform_id platforms[MAX_FOUND];
    cl_uint platform_count = 0, count = 0;
    if (clGetPlatformIDs(MAX_FOUND, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < MAX_FOUND; p++)
        count += list_platform(platforms[p], p, list + count, MAX_FOUND - count);
    return count;
}

static bool is_named(const found *f, const char *wanted) {
    cl_uint p, d;
    char end;
    if (sscanf(wanted, "%u:%u%c", &p, &d, &end) == 2)
        return f->platform == p && f->number == d;
    return strstr(f->name, wanted) != NULL;
}

cl_device_id device_pick(void) {
    found list[MAX_FOUND];
    cl_uint count = list_devices(list);
    const char *wanted = getenv("CLATTN_DEVICE");
    for (cl_uint f = 0; wanted && *wanted && f < count; f++)
        if (is_named(&list[f], wanted))
            return list[f].device;
    if (wanted && *wanted)
        return NULL;
    const cl_device_type order[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU};
    for (int t = 0; t < 2; t++)
        for (cl_uint f = 0; f < count; f++)
            if (list[f].type & order[t])
                return list[f].device;
    return NULL;
}

/* ---- fixture ---- */

static fixture shared;
static int skipped;

fixture *device(void) { return &shared; }

static void keep_line(void *user, clattn_log_level level, const char *line) {
    fixture *f = user;
    if (level <= CLATTN_LOG_WARNING)
        snprintf(f->line, sizeof(f->line), "%s", line);
}

static bool fixture_open(fixture *f) {
    const char *cache_dir = getenv("CLATTN_CACHE_DIR");
    cl_int status;
    f->cl = clCreateContext(NULL, 1, &f->device, NULL, NULL, &status);
    if (status != CL_SUCCESS)
        return false;
    f->queue = clCreateCommandQueue(f->cl, f->device, 0, &status);
    if (status != CL_SUCCESS)
        return false;
    f->out_of_order = clCreateCommandQueue(f->cl, f->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &status);
    if (status != CL_SUCCESS)
        f->out_of_order = NULL;
    clattn_context_options options = {
        .log = keep_line, .log_user = f, .log_level = CLATTN_LOG_WARNING, .cache_dir = cache_dir ? cache_dir : ""};
    return clattn_context_create(f->cl, f->device, &options, &f->context) == CLATTN_SUCCESS;
}

static void fixture_close(fixture *f) {
    clattn_context_destroy(f->context);
    if (f->out_of_order)
        clReleaseCommandQueue(f->out_of_order);
    if (f->queue)
        clReleaseCommandQueue(f->queue);
    if (f->cl)
        clReleaseContext(f->cl);
}

fixture device_apart(void) {
    fixture f = shared;
    cl_int status;
    f.cl = clCreateContext(NULL, 1, &f.device, NULL, NULL, &status);
    ck_assert_int_eq(status, CL_SUCCESS);
    f.queue = clCreateCommandQueue(f.cl, f.device, 0, &status);
    ck_assert_int_eq(status, CL_SUCCESS);
    f.out_of_order = NULL;
    return f;
}

/* ---- running ---- */

static int run(Suite *suite, enum fork_status fork_status) {
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, fork_status);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    if (skipped)
        printf("%d of these %d tests skipped\n", skipped, srunner_ntests_run(runner));
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int run_suite(Suite *suite) { return run(suite, CK_NOFORK); }

int run_device_suite(Suite *suite) {
    shared.device = device_pick();
    if (!shared.device) {
        printf("skipped: no OpenCL device; none of this program's tests ran\n");
        srunner_free(srunner_create(suite)); /* frees the suite */
        return EXIT_SKIPPED;
    }
    int status = EXIT_FAILURE;
    if (fixture_open(&shared))
        status = run(suite, CK_NOFORK);
    else
        printf("no context on the device: %s\n", shared.line);
    fixture_close(&shared);
    return status;
}

void test_skip(const char *reason) {
    skipped++;
    printf("skipped: %s\n", reason);
}

/* ---- statuses ---- */

void assert_ok(clattn_status status) {
    char text[4096] = "";
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_error(shared.context, text, sizeof(text));
    ck_abort_msg("%s: %s", clattn_status_string(status), text);
}

void assert_refused(clattn_status status, clattn_status wanted, const char *fragment) {
    char text[4096] = "";
    clattn_context_error(shared.context, text, sizeof(text));
    ck_assert_msg(status == wanted, "%s, wanted %s: %s", clattn_status_string(status), clattn_status_string(wanted),
                  text);
    ck_assert_msg(!fragment || strstr(text, fragment), "the sentence \"%s\" does not hold \"%s\"", text, fragment);
}

/* ---- references ---- */

references references_of(cl_context cl, cl_command_queue queue) {
    references counted = {0};
    ck_assert_int_eq(clGetContextInfo(cl, CL_CONTEXT_REFERENCE_COUNT, sizeof(cl_uint), &counted.context, NULL),
                     CL_SUCCESS);
    ck_assert_int_eq(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof(cl_uint), &counted.queue, NULL),
                     CL_SUCCESS);
    return counted;
}

void assert_references(cl_context cl, cl_command_queue queue, references wanted) {
    references counted = references_of(cl, queue);
    for (int waited = 0; waited < PATIENCE && (counted.context > wanted.context || counted.queue > wanted.queue);
         waited++) {
        nanosleep(&(struct timespec){.tv_nsec = MILLISECOND}, NULL);
        counted = references_of(cl, queue);
    }
    ck_assert_uint_eq(counted.context, wanted.context);
    ck_assert_uint_eq(counted.queue, wanted.queue);
}
