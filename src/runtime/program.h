/* Compiled programs and their kernels: memory, then disk, then the compiler.
 *
 * A program is the kernels of one file that a plan wants under the same defines; what else the file holds is taken out
 * (clattn__source_keep). PoCL takes a quarter of a second for each program, and stores every kernel of it.
 * A program's key is a hash of everything that shapes its binary. One thread compiles a key while others that
 * want the same one wait; other keys go on.
 *
 * An entry of the disk cache is written right after the compiler, except under the quirk LATE_BINARY: PoCL
 * compiles a kernel for its work-group size only when it first runs, and its binary is fixed for good by the
 * first question for it. Asked right after the build it lacks that code, and each later process would
 * compile again (0.4 s a kernel). So there the question waits for the runtime's last release. PoCL then compiles the
 * kernel once more, for any work-group size. A program saves one of the two, a fifth of a cold start, by setting
 * POCL_WORK_GROUP_SPECIALIZATION=0 in its environment before it calls OpenCL, as the command line does; what that
 * says is part of the key there. */
#ifndef CLATTN_RUNTIME_PROGRAM_H
#define CLATTN_RUNTIME_PROGRAM_H

#include "base/define.h"
#include "base/hash.h"
#include "runtime/runtime.h"

/* A kernel, owned by its runtime. Constant but for its lock and its arguments, which launch.h guards. */
typedef struct clattn__kernel {
    struct clattn__kernel *next;
    char *name;
    cl_kernel cl;
    cl_uint arg_count;
    size_t max_group; /* CL_KERNEL_WORK_GROUP_SIZE */
    pthread_mutex_t lock;
} clattn__kernel;

/* A program in the runtime's list. key and the texts are constant; lock guards the rest. */
typedef struct clattn__program {
    struct clattn__program *next;
    clattn__hash key;
    clattn__hash family; /* of the whole file, where key is of what was kept */
    char *names; /* of the kernels kept: " gemm_pack gemm_linear " */
    char *label; /* "dense-1a2b3c4d": names log lines and dumps */
    char *file;  /* "dense" */
    char *source;
    char *options;
    pthread_mutex_t lock;
    cl_program cl; /* NULL until built, and after a failure */
    bool unsaved;  /* compiled here, not yet asked for its binary */
    clattn__kernel *kernels;
} clattn__program;

/* A kernel that is wanted: of cl/<file>.cl, under these defines (in any order). out: found or compiled, valid until
 * the runtime's last release. */
typedef struct clattn__want {
    const char *file;
    const char *name;
    const clattn__define *defines;
    int define_count;
    clattn__kernel *out; /* NULL beforehand */
} clattn__want;

/* Find the kernels. Those that no program of the runtime holds yet are compiled, each file and set of defines once.
 * Errors: BUILD_FAILED (file, kernel, options, start of the build log; the whole log goes to the log
 * callback), IO_FAILED (no such file), OUT_OF_HOST_MEMORY, OpenCL's codes (CL_INVALID_KERNEL_NAME). */
clattn_status clattn__kernels_get(clattn__runtime *runtime, clattn__want *wants, int count, clattn__error *error);

/* The same for one kernel. */
clattn_status clattn__kernel_get(clattn__runtime *runtime, const char *file, const char *kernel,
                                 const clattn__define *defines, int count, clattn__kernel **out, clattn__error *error);

/* UNSUPPORTED, with both values, if the compiled kernel takes fewer work-items in a group than local has. */
clattn_status clattn__kernel_fits(const clattn__kernel *kernel, const size_t local[3], clattn__error *error);

/* Build options: sorted -DNAME=value, one -DQUIRK_<NAME>=1 for each quirk, and the language version. Nothing that
 * gives up NaN or Inf. malloc'ed, NULL when out of memory. */
char *clattn__program_options(uint32_t quirks, const clattn__define *defines, int count);

/* version is CLATTN_VERSION_STRING. Reads the environment under LATE_BINARY. */
clattn__hash clattn__program_key(const clattn__caps *caps, const char *version, const char *source,
                                 const char *options);

/* For the last release: write unsaved binaries, free everything. No other thread may use the runtime. */
void clattn__programs_free(clattn__runtime *runtime);

#endif
