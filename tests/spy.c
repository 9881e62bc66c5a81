#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/tensor.h>

#include "spy.h"

static atomic_int counts[SPY_CALLS], countdown, live;
static atomic_bool failed;
static spy_call doomed;
static int32_t answer;

/* ---- counting ---- */

void spy_reset(void) {
    for (int call = 0; call < SPY_CALLS; call++)
        atomic_store(&counts[call], 0);
    atomic_store(&countdown, 0);
    atomic_store(&failed, false);
}

int spy_count(spy_call call) { return atomic_load(&counts[call]); }

static bool listed(const spy_call *list, int call) {
    while (*list != SPY_CALLS && (int)*list != call)
        list++;
    return *list != SPY_CALLS;
}

const char *spy_calls_except(const spy_call *except) {
#define SPY_NAME(name) #name,
    static const char *const names[] = {SPY_LIST(SPY_NAME)};
    static char text[512];
    size_t used = 0;
    text[0] = 0;
    for (int call = 0; call < SPY_CALLS; call++)
        if (spy_count((spy_call)call) > 0 && !listed(except, call))
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d", used ? ", " : "", names[call],
                                     spy_count((spy_call)call));
    return text;
}

void spy_fail(spy_call call, int number, int32_t code) {
    doomed = call;
    answer = code;
    atomic_store(&failed, false);
    atomic_store(&countdown, number);
}

bool spy_failed(void) { return atomic_load(&failed); }

int spy_live_events(void) { return atomic_load(&live); }

/* Count; true when this is the call that shall fail. */
static bool seen(spy_call call) {
    atomic_fetch_add(&counts[call], 1);
    if (call != doomed || atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    atomic_store(&failed, true);
    return true;
}

/* ---- the loader's functions ---- */

static void *real(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    return function;
}

/* A function of the loader by its own type. */
#define REAL(name, type)                                                                                               \
    ((union {                                                                                                          \
        void *object;                                                                                                  \
        type function;                                                                                                 \
    }){real(#name)})                                                                                                   \
        .function

static cl_int given(cl_int code, const cl_event *event) {
    if (code == CL_SUCCESS && event)
        atomic_fetch_add(&live, 1);
    return code;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
    if (seen(SPY_CREATE_BUFFER))
        return code ? *code = answer, NULL : NULL;
    return REAL(clCreateBuffer, __typeof__(&clCreateBuffer))(context, flags, size, host, code);
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void *info,
                         cl_int *code) {
    if (seen(SPY_SUB_BUFFER))
        return code ? *code = answer, NULL : NULL;
    return REAL(clCreateSubBuffer, __typeof__(&clCreateSubBuffer))(buffer, flags, type, info, code);
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **text, const size_t *size,
                                     cl_int *code) {
    if (seen(SPY_CREATE_PROGRAM))
        return code ? *code = answer, NULL : NULL;
    return REAL(clCreateProgramWithSource, __typeof__(&clCreateProgramWithSource))(context, count, text, size, code);
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                     const size_t *sizes, const unsigned char **binaries, cl_int *each, cl_int *code) {
    if (seen(SPY_CREATE_PROGRAM))
        return code ? *code = answer, NULL : NULL;
    return REAL(clCreateProgramWithBinary, __typeof__(&clCreateProgramWithBinary))(context, count, devices, sizes,
                                                                                   binaries, each, code);
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *code) {
    if (seen(SPY_CREATE_KERNEL))
        return code ? *code = answer, NULL : NULL;
    return REAL(clCreateKernel, __typeof__(&clCreateKernel))(program, name, code);
}

/* Functions that answer a code: parameters, arguments, and the event that they give out or NULL. */
#define COUNT(name, call, parameters, arguments, event)                                                                \
    cl_int name parameters { return seen(call) ? answer : given(REAL(name, __typeof__(&name)) arguments, event); }

COUNT(clBuildProgram, SPY_BUILD,
      (cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
       void(CL_CALLBACK *notify)(cl_program, void *), void *user),
      (program, count, devices, options, notify, user), NULL)
COUNT(clSetKernelArg, SPY_SET_ARG, (cl_kernel kernel, cl_uint index, size_t size, const void *value),
      (kernel, index, size, value), NULL)
COUNT(clWaitForEvents, SPY_WAIT, (cl_uint count, const cl_event *events), (count, events), NULL)
COUNT(clFinish, SPY_FINISH, (cl_command_queue queue), (queue), NULL)
COUNT(clFlush, SPY_FLUSH, (cl_command_queue queue), (queue), NULL)
COUNT(clSetEventCallback, SPY_CALLBACK,
      (cl_event event, cl_int type, void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *user),
      (event, type, notify, user), NULL)

/* The end of every function that queues. */
#define QUEUED cl_uint waits, const cl_event *list, cl_event *event
#define GIVEN waits, list, event

COUNT(clEnqueueWriteBuffer, SPY_WRITE,
      (cl_command_queue queue, cl_mem memory, cl_bool wait, size_t offset, size_t size, const void *host, QUEUED),
      (queue, memory, wait, offset, size, host, GIVEN), event)
COUNT(clEnqueueReadBuffer, SPY_READ,
      (cl_command_queue queue, cl_mem memory, cl_bool wait, size_t offset, size_t size, void *host, QUEUED),
      (queue, memory, wait, offset, size, host, GIVEN), event)
COUNT(clEnqueueCopyBuffer, SPY_COPY,
      (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t size, QUEUED),
      (queue, from, to, from_offset, to_offset, size, GIVEN), event)
COUNT(clEnqueueFillBuffer, SPY_FILL,
      (cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_size, size_t offset, size_t size,
       QUEUED),
      (queue, memory, pattern, pattern_size, offset, size, GIVEN), event)
COUNT(clEnqueueNDRangeKernel, SPY_KERNEL,
      (cl_command_queue queue, cl_kernel kernel, cl_uint axes, const size_t *first, const size_t *global,
       const size_t *local, QUEUED),
      (queue, kernel, axes, first, global, local, GIVEN), event)
COUNT(clEnqueueTask, SPY_TASK, (cl_command_queue queue, cl_kernel kernel, QUEUED), (queue, kernel, GIVEN), event)
COUNT(clEnqueueMarkerWithWaitList, SPY_MARKER, (cl_command_queue queue, QUEUED), (queue, GIVEN), event)
COUNT(clEnqueueBarrierWithWaitList, SPY_BARRIER, (cl_command_queue queue, QUEUED), (queue, GIVEN), event)

void *clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool wait, cl_map_flags flags, size_t offset,
                         size_t size, QUEUED, cl_int *code) {
    if (seen(SPY_MAP))
        return code ? *code = answer, NULL : NULL;
    return REAL(clEnqueueMapBuffer, __typeof__(&clEnqueueMapBuffer))(queue, memory, wait, flags, offset, size, GIVEN,
                                                                     code);
}

cl_int clRetainEvent(cl_event event) {
    atomic_fetch_add(&live, 1);
    return REAL(clRetainEvent, __typeof__(&clRetainEvent))(event);
}

cl_int clReleaseEvent(cl_event event) {
    atomic_fetch_sub(&live, 1);
    return REAL(clReleaseEvent, __typeof__(&clReleaseEvent))(event);
}

/* ---- allocations ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size) { return seen(SPY_MALLOC) ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return seen(SPY_MALLOC) ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return seen(SPY_MALLOC) ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return seen(SPY_MALLOC) ? NULL : __real_strdup(text); }
