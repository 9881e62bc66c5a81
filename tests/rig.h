/* The first OpenCL device, a temporary folder with a small kernel, and a record of log lines. */
#ifndef CLATTN_TESTS_RIG_H
#define CLATTN_TESTS_RIG_H

#include <stdbool.h>

#include "runtime/launch.h"

/* Check's checked fixture. CLATTN_KERNEL_PATH names the folder's "kernels", CLATTN_CACHE_DIR its "cache". */
void rig_setup(void);
void rig_teardown(void);

/* A device of any platform, with its context and queue; NULLs where there is none. */
typedef struct rig {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
} rig;

rig rig_open(void);
void rig_close(rig *r);

/* A runtime with recorded log and the environment's cache folder. */
clattn__runtime *rig_runtime(const rig *r);

/* The kernel `fill` of cl/fill.cl compiled for VALUE=value, which must succeed. */
clattn__kernel *rig_kernel(clattn__runtime *runtime, int64_t value);

/* Run it: true if y[offset + i] = VALUE + i * step came back. */
bool rig_run(const rig *r, clattn__kernel *kernel, int64_t value);

/* One whole life of a runtime: get the kernel, run it, release. True if it had to compile; forgets the log. */
bool rig_compiles(const rig *r, int64_t value);

/* Files in the folder `name` of the test's folder whose names end so. */
int rig_count_files(const char *name, const char *end);

/* Write a file of the test's folder. */
void rig_write(const char *name, const char *text);

/* Log lines since the last rig_forget that hold a text, and the last such line ("" when none). */
int rig_logged(const char *part);
const char *rig_line(const char *part);
void rig_forget(void);
clattn__log rig_log(void);

#endif
