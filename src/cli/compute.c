#include "cli/compute.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/transfer.h"

/* What a run holds while it lasts. */
typedef struct state {
    clattn_tensor tensors[CLATTN_LAYER_SLOTS];
    clattn_workspace workspace;
    double *host_ms, *device_ms; /* [repeat] */
} state;

/* ---- buffers ---- */

/* A buffer of count elements of data; the tensor is [count]. */
static bool put_row(session *s, const char *what, clattn_type type, int64_t count, const void *data, clattn_tensor *to,
                    failure *f) {
    cl_mem memory;
    if (!session_buffer(s, what, (uint64_t)count * clattn_type_size(type), data, &memory, f)) {
        return false;
    }
    *to = clattn_tensor_make(memory, type, 1, &count);
    return true;
}

static bool put_rows(session *s, const computation *call, clattn_tensor *tensors, failure *f) {
    const clattn_links *links = call->links;
    if (call->shape.has_lengths &&
        !put_row(s, "the lengths", CLATTN_I32, call->shape.batch, call->lengths, &tensors[CLATTN_LAYER_LENGTHS], f)) {
        return false;
    }
    return call->shape.links == 0 ||
           (put_row(s, "the links' rows", CLATTN_I64, links->length + 1, links->starts,
                    &tensors[CLATTN_LAYER_LINK_ROWS], f) &&
            put_row(s, "the links' keys", CLATTN_I32, links->count, links->keys, &tensors[CLATTN_LAYER_LINK_KEYS], f));
}

static bool make_tensors(session *s, const clattn_layer *layer, const clattn_plan *plan, const computation *call,
                         state *st, failure *f) {
    const int64_t shape[] = {call->shape.batch, call->shape.length, call->size};
    clattn_type type = call->shape.type;
    uint64_t scratch = clattn_plan_workspace_size(plan);
    return put_tensor(s, "the input", type, 3, shape, call->x, &st->tensors[CLATTN_LAYER_X], f) &&
           put_tensor(s, "the output", type, 3, shape, NULL, &st->tensors[CLATTN_LAYER_Y], f) &&
           put_rows(s, call, st->tensors, f) &&
           (!call->shape.train || gradients_put(s, call->gradients, layer, plan, type, shape, st->tensors, f)) &&
           (scratch == 0 || session_buffer(s, "the workspace", scratch, NULL, &st->workspace.memory, f));
}

static bool begin(session *s, const clattn_layer *layer, const clattn_plan *plan, const computation *call, state *st,
                  failure *f) {
    memset(st, 0, sizeof *st);
    st->host_ms = calloc((size_t)call->repeat, sizeof *st->host_ms);
    st->device_ms = calloc((size_t)call->repeat, sizeof *st->device_ms);
    if (!st->host_ms || !st->device_ms) {
        return fail_with(f, "no memory for the times of %" PRId64 " runs", call->repeat);
    }
    return make_tensors(s, layer, plan, call, st, f);
}

static void end(state *st) {
    for (int i = 0; i < CLATTN_LAYER_SLOTS; ++i) {
        if (st->tensors[i].memory) {
            clReleaseMemObject(st->tensors[i].memory);
        }
    }
    if (st->workspace.memory) {
        clReleaseMemObject(st->workspace.memory);
    }
    free(st->host_ms);
    free(st->device_ms);
}

/* ---- runs ---- */

/* From the end of the marker before the first stage to the end of the last: NaN where the device does not tell. */
static double device_time(cl_event before, cl_event after) {
    cl_ulong from = 0, to = 0;
    if (!before || clGetEventProfilingInfo(before, CL_PROFILING_COMMAND_END, sizeof from, &from, NULL) != CL_SUCCESS ||
        clGetEventProfilingInfo(after, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL) != CL_SUCCESS) {
        return NAN;
    }
    return ((double)to - (double)from) * 1e-6;
}

/* Queue a run. The queue is in order, so the event of the last pass is the event of all. */
static clattn_status enqueue(session *s, const clattn_plan *plan, const computation *call, state *st, cl_event *event) {
    bool train = call->shape.train;
    clattn_status status =
        clattn_enqueue(plan, s->queue, st->tensors, CLATTN_LAYER_SLOTS, &st->workspace, 0, NULL, train ? NULL : event);
    return status == CLATTN_SUCCESS && train ? clattn_enqueue_backward(plan, s->queue, st->tensors, CLATTN_LAYER_SLOTS,
                                                                       &st->workspace, 0, NULL, event)
                                             : status;
}

static bool run_once(session *s, const clattn_plan *plan, const computation *call, state *st, int64_t run, failure *f) {
    cl_event before = NULL, after;
    if (call->profile && clEnqueueMarkerWithWaitList(s->queue, 0, NULL, &before) != CL_SUCCESS) {
        before = NULL;
    }
    double start = clock_ms();
    clattn_status status = enqueue(s, plan, call, st, &after);
    bool done = status == CLATTN_SUCCESS || session_failed(s, "the layer was not run", status, f);
    if (done) {
        clRetainEvent(after);
        done = session_wait(s, "running the layer", after, f);
        st->host_ms[run] = clock_ms() - start;
        st->device_ms[run] = done ? device_time(before, after) : NAN;
        clReleaseEvent(after);
    }
    if (before) {
        clReleaseEvent(before);
    }
    return done;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static run_times summarise(double *ms, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        if (isnan(ms[i])) {
            return (run_times){NAN, NAN};
        }
    }
    qsort(ms, (size_t)count, sizeof *ms, compare);
    return (run_times){ms[0], (ms[(count - 1) / 2] + ms[count / 2]) / 2};
}

bool compute_run(session *s, const clattn_layer *layer, const clattn_plan *plan, const computation *call,
                 compute_times *times, failure *f) {
    state st;
    bool done = begin(s, layer, plan, call, &st, f);
    for (int64_t run = 0; run < call->repeat && done; ++run) {
        done = run_once(s, plan, call, &st, run, f);
    }
    done = done && get_tensor(s, "the output", &st.tensors[CLATTN_LAYER_Y], call->y, f) &&
           (!call->shape.train || gradients_get(s, call->gradients, st.tensors, f));
    if (done) {
        times->host = summarise(st.host_ms, call->repeat);
        times->device = summarise(st.device_ms, call->repeat);
    }
    end(&st);
    return done;
}
