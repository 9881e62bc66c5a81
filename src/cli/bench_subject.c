/* A layer or a core with its seeded tensors on the device, and its runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/clock.h"
#include "cli/convert.h"
#include "cli/links.h"

const bench_array *bench_weight(const bench_subject *s, const char *name) {
    for (size_t i = 0; i < s->weight_count; ++i) {
        if (strcmp(s->weights[i].name, name) == 0) {
            return &s->weights[i];
        }
    }
    return NULL;
}

/* ---- memory of the device ---- */

/* count numbers as a type stores them; NULL values: all bits set, which is NaN in every type. */
static void *pack(const float *values, int64_t count, clattn_type type) {
    const size_t size = clattn_type_size(type), bytes = (size_t)count * size;
    unsigned char *data = malloc(bytes > 0 ? bytes : 1);
    if (data && !values) {
        memset(data, 0xff, bytes);
    } else if (data && type == CLATTN_F32) {
        memcpy(data, values, bytes);
    }
    for (int64_t i = 0; data && values && type != CLATTN_F32 && i < count; ++i) {
        uint16_t word = type == CLATTN_F16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        memcpy(data + (size_t)i * size, &word, size);
    }
    return data;
}

static bool upload(bench_subject *s, const char *what, clattn_type type, int64_t count, const float *values,
                   cl_mem *memory, failure *f) {
    void *data = pack(values, count, type);
    bool done = data ? session_buffer(s->session, what, (uint64_t)count * clattn_type_size(type), data, memory, f)
                     : fail_with(f, "no memory for %s", what);
    free(data);
    return done;
}

bool bench_tensor(bench_subject *s, size_t slot, const char *what, clattn_type type, int32_t rank, const int64_t *shape,
                  const int64_t *stride, const float *values, failure *f) {
    clattn_tensor *t = &s->tensors[slot];
    *t = clattn_tensor_make(NULL, type, rank, shape);
    int64_t count = 1;
    for (int32_t i = 0; i < rank; ++i) {
        count *= shape[i];
        t->stride[i] = stride ? stride[i] : t->stride[i];
    }
    s->device_bytes += (uint64_t)count * clattn_type_size(type);
    return upload(s, what, type, count, values, &t->memory, f);
}

static bool raw(bench_subject *s, size_t slot, const char *what, clattn_type type, int64_t count, const void *data,
                failure *f) {
    cl_mem memory;
    if (!session_buffer(s->session, what, (uint64_t)count * clattn_type_size(type), data, &memory, f)) {
        return false;
    }
    s->device_bytes += (uint64_t)count * clattn_type_size(type);
    s->tensors[slot] = clattn_tensor_make(memory, type, 1, &count);
    return true;
}

bool bench_core_links(bench_subject *s, size_t rows_slot, size_t keys_slot, failure *f) {
    const bench_case *c = s->c;
    if (c->random < 0) {
        return true;
    }
    return links_draw(c->settings, c->n, c->random, c->seed + BENCH_STREAM_LINKS, &s->links, f) &&
           (s->links.count == 0 ||
            (raw(s, rows_slot, "the links' rows", CLATTN_I64, s->links.length + 1, s->links.starts, f) &&
             raw(s, keys_slot, "the links' keys", CLATTN_I32, s->links.count, s->links.keys, f)));
}

static bool workspace(bench_subject *s, failure *f) {
    const uint64_t bytes = clattn_plan_workspace_size(s->plan);
    s->device_bytes += bytes;
    return bytes == 0 || session_buffer(s->session, "the workspace", bytes, NULL, &s->workspace.memory, f);
}

/* ---- a layer ---- */

static bool make_layer(bench_subject *s, const bench_case *c, clattn_layer **layer, failure *f) {
    clattn_weight_info infos[BENCH_WEIGHTS];
    size_t count = c->family->hints ? c->family->hints(c, infos) : 0;
    clattn_status status = clattn_layer_from_settings(s->session->context, c->family->name, c->d, c->heads,
                                                      c->settings->items, c->settings->count, infos, count, layer);
    s->misused = status > 0 && status < CLATTN_UNSUPPORTED;
    return status == CLATTN_SUCCESS || session_failed(s->session, c->family->name, status, f);
}

static bool make_weights(bench_subject *s, failure *f) {
    const size_t count = clattn_layer_weight_count(s->layer);
    if (count > BENCH_WEIGHTS) {
        return fail_with(f, "the layer has %zu weights, more than the benchmark knows", count);
    }
    for (size_t i = 0; i < count; ++i) {
        clattn_weight_info info;
        if (clattn_layer_weight(s->layer, i, &info) != CLATTN_SUCCESS ||
            !bench_weight_make(&s->weights[i], &info, s->c->seed, i, f)) {
            return fail_with(f, "the layer does not tell its weight %zu", i);
        }
        s->weight_count = i + 1;
        s->device_bytes += (uint64_t)s->weights[i].count * sizeof(float);
    }
    return true;
}

