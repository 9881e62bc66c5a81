/* One kernel launch. */
#include "runtime/launch.h"

void clattn__launch_begin(clattn__launch *launch, clattn__kernel *kernel) {
    *launch = (clattn__launch){.kernel = kernel};
    pthread_mutex_lock(&kernel->lock);
}

static void give(clattn__launch *launch, size_t size, const void *value) {
    cl_uint index = launch->next++;
    if (launch->code)
        return;
    launch->code = index < launch->kernel->arg_count ? clSetKernelArg(launch->kernel->cl, index, size, value)
                                                     : CL_INVALID_ARG_INDEX;
    launch->failed = index;
}

void clattn__launch_memory(clattn__launch *launch, cl_mem memory) { give(launch, sizeof memory, &memory); }

void clattn__launch_long(clattn__launch *launch, int64_t value) {
    cl_long v = value;
    give(launch, sizeof v, &v);
}

void clattn__launch_int(clattn__launch *launch, int32_t value) {
    cl_int v = value;
    give(launch, sizeof v, &v);
}

void clattn__launch_float(clattn__launch *launch, float value) {
    cl_float v = value;
    give(launch, sizeof v, &v);
}

static clattn_status check_arguments(const clattn__launch *launch, clattn__error *error) {
    const clattn__kernel *kernel = launch->kernel;
    if (launch->next != kernel->arg_count)
        return clattn__fail(error, CL_INVALID_KERNEL_ARGS, "kernel %s takes %u arguments, %u were given", kernel->name,
                            kernel->arg_count, launch->next);
    if (launch->code)
        return clattn__fail(error, launch->code, "kernel %s, argument %u: %s", kernel->name, launch->failed,
                            clattn_status_string(launch->code));
    return CLATTN_SUCCESS;
}

clattn_status clattn__launch_end(clattn__launch *launch, cl_command_queue queue, const size_t global[3],
                                 const size_t local[3], cl_uint wait_count, const cl_event *wait_list, cl_event *event,
                                 clattn__error *error) {
    clattn__kernel *kernel = launch->kernel;
    clattn_status status = check_arguments(launch, error);
    if (!status)
        status = clEnqueueNDRangeKernel(queue, kernel->cl, 3, NULL, global, local, wait_count, wait_list, event);
    pthread_mutex_unlock(&kernel->lock);
    if (!status)
        return CLATTN_SUCCESS;
    return clattn__fail(error, status, "kernel %s, %zu x %zu x %zu work-items in groups of %zu x %zu x %zu: %s",
                        kernel->name, global[0], global[1], global[2], local[0], local[1], local[2],
                        clattn_status_string(status));
}
