/* Executing a CLBlast stage. */
#ifndef CLATTN_GEMM_CLBLAST_H
#define CLATTN_GEMM_CLBLAST_H

#include <CL/cl.h>

#include "core/plan.h"

/* Queue C = A B^T behind whatever the queue holds (CLBlast takes no wait list). event may be NULL. */
clattn_status clattn__clblast_run(const clattn__product *p, cl_mem a, uint64_t a_offset, cl_mem b, uint64_t b_offset,
                                  cl_mem c, uint64_t c_offset, cl_command_queue queue, cl_event *event);

/* Give CLBlast parameters for a CPU in place of its own. They are the process's: CLBlast keeps one set for a device, so
 * the caller's own products there take them too (docs/devices.md). */
clattn_status clattn__clblast_tune(cl_device_id device, clattn__error *error);

#endif
