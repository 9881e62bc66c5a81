/* From a program's texts to a cl_program: disk cache, then compiler. */
#include "runtime/build.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/cache.h"

enum { LOG_EXCERPT = 1500 };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static clattn_status fail_cl(clattn__error *error, const clattn__program *program, const char *call, cl_int code) {
    return clattn__fail(error, code, "%s.cl: %s failed: %s", program->file, call, clattn_status_string(code));
}

/* The compiler's words, malloc'ed and trimmed; "" when it has none, NULL when they cannot be had. */
static char *read_log(const clattn__runtime *runtime, cl_program cl) {
    size_t size = 0;
    if (clGetProgramBuildInfo(cl, runtime->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size))
        return NULL;
    char *text = calloc(size + 1, 1);
    if (text && clGetProgramBuildInfo(cl, runtime->device, CL_PROGRAM_BUILD_LOG, size, text, NULL)) {
        free(text);
        return NULL;
    }
    for (size_t n = text ? strlen(text) : 0; n && strchr(" \n\r\t", text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

static void dump_texts(const clattn__runtime *runtime, const clattn__program *program, const char *log) {
    clattn__dump(runtime, program->label, "cl", program->source, strlen(program->source));
    clattn__dump(runtime, program->label, "options", program->options, strlen(program->options));
    clattn__dump(runtime, program->label, "log", log, strlen(log));
}

static cl_int build(const clattn__runtime *runtime, const clattn__program *program, cl_program cl) {
    return clBuildProgram(cl, 1, &runtime->device, program->options, NULL, NULL);
}

/* ---- from the disk cache ---- */

/* NULL when the driver refuses the binary: another build of it may have written the entry. */
static cl_program from_binary(const clattn__runtime *runtime, const clattn__program *program,
                              const unsigned char *binary, size_t size) {
    cl_int code, accepted = CL_SUCCESS;
    cl_program cl = clCreateProgramWithBinary(runtime->context, 1, &runtime->device, &size, &binary, &accepted, &code);
    if (code || accepted || build(runtime, program, cl)) {
        if (cl)
            clReleaseProgram(cl);
        return NULL;
    }
    return cl;
}

static bool load(clattn__runtime *runtime, clattn__program *program) {
    unsigned char *binary;
    const char *reason = NULL;
    size_t size;
    double start = now_ms();
    if (!runtime->cache_dir)
        return false;
    if (clattn__cache_read(runtime->cache_dir, &program->key, &binary, &size, &reason)) {
        program->cl = from_binary(runtime, program, binary, size);
        if (program->cl) {
            dump_texts(runtime, program, "");
            clattn__dump(runtime, program->label, "bin", binary, size);
        } else {
            reason = "the driver refuses it";
        }
        free(binary);
    }
    if (reason)
        clattn__log_line(&runtime->log, CLATTN__LOG_INFO, "%s: rebuilding the cache entry %s: %s", program->label,
                         program->key.hex, reason);
    if (program->cl)
        clattn__log_line(&runtime->log, CLATTN__LOG_INFO, "%s: loaded in %.1f ms", program->label, now_ms() - start);
    return program->cl != NULL;
}

/* ---- from source ---- */

static clattn_status fail_build(const clattn__runtime *runtime, const clattn__program *program, const char *kernel,
                                cl_int code, const char *log, clattn__error *error) {
    clattn__log_line(&runtime->log, CLATTN__LOG_ERROR, "%s: %s.cl did not compile (%s) with %s\n%s", program->label,
                     program->file, clattn_status_string(code), program->options, log);
    return clattn__fail(error, CLATTN_BUILD_FAILED, "kernel %s of %s.cl did not compile (%s) with %.1500s: %.*s",
                        kernel, program->file, clattn_status_string(code), program->options, LOG_EXCERPT, log);
}

/* What a driver says when the build itself failed; other codes are not the source's fault. */
static bool is_build_failure(cl_int code) {
    return code == CL_BUILD_PROGRAM_FAILURE || code == CL_COMPILE_PROGRAM_FAILURE;
}

static clattn_status compile(clattn__runtime *runtime, clattn__program *program, const char *kernel,
                             clattn__error *error) {
    cl_int code;
    double start = now_ms();
    const char *source = program->source;
    cl_program cl = clCreateProgramWithSource(runtime->context, 1, &source, NULL, &code);
    if (code)
        return fail_cl(error, program, "clCreateProgramWithSource", code);
    code = build(runtime, program, cl);
    char *log = read_log(runtime, cl);
    const char *words = log ? log : "";
    dump_texts(runtime, program, words);
    clattn_status status = CLATTN_SUCCESS;
    if (is_build_failure(code)) {
        status = fail_build(runtime, program, kernel, code, words, error);
    } else if (code) {
        status = fail_cl(error, program, "clBuildProgram", code);
    } else {
        clattn__log_line(&runtime->log, CLATTN__LOG_INFO, "%s: compiled in %.1f ms: %s", program->label,
                         now_ms() - start, program->options);
        if (*words)
            clattn__log_line(&runtime->log, CLATTN__LOG_DEBUG, "%s: the compiler says: %s", program->label, words);
    }
    free(log);
    if (status) {
        clReleaseProgram(cl);
        return status;
    }
    program->cl = cl;
    program->unsaved = true;
    return CLATTN_SUCCESS;
}

clattn_status clattn__program_build(clattn__runtime *runtime, clattn__program *program, const char *kernel,
                                    clattn__error *error) {
    if (load(runtime, program))
        return CLATTN_SUCCESS;
    clattn_status status = compile(runtime, program, kernel, error);
    if (!status && !(runtime->caps.quirks & CLATTN__QUIRK_LATE_BINARY))
        clattn__program_save(runtime, program);
    return status;
}

/* ---- to a binary ---- */

/* The binary for our device among those of the program's devices: *binaries is one allocation for all. */
static cl_int read_binary(const clattn__runtime *runtime, cl_program cl, unsigned char **binary, size_t *size) {
    cl_device_id devices[64];
    size_t sizes[64], bytes = 0;
    unsigned char *binaries[64] = {NULL};
    cl_int code = clGetProgramInfo(cl, CL_PROGRAM_DEVICES, sizeof devices, devices, &bytes);
    size_t count = bytes / sizeof *devices, ours = 0;
    if (!code)
        code = clGetProgramInfo(cl, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL);
    while (!code && ours < count && devices[ours] != runtime->device)
        ours++;
    if (code || ours == count || !sizes[ours])
        return code ? code : CL_INVALID_PROGRAM_EXECUTABLE;
    /* A NULL pointer tells the driver to skip that device. */
    binaries[ours] = malloc(sizes[ours]);
    if (!binaries[ours])
        return CL_OUT_OF_HOST_MEMORY;
    code = clGetProgramInfo(cl, CL_PROGRAM_BINARIES, sizeof *binaries * count, binaries, NULL);
    if (code) {
        free(binaries[ours]);
        return code;
    }
    *binary = binaries[ours];
    *size = sizes[ours];
    return CL_SUCCESS;
}

static void warn_once(clattn__runtime *runtime, const char *text) {
    if (!atomic_exchange(&runtime->warned, true))
        clattn__log_line(&runtime->log, CLATTN__LOG_WARNING, "compiled kernels are not kept: %s", text);
}

void clattn__program_save(clattn__runtime *runtime, clattn__program *program) {
    clattn__error error = {0};
    unsigned char *binary = NULL;
    size_t size = 0;
    if (!program->unsaved || !(runtime->cache_dir || runtime->dump_dir))
        return;
    program->unsaved = false;
    cl_int code = read_binary(runtime, program->cl, &binary, &size);
    if (code) {
        fail_cl(&error, program, "asking for the binary", code);
        warn_once(runtime, error.text);
        return;
    }
    clattn__dump(runtime, program->label, "bin", binary, size);
    if (runtime->cache_dir && clattn__cache_write(runtime->cache_dir, &program->key, binary, size, &error))
        warn_once(runtime, error.text);
    free(binary);
}
