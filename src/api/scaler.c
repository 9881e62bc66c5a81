/* Loss scaling. */
#include <clattn/scaler.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/object.h"
#include "core/layout.h"
#include "runtime/launch.h"

enum { TYPES = 3, EACH = 16384 /* elements of a work-group */ };

struct clattn_scaler {
    clattn_context *context;
    clattn_scaler_state state;
    cl_mem found;                   /* int: 1 once a gradient of this step was not finite */
    clattn__kernel *kernels[TYPES]; /* by storage type; NULL: not yet wanted */
};

/* ---- state ---- */

static clattn_status bad(clattn__error *error, const char *field, double value, const char *range) {
    return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is %g, but must be %s", field, value, range);
}

/* Written so that NaN fails it. */
static clattn_status check_state(const clattn_scaler_state *s, clattn__error *error) {
    if (!(s->scale > 0 && s->scale <= FLT_MAX))
        return bad(error, "scale", (double)s->scale, "above 0 and finite");
    if (!(s->growth_factor > 1 && s->growth_factor <= FLT_MAX))
        return bad(error, "growth_factor", (double)s->growth_factor, "above 1 and finite");
    if (!(s->backoff_factor > 0 && s->backoff_factor < 1))
        return bad(error, "backoff_factor", (double)s->backoff_factor, "above 0 and below 1");
    clattn_status status = clattn__range_check("growth_interval", s->growth_interval, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("growth_tracker", s->growth_tracker, 0, s->growth_interval - 1, error);
    return status;
}

static void step(clattn_scaler_state *s, bool found) {
    if (found) {
        s->scale = fmaxf(s->scale * s->backoff_factor, FLT_MIN);
        s->growth_tracker = 0;
    } else if (++s->growth_tracker == s->growth_interval) {
        const float grown = s->scale * s->growth_factor;
        s->scale = grown <= FLT_MAX ? grown : s->scale;
        s->growth_tracker = 0;
    }
}

/* ---- lifetime ---- */

static clattn_status fill(clattn_scaler *scaler, clattn_context *context, const clattn_scaler_state *state,
                          clattn__error *error) {
    int none = 0;
    cl_int code = CL_SUCCESS;
    clattn_status status = check_state(state, error);
    if (status != CLATTN_SUCCESS)
        return status;
    scaler->state = *state;
    scaler->found =
        clCreateBuffer(context->runtime->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof none, &none, &code);
    if (code != CL_SUCCESS)
        return clattn__fail(error, code, "the scaler's flag: %s", clattn_status_string(code));
    return CLATTN_SUCCESS;
}

clattn_status clattn_scaler_create(clattn_context *context, const clattn_scaler_state *state, clattn_scaler **scaler) {
    const clattn_scaler_state defaults = CLATTN_SCALER_DEFAULTS;
    clattn__error error = {0};
    if (!context || !scaler)
        return CLATTN_INVALID_ARGUMENT;
    *scaler = NULL;
    clattn_scaler *made = calloc(1, sizeof *made);
    if (!made)
        return CLATTN_OUT_OF_HOST_MEMORY;
    made->context = context;
    clattn__context_retain(context);
    if (fill(made, context, state ? state : &defaults, &error) != CLATTN_SUCCESS) {
        clattn__report(context, &error);
        clattn_scaler_destroy(made);
        return error.status;
    }
    *scaler = made;
    return CLATTN_SUCCESS;
}

void clattn_scaler_destroy(clattn_scaler *scaler) {
    if (!scaler)
        return;
    if (scaler->found)
        clReleaseMemObject(scaler->found);
    clattn_context_destroy(scaler->context);
    free(scaler);
}

float clattn_scaler_scale(const clattn_scaler *scaler) { return scaler ? scaler->state.scale : 0; }

clattn_status clattn_scaler_save(const clattn_scaler *scaler, clattn_scaler_state *state) {
    if (!scaler || !state)
        return CLATTN_INVALID_ARGUMENT;
    *state = scaler->state;
    return CLATTN_SUCCESS;
}

clattn_status clattn_scaler_restore(clattn_scaler *scaler, const clattn_scaler_state *state) {
    clattn__error error = {0};
    if (!scaler || !state)
        return CLATTN_INVALID_ARGUMENT;
    if (check_state(state, &error) != CLATTN_SUCCESS)
        return clattn__report(scaler->context, &error);
    scaler->state = *state;
    return CLATTN_SUCCESS;
}

/* ---- unscale ---- */

/* A frozen weight has none. */
static bool absent(const clattn_tensor *t) { return clattn__layout_absent(t) && !t->memory; }

static clattn_status check_gradient(const clattn_scaler *scaler, const clattn_tensor *t, size_t number,
                                    clattn__error *error) {
    char name[48], text[256];
    if (absent(t))
        return CLATTN_SUCCESS;
    snprintf(name, sizeof name, "gradient %zu", number);
    clattn__layout_rule rule = {.name = name, .rank = t->rank, .output = true};
    if (t->rank < 0 || t->rank > CLATTN_MAX_RANK)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s has rank %d, but must be in 0..%d", name, (int)t->rank,
                            CLATTN_MAX_RANK);
    for (int i = 0; i < t->rank; i++)
        rule.shape[i] = CLATTN__ANY_SIZE;
    clattn_status status = clattn__layout_check(t, &rule, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const clattn_tensor plain = clattn_tensor_make(NULL, t->type, t->rank, t->shape);
    const uint64_t extent = clattn__layout_extent(t);
    if (extent != clattn__layout_extent(&plain) || (extent > 0 && !clattn__layout_equal(t, &plain))) {
        clattn__layout_text(t, text, sizeof text);
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s is %s, but must be contiguous", name, text);
    }
    if (extent == 0)
        return CLATTN_SUCCESS;
    if (!t->memory)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: its memory is NULL", name);
    if (t->offset > UINT64_MAX / 16 || extent > UINT64_MAX / 16)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s: offset %" PRIu64 " plus extent %" PRIu64 " overflows",
                            name, t->offset, extent);
    return clattn__check_memory(scaler->context, name, t->memory, (t->offset + extent) * clattn_type_size(t->type),
                                CLATTN_INVALID_BUFFER, error);
}

