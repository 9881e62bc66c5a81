/* One kernel launch: arguments in order, then the queue. Allocates nothing.
 *
 *     clattn__launch_begin(&launch, kernel);
 *     clattn__launch_memory(&launch, q);
 *     clattn__launch_long(&launch, q_offset);
 *     status = clattn__launch_end(&launch, queue, global, local, wait_count, wait_list, &event, error);
 *
 * begin locks the kernel (arguments belong to the cl_kernel, which plans share) and end unlocks it, whatever
 * failed: every begin needs its end, on the same thread. The first failure sticks, later arguments are
 * skipped, and end reports it without queueing anything. */
#ifndef CLATTN_RUNTIME_LAUNCH_H
#define CLATTN_RUNTIME_LAUNCH_H

#include "runtime/program.h"

typedef struct clattn__launch {
    clattn__kernel *kernel;
    cl_uint next;   /* arguments given so far */
    cl_int code;    /* first failure */
    cl_uint failed; /* its argument */
} clattn__launch;

void clattn__launch_begin(clattn__launch *launch, clattn__kernel *kernel);
void clattn__launch_memory(clattn__launch *launch, cl_mem memory); /* NULL: a NULL pointer */
void clattn__launch_long(clattn__launch *launch, int64_t value);
void clattn__launch_int(clattn__launch *launch, int32_t value);
void clattn__launch_float(clattn__launch *launch, float value);

/* event may be NULL. Errors: OpenCL's codes, with kernel, argument and work sizes in the sentence;
 * CL_INVALID_KERNEL_ARGS when the number of arguments is not the kernel's. */
clattn_status clattn__launch_end(clattn__launch *launch, cl_command_queue queue, const size_t global[3],
                                 const size_t local[3], cl_uint wait_count, const cl_event *wait_list, cl_event *event,
                                 clattn__error *error);

#endif
