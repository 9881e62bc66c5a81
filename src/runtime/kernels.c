/* From the kernels that a plan wants to programs: as few as there are files and sets of defines. */
#include <stdlib.h>
#include <string.h>

#include <clattn/version.h>

#include "base/text.h"
#include "runtime/build.h"
#include "runtime/source.h"

/* What one want becomes on the way to its program. */
typedef struct request {
    clattn__want *want;
    char *source; /* the whole file, expanded */
    char *options;
    clattn__hash family;
    clattn__program *program;
} request;

static clattn_status out_of_memory(clattn__error *error) {
    return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
}

static clattn_status prepare(const clattn__runtime *runtime, request *r, clattn__error *error) {
    clattn_status status = clattn__source_expand(r->want->file, &r->source, error);
    if (status)
        return status;
    r->options = clattn__program_options(runtime->caps.quirks, r->want->defines, r->want->define_count);
    if (!r->options)
        return out_of_memory(error);
    r->family = clattn__program_key(&runtime->caps, CLATTN_VERSION_STRING, r->source, r->options);
    return CLATTN_SUCCESS;
}

static bool together(const request *a, const request *b) {
    return !memcmp(a->family.hex, b->family.hex, sizeof a->family.hex);
}

/* " gemm_pack gemm_linear ": the kernels without a program among requests of the first one's family. */
static void list_names(const request *requests, int count, clattn__text *names) {
    clattn__text_add(names, " ");
    for (int i = 0; i < count; i++)
        if (!requests[i].program && together(&requests[i], &requests[0]))
            clattn__text_add(names, "%s ", requests[i].want->name);
}

/* One program for the first request and all that belong together with it. */
static clattn_status add_program(clattn__runtime *runtime, request *requests, int count, clattn__error *error) {
    request *first = &requests[0];
    clattn__text names = {0};
    list_names(requests, count, &names);
    names = (clattn__text){.data = malloc(names.length + 1), .size = names.length + 1};
    if (!names.data)
        return out_of_memory(error);
    list_names(requests, count, &names);
    clattn__source_keep(first->source, names.data);
    clattn__program *program =
        clattn__program_add(runtime, &first->family, first->want->file, names.data, first->source, first->options);
    first->source = first->options = NULL;
    free(names.data);
    if (!program)
        return out_of_memory(error);
    for (int i = count - 1; i >= 0; i--)
        if (!requests[i].program && together(&requests[i], first))
            requests[i].program = program;
    return CLATTN_SUCCESS;
}

static clattn_status find_all(clattn__runtime *runtime, request *requests, int count, clattn__error *error) {
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < count && !status; i++)
        status = prepare(runtime, &requests[i], error);
    for (int i = 0; i < count && !status; i++)
        requests[i].program = clattn__program_find(runtime, &requests[i].family, requests[i].want->name);
    for (int i = 0; i < count && !status; i++)
        if (!requests[i].program)
            status = add_program(runtime, requests + i, count - i, error);
    for (int i = 0; i < count && !status; i++)
        status =
            clattn__program_kernel(runtime, requests[i].program, requests[i].want->name, &requests[i].want->out, error);
    return status;
}

clattn_status clattn__kernels_get(clattn__runtime *runtime, clattn__want *wants, int count, clattn__error *error) {
    request *requests = calloc((size_t)count + 1, sizeof *requests);
    if (!requests)
        return out_of_memory(error);
    for (int i = 0; i < count; i++) {
        wants[i].out = NULL;
        requests[i].want = &wants[i];
    }
    clattn_status status = find_all(runtime, requests, count, error);
    for (int i = 0; i < count; i++) {
        free(requests[i].source);
        free(requests[i].options);
    }
    free(requests);
    return status;
}

clattn_status clattn__kernel_get(clattn__runtime *runtime, const char *file, const char *kernel,
                                 const clattn__define *defines, int count, clattn__kernel **out, clattn__error *error) {
    clattn__want want = {.file = file, .name = kernel, .defines = defines, .define_count = count};
    clattn_status status = clattn__kernels_get(runtime, &want, 1, error);
    *out = status ? NULL : want.out;
    return status;
}