static int group_size(const clattn_scaler *scaler) { return scaler->context->target.gemm.wg; }

static clattn_status find_kernel(clattn_scaler *scaler, clattn_type type, clattn__error *error) {
    const clattn__tile *tile = &scaler->context->target.gemm;
    const clattn__define defines[] = {{"EACH", EACH}, {"TYPE_X", type}, {"VW", tile->vw}, {"WG", tile->wg}};
    const size_t local[3] = {(size_t)group_size(scaler), 1, 1};
    if (scaler->kernels[type])
        return CLATTN_SUCCESS;
    clattn_status status = clattn__kernel_get(scaler->context->runtime, "scaler", "scaler_unscale", defines, 4,
                                              &scaler->kernels[type], error);
    return status == CLATTN_SUCCESS ? clattn__kernel_fits(scaler->kernels[type], local, error) : status;
}

static clattn_status check_all(clattn_scaler *scaler, cl_command_queue queue, const clattn_tensor *gradients,
                               size_t count, cl_uint wait_count, const cl_event *wait_list, clattn__error *error) {
    clattn_status status = clattn__check_queue(scaler->context, queue, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__check_waits(scaler->context, wait_count, wait_list, error);
    if (status == CLATTN_SUCCESS && count > 0 && !gradients)
        status = clattn__fail(error, CLATTN_INVALID_ARGUMENT, "gradients is NULL");
    for (size_t i = 0; i < count && status == CLATTN_SUCCESS; i++)
        status = check_gradient(scaler, &gradients[i], i, error);
    for (size_t i = 0; i < count && status == CLATTN_SUCCESS; i++)
        status = absent(&gradients[i]) ? status : find_kernel(scaler, gradients[i].type, error);
    return status;
}

static clattn_status queue_one(const clattn_scaler *scaler, cl_command_queue queue, const clattn_tensor *t,
                               cl_uint wait_count, const cl_event *wait_list, cl_event *event, clattn__error *error) {
    const uint64_t extent = clattn__layout_extent(t);
    const size_t local[3] = {(size_t)group_size(scaler), 1, 1};
    const size_t global[3] = {(size_t)((extent + EACH - 1) / EACH) * local[0], 1, 1};
    clattn__launch launch;
    clattn__launch_begin(&launch, scaler->kernels[t->type]);
    clattn__launch_memory(&launch, t->memory);
    clattn__launch_long(&launch, (int64_t)t->offset);
    clattn__launch_long(&launch, (int64_t)extent);
    clattn__launch_float(&launch, (float)(1.0 / (double)scaler->state.scale));
    clattn__launch_memory(&launch, scaler->found);
    return clattn__launch_end(&launch, queue, global, local, wait_count, wait_list, event, error);
}

/* Each kernel waits for the one before it, so that the last event stands for all. */
static clattn_status queue_all(const clattn_scaler *scaler, cl_command_queue queue, const clattn_tensor *gradients,
                               size_t count, cl_uint wait_count, const cl_event *wait_list, cl_event *last,
                               clattn__error *error) {
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < count && status == CLATTN_SUCCESS; i++) {
        cl_event after = NULL;
        if (absent(&gradients[i]) || clattn__layout_extent(&gradients[i]) == 0)
            continue;
        status =
            queue_one(scaler, queue, &gradients[i], *last ? 1 : wait_count, *last ? last : wait_list, &after, error);
        if (*last)
            clReleaseEvent(*last);
        *last = after;
    }
    return status;
}

