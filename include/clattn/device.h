/* The context: one OpenCL device, its compiled kernels, its last error. */
#ifndef CLATTN_DEVICE_H
#define CLATTN_DEVICE_H

#include <stdbool.h>

#include <clattn/tensor.h>

/* A context. Thread-safety: every function may be called from any thread at once. */
typedef struct clattn_context clattn_context;

typedef enum clattn_log_level {
    CLATTN_LOG_ERROR = 0,
    CLATTN_LOG_WARNING = 1,
    CLATTN_LOG_INFO = 2,  /* compile times, cache hits */
    CLATTN_LOG_DEBUG = 3,
} clattn_log_level;

/* Receives one line without a newline. May be called from any thread that calls the library. */
typedef void (*clattn_log_fn)(void *user, clattn_log_level level, const char *line);

/* Which engine multiplies matrices in a layer.
 * CLBlast keeps one set of parameters for a device and the whole process. A context that asks for CLBLAST on a CPU
 * replaces it by a faster one (CLBlastOverrideParameters, kernel Xgemm, single precision): the caller's own products
 * by CLBlast on that device use the new set too. Neither AUTO nor TILE touches CLBlast there. */
typedef enum clattn_gemm {
    CLATTN_GEMM_AUTO = 0, /* CLBlast on GPUs, the tile kernel elsewhere */
    CLATTN_GEMM_CLBLAST = 1,
    CLATTN_GEMM_TILE = 2,
} clattn_gemm;

/* Zero-initialise for the defaults.
 * log, log_user, log_level  callback, default NULL: nothing is printed anywhere. The environment's
 *                           CLATTN_LOG=error|warning|info|debug sets the level, and prints to stderr
 *                           where no callback is given
 * gemm                      default CLATTN_GEMM_AUTO
 * cache_dir                 folder of compiled kernels; NULL (default) takes CLATTN_CACHE_DIR, else
 *                           $XDG_CACHE_HOME/clattn, else $HOME/.cache/clattn; "" keeps nothing on disk. Copied */
typedef struct clattn_context_options {
    clattn_log_fn log;
    void *log_user;
    clattn_log_level log_level;
    clattn_gemm gemm;
    const char *cache_dir;
} clattn_context_options;

/* Create a context on the caller's OpenCL context and one of its devices; both are retained.
 * options may be NULL. On failure *context is NULL and the sentence goes to options->log.
 * Errors: INVALID_ARGUMENT (a NULL), INVALID_CONTEXT (the device is not in the OpenCL context),
 * UNSUPPORTED (the device has no compiler, or an OpenCL below 1.2), OpenCL's codes. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_context_create(cl_context cl, cl_device_id device,
                                                                  const clattn_context_options *options,
                                                                  clattn_context **context);

/* Release. Plans and layers keep what they need of it; NULL is accepted. */
CLATTN_API void clattn_context_destroy(clattn_context *context);

/* The sentence of the last failed call on this context, or on a plan or layer of it, copied into
 * text (cut to size, always ended by 0; "" when nothing failed). Returns its whole length. */
CLATTN_API size_t clattn_context_error(const clattn_context *context, char *text, size_t size);

/* The folder of compiled kernels of a context whose options leave cache_dir NULL, under today's environment, copied into
 * text (cut to size, always ended by 0; "" when nothing is kept). Returns its whole length. It holds one
 * file an entry, <32 hexadecimal digits>.bin; any of them may be removed at any time. Thread-safety: any, unless
 * another thread changes the environment. */
CLATTN_API size_t clattn_cache_folder(char *text, size_t size);

/* What the library sees of a device; plain values, as `clattn devices` prints them. */
typedef struct clattn_device_info {
    char name[128];
    char vendor[128];
    char platform[128];
    char platform_version[128];
    char driver_version[128];
    char device_version[128];
    const char *kind;          /* "cpu", "gpu" or "other"; static */
    uint32_t compute_units;
    uint32_t vector_width_f32; /* native width in floats */
    uint64_t global_bytes;
    uint64_t max_alloc_bytes;
    uint64_t local_bytes;
    uint64_t max_work_group;
    bool fp16, fp64, subgroups; /* after CLATTN_CAPS */
    char quirks[128];           /* names of the quirks that apply, comma-separated; "" when none */
} clattn_device_info;

/* Errors: INVALID_ARGUMENT (a NULL), OpenCL's codes. Thread-safety: any thread, any time. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_device_query(cl_device_id device, clattn_device_info *info);

#endif