static bool pack_weights(bench_subject *s, failure *f) {
    clattn_tensor tensors[BENCH_WEIGHTS] = {0};
    bool done = true;
    cl_event packed;
    for (size_t i = 0; i < s->weight_count && done; ++i) {
        const bench_array *w = &s->weights[i];
        tensors[i] = clattn_tensor_make(NULL, CLATTN_F32, w->rank, w->shape);
        done = upload(s, w->name, CLATTN_F32, w->count, w->values, &tensors[i].memory, f);
    }
    if (done) {
        clattn_status status =
            clattn_layer_load(s->layer, s->session->queue, tensors, s->weight_count, 0, NULL, &packed);
        done = status == CLATTN_SUCCESS ? session_wait(s->session, "loading the weights", packed, f)
                                        : session_failed(s->session, "the weights were not loaded", status, f);
    }
    for (size_t i = 0; i < s->weight_count; ++i) {
        if (tensors[i].memory) {
            clReleaseMemObject(tensors[i].memory);
        }
    }
    return done;
}

/* Upload an array again. */
static bool put(bench_subject *s, size_t slot, const bench_array *a, failure *f) {
    void *data = pack(a->values, a->count, a->type);
    cl_int code = !data ? CL_OUT_OF_HOST_MEMORY
                        : clEnqueueWriteBuffer(s->session->queue, s->tensors[slot].memory, CL_TRUE, 0,
                                               (size_t)a->count * clattn_type_size(a->type), data, 0, NULL, NULL);
    free(data);
    return code == CL_SUCCESS || fail_with(f, "%s was not written: %s", a->name, clattn_status_string(code));
}

bool bench_put_inputs(bench_subject *s, failure *f) {
    bool done = true;
    for (size_t i = 0; i < s->input_count && done; ++i) {
        done = put(s, s->input_slots[i], &s->inputs[i], f);
    }
    return done;
}

bool bench_put_weights(bench_subject *s, failure *f) {
    bool done = true;
    for (size_t i = 0; i < s->weight_count && done && s->c->core; ++i) {
        done = put(s, s->weight_slots[i], &s->weights[i], f);
    }
    return s->c->core ? done : pack_weights(s, f);
}

bool bench_put_grad_y(bench_subject *s, failure *f) { return put(s, s->grad_y_slot, &s->grad_y, f); }

bool bench_grad_y(bench_subject *s, size_t slot, int32_t rank, const int64_t *shape, const int64_t *stride,
                  failure *f) {
    const bench_case *c = s->c;
    s->grad_y_slot = slot;
    return bench_array_make(&s->grad_y, "the output's gradient", c->dtype, rank, shape, c->seed, BENCH_STREAM_GRAD, 1,
                            0, f) &&
           bench_tensor(s, slot, s->grad_y.name, c->dtype, rank, shape, stride, s->grad_y.values, f);
}

bool bench_saved(bench_subject *s, failure *f) {
    const int64_t saved = (int64_t)clattn_plan_saved_count(s->plan);
    return bench_tensor(s, s->saved_slot, "what forward saves", CLATTN_F32, 1, &saved, NULL, NULL, f);
}

static bool train_tensors(bench_subject *s, const int64_t *shape, failure *f) {
    s->saved_slot = CLATTN_LAYER_SAVED;
    s->input_grad_slots[0] = CLATTN_LAYER_GRAD_X;
    if (!bench_saved(s, f) || !bench_grad_y(s, CLATTN_LAYER_GRAD_Y, 3, shape, NULL, f) ||
        !bench_tensor(s, CLATTN_LAYER_GRAD_X, "the input's gradient", s->c->dtype, 3, shape, NULL, NULL, f)) {
        return false;
    }
    for (size_t i = 0; i < s->weight_count; ++i) {
        const bench_array *w = &s->weights[i];
        s->weight_grad_slots[i] = CLATTN_LAYER_GRAD_WEIGHTS + i;
        if (w->trainable &&
            !bench_tensor(s, s->weight_grad_slots[i], w->name, CLATTN_F32, w->rank, w->shape, NULL, NULL, f)) {
            return false;
        }
    }
    return true;
}

static bool plan_layer(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const clattn_layer_shape shape = {
        .batch = c->batch, .length = c->n, .type = c->dtype, .links = s->links.count, .train = c->train};
    double start = clock_ms();
    clattn_status status = clattn_layer_plan(s->layer, &shape, &s->plan);
    s->compile_ms += clock_ms() - start;
    return status == CLATTN_SUCCESS || session_failed(s->session, c->family->name, status, f);
}