clattn_status clattn_scaler_unscale(clattn_scaler *scaler, cl_command_queue queue, const clattn_tensor *gradients,
                                    size_t count, cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    clattn__error error = {0};
    cl_event last = NULL;
    if (event)
        *event = NULL;
    if (!scaler)
        return CLATTN_INVALID_ARGUMENT;
    clattn_status status = check_all(scaler, queue, gradients, count, wait_count, wait_list, &error);
    if (status == CLATTN_SUCCESS)
        status = queue_all(scaler, queue, gradients, count, wait_count, wait_list, &last, &error);
    if (status == CLATTN_SUCCESS && !last && (event || wait_count > 0)) {
        status = clEnqueueMarkerWithWaitList(queue, wait_count, wait_list, &last);
        if (status != CLATTN_SUCCESS)
            clattn__fail(&error, status, "a marker could not be queued (%s)", clattn_status_string(status));
    }
    if (status == CLATTN_SUCCESS && event)
        *event = last;
    else if (last)
        clReleaseEvent(last);
    return clattn__report(scaler->context, &error);
}

/* ---- update ---- */

static clattn_status take_flag(const clattn_scaler *scaler, cl_command_queue queue, cl_uint wait_count,
                               const cl_event *wait_list, int *found, clattn__error *error) {
    const int none = 0;
    clattn_status status = clattn__check_queue(scaler->context, queue, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__check_waits(scaler->context, wait_count, wait_list, error);
    if (status != CLATTN_SUCCESS)
        return status;
    status = clEnqueueReadBuffer(queue, scaler->found, CL_TRUE, 0, sizeof *found, found, wait_count, wait_list, NULL);
    if (status == CLATTN_SUCCESS && *found)
        status = clEnqueueWriteBuffer(queue, scaler->found, CL_TRUE, 0, sizeof none, &none, 0, NULL, NULL);
    if (status != CLATTN_SUCCESS)
        return clattn__fail(error, status, "the scaler's flag: %s", clattn_status_string(status));
    return CLATTN_SUCCESS;
}

clattn_status clattn_scaler_update(clattn_scaler *scaler, cl_command_queue queue, cl_uint wait_count,
                                   const cl_event *wait_list, bool *skip) {
    clattn__error error = {0};
    int found = 0;
    if (skip)
        *skip = true;
    if (!scaler)
        return CLATTN_INVALID_ARGUMENT;
    if (!skip)
        clattn__fail(&error, CLATTN_INVALID_ARGUMENT, "skip is NULL");
    else if (take_flag(scaler, queue, wait_count, wait_list, &found, &error) == CLATTN_SUCCESS) {
        *skip = found != 0;
        step(&scaler->state, *skip);
    }
    return clattn__report(scaler->context, &error);
}
