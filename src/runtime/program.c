/* The list of programs, and kernels inside them. */
#include "runtime/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/version.h>

#include "base/text.h"
#include "runtime/build.h"
#include "runtime/caps.h"

/* ---- options and key ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const clattn__define *)a)->name, ((const clattn__define *)b)->name);
}

static void add_options(clattn__text *text, uint32_t quirks, const clattn__define *sorted, int count) {
    const char *quirk;
    clattn__text_add(text, "-cl-std=CL1.2");
    for (int i = 0; (quirk = clattn__quirk_at(quirks, i)); i++)
        clattn__text_add(text, " -DQUIRK_%s=1", quirk);
    for (int i = 0; i < count; i++)
        clattn__text_add(text, " -D%s=%lld", sorted[i].name, (long long)sorted[i].value);
}

char *clattn__program_options(uint32_t quirks, const clattn__define *defines, int count) {
    clattn__text text = {0};
    clattn__define *sorted = malloc(sizeof *sorted * (size_t)(count + 1));
    if (!sorted)
        return NULL;
    if (count)
        memcpy(sorted, defines, sizeof *sorted * (size_t)count);
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    add_options(&text, quirks, sorted, count);
    text = (clattn__text){.data = malloc(text.length + 1), .size = text.length + 1};
    if (text.data)
        add_options(&text, quirks, sorted, count);
    free(sorted);
    return text.data;
}

/* PoCL's binaries hold what its launches used, which this variable decides: see program.h. */
static const char *launch_mode(uint32_t quirks) {
    const char *mode = getenv("POCL_WORK_GROUP_SPECIALIZATION");
    return mode && (quirks & CLATTN__QUIRK_LATE_BINARY) ? mode : "";
}

static clattn__part part(const char *text) { return (clattn__part){text, strlen(text)}; }

clattn__hash clattn__program_key(const clattn__caps *caps, const char *version, const char *source,
                                 const char *options) {
    const clattn__part parts[] = {
        part(source),
        part(options),
        part(caps->name),
        part(caps->vendor),
        part(caps->driver_version),
        part(caps->device_version),
        part(caps->platform),
        part(caps->platform_version),
        part(version),
        part(launch_mode(caps->quirks)),
    };
    return clattn__hash_parts(parts, sizeof parts / sizeof *parts);
}

/* ---- programs ---- */

static char *make_label(const char *file, const clattn__hash *key) {
    char label[128];
    snprintf(label, sizeof label, "%.100s-%.8s", file, key->hex);
    return strdup(label);
}

static void free_kernel(clattn__kernel *kernel) {
    if (kernel->cl)
        clReleaseKernel(kernel->cl);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel->name);
    free(kernel);
}

static void free_program(clattn__program *program) {
    while (program->kernels) {
        clattn__kernel *next = program->kernels->next;
        free_kernel(program->kernels);
        program->kernels = next;
    }
    if (program->cl)
        clReleaseProgram(program->cl);
    pthread_mutex_destroy(&program->lock);
    free(program->names);
    free(program->label);
    free(program->file);
    free(program->source);
    free(program->options);
    free(program);
}

/* Takes source and options over, also on failure (NULL). */
static clattn__program *make_program(const clattn__hash *key, const clattn__hash *family, const char *file,
                                     const char *names, char *source, char *options) {
    clattn__program *program = calloc(1, sizeof *program);
    if (!program || pthread_mutex_init(&program->lock, NULL)) {
        free(program);
        free(source);
        free(options);
        return NULL;
    }
    program->key = *key;
    program->family = *family;
    program->source = source;
    program->options = options;
    program->file = strdup(file);
    program->names = strdup(names);
    program->label = make_label(file, key);
    if (!program->file || !program->names || !program->label) {
        free_program(program);
        return NULL;
    }
    return program;
}