static bool open_layer(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const int64_t shape[] = {c->batch, c->n, c->d};
    double start = clock_ms();
    if (!make_layer(s, c, &s->layer, f)) {
        return false;
    }
    s->compile_ms = clock_ms() - start;
    s->slots = CLATTN_LAYER_SLOTS;
    s->input_slots[0] = CLATTN_LAYER_X;
    s->input_count = 1;
    s->output_slot = CLATTN_LAYER_Y;
    return make_weights(s, f) && bench_put_weights(s, f) &&
           bench_core_links(s, CLATTN_LAYER_LINK_ROWS, CLATTN_LAYER_LINK_KEYS, f) && plan_layer(s, f) &&
           bench_array_make(&s->inputs[0], "the input", c->dtype, 3, shape, c->seed, BENCH_STREAM_INPUT, 1, 0, f) &&
           bench_tensor(s, CLATTN_LAYER_X, "the input", c->dtype, 3, shape, NULL, s->inputs[0].values, f) &&
           bench_tensor(s, CLATTN_LAYER_Y, "the output", c->dtype, 3, shape, NULL, NULL, f) &&
           (!c->train || train_tensors(s, shape, f));
}

/* ---- a core ---- */

/* A layer of one token checks the options as it would for itself. */
static bool open_core(bench_subject *s, failure *f) {
    bench_case small = *s->c;
    clattn_layer *layer = NULL;
    small.n = 1;
    if (!make_layer(s, &small, &layer, f)) {
        return false;
    }
    clattn_layer_destroy(layer);
    return s->c->family->core(s, f);
}

/* ---- both ---- */

bool bench_subject_open(bench_subject *s, session *on, const bench_case *c, failure *f) {
    memset(s, 0, sizeof *s);
    s->session = on;
    s->c = c;
    return (c->core ? open_core(s, f) : open_layer(s, f)) && workspace(s, f);
}

void bench_subject_close(bench_subject *s) {
    for (size_t i = 0; i < BENCH_SLOTS; ++i) {
        if (s->tensors[i].memory) {
            clReleaseMemObject(s->tensors[i].memory);
        }
    }
    if (s->workspace.memory) {
        clReleaseMemObject(s->workspace.memory);
    }
    for (size_t i = 0; i < BENCH_INPUTS; ++i) {
        bench_array_free(&s->inputs[i]);
    }
    for (size_t i = 0; i < BENCH_WEIGHTS; ++i) {
        bench_array_free(&s->weights[i]);
    }
    bench_array_free(&s->grad_y);
    clattn_links_finish(&s->links);
    clattn_plan_destroy(s->plan);
    clattn_layer_destroy(s->layer);
    memset(s, 0, sizeof *s);
}

bool bench_subject_run(bench_subject *s, bool backward, bench_run *times, failure *f) {
    cl_command_queue queue = s->session->queue;
    cl_event done = NULL;
    double start = clock_ms();
    clattn_status status =
        clattn_enqueue(s->plan, queue, s->tensors, s->slots, &s->workspace, 0, NULL, backward ? NULL : &done);
    if (status == CLATTN_SUCCESS && backward) {
        status = clattn_enqueue_backward(s->plan, queue, s->tensors, s->slots, &s->workspace, 0, NULL, &done);
    }
    if (status != CLATTN_SUCCESS) {
        return session_failed(s->session, s->c->family->name, status, f);
    }
    const double queued = clock_ms();
    bool waited = session_wait(s->session, "running", done, f);
    if (times) {
        *times = (bench_run){clock_ms() - start, queued - start};
    }
    return waited;
}

/* Widen in place, from the end: each float is at least as wide as what it replaces. */
static void widen(float *values, int64_t count, clattn_type type) {
    const unsigned char *data = (const unsigned char *)values;
    const size_t size = clattn_type_size(type);
    for (int64_t i = count - 1; i >= 0 && type != CLATTN_F32; --i) {
        uint16_t word;
        memcpy(&word, data + (size_t)i * size, sizeof word);
        values[i] = type == CLATTN_F16 ? f16_to_f32(word) : bf16_to_f32(word);
    }
}

bool bench_read(bench_subject *s, size_t slot, const char *what, float **values, int64_t *count, failure *f) {
    const clattn_tensor *t = &s->tensors[slot];
    *count = 1;
    for (int32_t i = 0; i < t->rank; ++i) {
        *count *= t->shape[i];
    }
    *values = malloc((size_t)(*count > 0 ? *count : 1) * sizeof **values);
    if (!*values) {
        return fail_with(f, "no memory for %" PRId64 " numbers of %s", *count, what);
    }
    cl_int code = clEnqueueReadBuffer(s->session->queue, t->memory, CL_TRUE, 0,
                                      (size_t)*count * clattn_type_size(t->type), *values, 0, NULL, NULL);
    if (code != CL_SUCCESS) {
        free(*values);
        *values = NULL;
        return fail_with(f, "%s could not be read: %s", what, clattn_status_string(code));
    }
    widen(*values, *count, t->type);
    return true;
}
