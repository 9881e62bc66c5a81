/* The runtime of one device in one OpenCL context: its facts, and the programs compiled for it.
 * Thread-safety: every function of this folder, unless it says otherwise: any thread, any time. */
#ifndef CLATTN_RUNTIME_RUNTIME_H
#define CLATTN_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <CL/cl.h>

#include "base/caps.h"
#include "base/error.h"
#include "base/log.h"

struct clattn__program;

/* Fields up to dump_dir are constant from create to the last release. */
typedef struct clattn__runtime {
    cl_context context;
    cl_device_id device;
    clattn__caps caps;
    clattn__log log;
    char *cache_dir; /* NULL = nothing is kept on disk */
    char *dump_dir;  /* CLATTN_DUMP; NULL = off */
    atomic_int references;
    atomic_bool warned;               /* the cache folder's warning has been given */
    pthread_mutex_t lock;             /* of the list below */
    struct clattn__program *programs; /* entries are added, never removed before the last release */
} clattn__runtime;

/* cache_dir as clattn_context_options has it; log is copied.
 * Errors: INVALID_ARGUMENT, INVALID_CONTEXT (the device is not in the context), UNSUPPORTED (no compiler,
 * OpenCL below 1.2), UNKNOWN_NAME (CLATTN_CAPS), OUT_OF_HOST_MEMORY, OpenCL's codes. */
clattn_status clattn__runtime_create(cl_context context, cl_device_id device, const char *cache_dir,
                                     const clattn__log *log, clattn__runtime **runtime, clattn__error *error);

void clattn__runtime_retain(clattn__runtime *runtime);

/* The last release writes what the disk cache still lacks (see program.h). NULL is accepted. */
void clattn__runtime_release(clattn__runtime *runtime);

/* Write name.txt of text into CLATTN_DUMP's folder, if there is one. A failure is only logged. */
void clattn__dump_text(const clattn__runtime *runtime, const char *name, const char *text);

#endif
