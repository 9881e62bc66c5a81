/* The context: creation, errors, device facts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/version.h>

#include "api/object.h"
#include "core/tuning.h"
#include "gemm/clblast.h"
#include "runtime/caps.h"

const char *clattn_version(void) { return CLATTN_VERSION_STRING; }

/* ---- log ---- */

static void forward_line(void *user, int level, const char *line) {
    const clattn_context *context = user;
    if (context->log)
        context->log(context->log_user, (clattn_log_level)level, line);
    else
        fprintf(stderr, "clattn: %s\n", line);
}

/* The callback at its level; CLATTN_LOG sets the level, and prints to stderr where no callback is given. */
static clattn__log choose_log(clattn_context *context, const clattn_context_options *options) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    clattn__log log = {options->log ? forward_line : NULL, context, options->log_level};
    const char *wanted = getenv("CLATTN_LOG");
    for (int i = 0; wanted && i < 4; i++)
        if (strcmp(wanted, names[i]) == 0)
            log = (clattn__log){forward_line, context, i};
    return log;
}

/* ---- lifetime ---- */

static clattn_status check_options(const clattn_context_options *options, clattn__error *error) {
    if (options->gemm < CLATTN_GEMM_AUTO || options->gemm > CLATTN_GEMM_TILE)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "options.gemm is %d, but must be in 0..2", (int)options->gemm);
    return CLATTN_SUCCESS;
}

static clattn_status fill(clattn_context *context, cl_context cl, cl_device_id device,
                          const clattn_context_options *options, clattn__error *error) {
    context->log = options->log;
    context->log_user = options->log_user;
    const clattn__log log = choose_log(context, options);
    clattn_status status = check_options(options, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__runtime_create(cl, device, options->cache_dir, &log, &context->runtime, error);
    if (status == CLATTN_SUCCESS) {
        clattn__target_choose(&context->runtime->caps, options->gemm, &context->target);
        status = clattn__tuning_load(getenv("CLATTN_TUNING"), &context->target, error);
    }
    if (status == CLATTN_SUCCESS && context->target.engine == CLATTN_GEMM_CLBLAST &&
        context->runtime->caps.kind == CLATTN__CPU)
        status = clattn__clblast_tune(device, error);
    return status;
}

clattn_status clattn_context_create(cl_context cl, cl_device_id device, const clattn_context_options *options,
                                    clattn_context **context) {
    const clattn_context_options defaults = {0};
    if (!context)
        return CLATTN_INVALID_ARGUMENT;
    *context = NULL;
    options = options ? options : &defaults;
    clattn__error error = {0};
    clattn_context *made = calloc(1, sizeof *made);
    if (!made)
        return CLATTN_OUT_OF_HOST_MEMORY;
    atomic_init(&made->references, 1);
    pthread_mutex_init(&made->lock, NULL);
    clattn_status status = fill(made, cl, device, options, &error);
    if (status != CLATTN_SUCCESS) {
        if (options->log)
            options->log(options->log_user, CLATTN_LOG_ERROR, error.text);
        clattn_context_destroy(made);
        return status;
    }
    *context = made;
    return CLATTN_SUCCESS;
}

void clattn__context_retain(clattn_context *context) { atomic_fetch_add(&context->references, 1); }

void clattn_context_destroy(clattn_context *context) {
    if (!context || atomic_fetch_sub(&context->references, 1) > 1)
        return;
    clattn__runtime_release(context->runtime);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

/* ---- errors ---- */

clattn_status clattn__report(clattn_context *context, const clattn__error *error) {
    if (error->status == CLATTN_SUCCESS)
        return CLATTN_SUCCESS;
    pthread_mutex_lock(&context->lock);
    memcpy(context->text, error->text, sizeof context->text);
    pthread_mutex_unlock(&context->lock);
    clattn__log_line(&context->runtime->log, CLATTN__LOG_ERROR, "%s", error->text);
    return error->status;
}

size_t clattn_context_error(const clattn_context *context, char *text, size_t size) {
    if (!context) {
        if (text && size > 0)
            text[0] = 0;
        return 0;
    }
    pthread_mutex_t *lock = (pthread_mutex_t *)&context->lock;
    pthread_mutex_lock(lock);
    const size_t length = strlen(context->text);
    if (text && size > 0)
        snprintf(text, size, "%s", context->text);
    pthread_mutex_unlock(lock);
    return length;
}

/* ---- devices ---- */

clattn_status clattn_device_query(cl_device_id device, clattn_device_info *info) {
    static const char *const kinds[] = {"cpu", "gpu", "other"};
    clattn__caps caps;
    if (!info || !device)
        return CLATTN_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    clattn_status status = clattn__caps_query(device, &caps, NULL);
    if (status != CLATTN_SUCCESS)
        return status;
    memcpy(info->name, caps.name, sizeof info->name);
    memcpy(info->vendor, caps.vendor, sizeof info->vendor);
    memcpy(info->platform, caps.platform, sizeof info->platform);
    memcpy(info->platform_version, caps.platform_version, sizeof info->platform_version);
    memcpy(info->driver_version, caps.driver_version, sizeof info->driver_version);
    memcpy(info->device_version, caps.device_version, sizeof info->device_version);
    info->kind = kinds[caps.kind];
    info->compute_units = caps.compute_units;
    info->vector_width_f32 = caps.vector_width_f32;
    info->global_bytes = caps.global_bytes;
    info->max_alloc_bytes = caps.max_alloc_bytes;
    info->local_bytes = caps.local_bytes;
    info->max_work_group = caps.max_work_group;
    info->fp16 = caps.fp16;
    info->fp64 = caps.fp64;
    info->subgroups = caps.subgroups;
    clattn__quirk_names(caps.quirks, info->quirks, sizeof info->quirks);
    return CLATTN_SUCCESS;
}