clattn__program *clattn__program_add(clattn__runtime *runtime, const clattn__hash *family, const char *file,
                                     const char *names, char *source, char *options) {
    clattn__hash key = clattn__program_key(&runtime->caps, CLATTN_VERSION_STRING, source, options);
    pthread_mutex_lock(&runtime->lock);
    clattn__program *program = runtime->programs;
    while (program && memcmp(program->key.hex, key.hex, sizeof key.hex))
        program = program->next;
    if (program) {
        free(source);
        free(options);
    } else if ((program = make_program(&key, family, file, names, source, options))) {
        program->next = runtime->programs;
        runtime->programs = program;
    }
    pthread_mutex_unlock(&runtime->lock);
    return program;
}

/* names holds name between blanks. */
static bool holds(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if (at[-1] == ' ' && at[length] == ' ')
            return true;
    return false;
}

clattn__program *clattn__program_find(clattn__runtime *runtime, const clattn__hash *family, const char *name) {
    pthread_mutex_lock(&runtime->lock);
    clattn__program *program = runtime->programs;
    while (program && !(!memcmp(program->family.hex, family->hex, sizeof family->hex) && holds(program->names, name)))
        program = program->next;
    pthread_mutex_unlock(&runtime->lock);
    return program;
}

void clattn__programs_free(clattn__runtime *runtime) {
    while (runtime->programs) {
        clattn__program *program = runtime->programs;
        runtime->programs = program->next;
        clattn__program_save(runtime, program);
        free_program(program);
    }
}

/* ---- kernels ---- */

static cl_int query_kernel(const clattn__runtime *runtime, clattn__kernel *kernel) {
    cl_int code = clGetKernelInfo(kernel->cl, CL_KERNEL_NUM_ARGS, sizeof kernel->arg_count, &kernel->arg_count, NULL);
    if (!code)
        code = clGetKernelWorkGroupInfo(kernel->cl, runtime->device, CL_KERNEL_WORK_GROUP_SIZE,
                                        sizeof kernel->max_group, &kernel->max_group, NULL);
    return code;
}

static clattn_status make_kernel(const clattn__runtime *runtime, clattn__program *program, const char *name,
                                 clattn__kernel **out, clattn__error *error) {
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    clattn__kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel || pthread_mutex_init(&kernel->lock, NULL)) {
        free(kernel);
        return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    }
    kernel->name = strdup(name);
    if (kernel->name)
        kernel->cl = clCreateKernel(program->cl, name, &code);
    if (!code)
        code = query_kernel(runtime, kernel);
    if (code) {
        free_kernel(kernel);
        return clattn__fail(error, code, "kernel %s of %s.cl: %s", name, program->file, clattn_status_string(code));
    }
    kernel->next = program->kernels;
    program->kernels = kernel;
    *out = kernel;
    return CLATTN_SUCCESS;
}

/* With program->lock held. */
static clattn_status find_kernel(clattn__runtime *runtime, clattn__program *program, const char *name,
                                 clattn__kernel **out, clattn__error *error) {
    clattn_status status = program->cl ? CLATTN_SUCCESS : clattn__program_build(runtime, program, name, error);
    if (status)
        return status;
    for (clattn__kernel *kernel = program->kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->name, name)) {
            *out = kernel;
            return CLATTN_SUCCESS;
        }
    return make_kernel(runtime, program, name, out, error);
}

clattn_status clattn__program_kernel(clattn__runtime *runtime, clattn__program *program, const char *name,
                                     clattn__kernel **out, clattn__error *error) {
    pthread_mutex_lock(&program->lock);
    clattn_status status = find_kernel(runtime, program, name, out, error);
    pthread_mutex_unlock(&program->lock);
    return status;
}

clattn_status clattn__kernel_fits(const clattn__kernel *kernel, const size_t local[3], clattn__error *error) {
    size_t group = local[0] * local[1] * local[2];
    if (group <= kernel->max_group)
        return CLATTN_SUCCESS;
    return clattn__fail(error, CLATTN_UNSUPPORTED,
                        "kernel %s: compiled for groups of at most %zu work-items, the plan wants %zu", kernel->name,
                        kernel->max_group, group);
}
