/* The runtime of one device in one OpenCL context. */
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cache.h"
#include "runtime/caps.h"
#include "runtime/program.h"

static clattn_status check_member(cl_context context, cl_device_id device, clattn__error *error) {
    size_t size = 0;
    bool found = false;
    cl_int code = clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, NULL, &size);
    cl_device_id *devices = code ? NULL : malloc(size + 1);
    if (!code)
        code = devices ? clGetContextInfo(context, CL_CONTEXT_DEVICES, size, devices, NULL) : CL_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; !code && i < size / sizeof *devices; i++)
        found |= devices[i] == device;
    free(devices);
    if (code)
        return clattn__fail(error, code, "context query failed: %s", clattn_status_string(code));
    return found ? CLATTN_SUCCESS
                 : clattn__fail(error, CLATTN_INVALID_CONTEXT, "the device is not in the OpenCL context");
}

static clattn_status check_caps(const clattn__caps *caps, clattn__error *error) {
    int major = 0, minor = 0;
    if (!caps->compiler)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "device %s has no compiler", caps->name);
    if (sscanf(caps->device_version, "OpenCL %d.%d", &major, &minor) != 2 || 10 * major + minor < 12)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "device %s has '%s'; OpenCL 1.2 is needed", caps->name,
                            caps->device_version);
    return CLATTN_SUCCESS;
}

static clattn_status read_environment(clattn__runtime *runtime, const char *cache_dir, clattn__error *error) {
    const char *dump = getenv("CLATTN_DUMP");
    if (dump && *dump) {
        runtime->dump_dir = strdup(dump);
        if (!runtime->dump_dir)
            return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    }
    return clattn__cache_folder(cache_dir, &runtime->cache_dir, error);
}

static void destroy(clattn__runtime *runtime) {
    clattn__programs_free(runtime);
    if (runtime->device)
        clReleaseDevice(runtime->device);
    if (runtime->context)
        clReleaseContext(runtime->context);
    pthread_mutex_destroy(&runtime->lock);
    free(runtime->cache_dir);
    free(runtime->dump_dir);
    free(runtime);
}

static clattn_status retain_handles(clattn__runtime *runtime, cl_context context, cl_device_id device,
                                    clattn__error *error) {
    cl_int code = clRetainContext(context);
    if (!code) {
        runtime->context = context;
        code = clRetainDevice(device);
    }
    if (code)
        return clattn__fail(error, code, "context or device: %s", clattn_status_string(code));
    runtime->device = device;
    return CLATTN_SUCCESS;
}

clattn_status clattn__runtime_create(cl_context context, cl_device_id device, const char *cache_dir,
                                     const clattn__log *log, clattn__runtime **out, clattn__error *error) {
    *out = NULL;
    if (!context || !device)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is NULL", context ? "device" : "context");
    clattn__runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime || pthread_mutex_init(&runtime->lock, NULL)) {
        free(runtime);
        return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    }
    atomic_init(&runtime->references, 1);
    atomic_init(&runtime->warned, false);
    if (log)
        runtime->log = *log;
    clattn_status status = check_member(context, device, error);
    if (!status)
        status = retain_handles(runtime, context, device, error);
    if (!status)
        status = clattn__caps_query(device, &runtime->caps, error);
    if (!status)
        status = check_caps(&runtime->caps, error);
    if (!status)
        status = read_environment(runtime, cache_dir, error);
    if (status) {
        destroy(runtime);
        return status;
    }
    *out = runtime;
    return CLATTN_SUCCESS;
}

void clattn__runtime_retain(clattn__runtime *runtime) { atomic_fetch_add(&runtime->references, 1); }

void clattn__runtime_release(clattn__runtime *runtime) {
    if (runtime && atomic_fetch_sub(&runtime->references, 1) == 1)
        destroy(runtime);
}
