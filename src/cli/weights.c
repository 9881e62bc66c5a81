#include "cli/weights.h"

#include <stdlib.h>
#include <string.h>

#include "cli/shape.h"

_Static_assert((int)SAFETENSORS_MAX_RANK == (int)CLATTN_MAX_RANK, "shapes are copied whole");

bool weights_list(const safetensors *file, clattn_weight_info **infos, size_t *count, failure *f) {
    size_t all = safetensors_count(file);
    *count = 0;
    *infos = malloc((all > 0 ? all : 1) * sizeof **infos);
    if (!*infos) {
        return fail_with(f, "no memory for a list of %zu weights", all);
    }
    for (size_t i = 0; i < all; ++i) {
        const safetensors_info *t = safetensors_at(file, i);
        if (t->rank <= SAFETENSORS_MAX_RANK) { /* no layer has others */
            clattn_weight_info *w = &(*infos)[(*count)++];
            *w = (clattn_weight_info){.name = t->name, .rank = t->rank};
            memcpy(w->shape, t->shape, (size_t)t->rank * sizeof *t->shape);
        }
    }
    return true;
}

static bool check_weight(const safetensors *file, const char *path, const clattn_weight_info *w, failure *f) {
    const safetensors_info *t = safetensors_find(file, w->name);
    shape_text want = shape_print(w->rank, CLATTN_MAX_RANK, w->shape);
    if (!t) {
        return fail_with(f, "%s: tensor '%s' is missing; the layer wants it with shape %s", path, w->name, want.text);
    }
    if (t->rank != w->rank || !shape_equal(w->rank, t->shape, w->shape)) {
        return fail_with(f, "%s: tensor '%s' has shape %s, but the layer wants %s", path, w->name,
                         shape_print(t->rank, SAFETENSORS_MAX_RANK, t->shape).text, want.text);
    }
    return true;
}

static bool check_all(const safetensors *file, const char *path, const clattn_layer *layer, failure *f) {
    for (size_t i = 0; i < clattn_layer_weight_count(layer); ++i) {
        clattn_weight_info w;
        if (clattn_layer_weight(layer, i, &w) != CLATTN_SUCCESS) {
            return fail_with(f, "the layer does not tell its weight %zu", i);
        }
        if (!check_weight(file, path, &w, f)) {
            return false;
        }
    }
    return true;
}

static bool upload(session *s, const safetensors *file, const clattn_weight_info *w, clattn_tensor *to, failure *f) {
    const safetensors_info *t = safetensors_find(file, w->name);
    float *values;
    cl_mem memory;
    if (!safetensors_read(file, t, &values, f)) {
        return false;
    }
    bool done = session_buffer(s, w->name, (uint64_t)t->count * sizeof(float), values, &memory, f);
    free(values);
    if (done) {
        *to = clattn_tensor_make(memory, CLATTN_F32, w->rank, w->shape);
    }
    return done;
}

static bool upload_all(session *s, const safetensors *file, const clattn_layer *layer, clattn_tensor *tensors,
                       failure *f) {
    for (size_t i = 0; i < clattn_layer_weight_count(layer); ++i) {
        clattn_weight_info w;
        if (clattn_layer_weight(layer, i, &w) != CLATTN_SUCCESS || !upload(s, file, &w, &tensors[i], f)) {
            return fail_with(f, "the layer does not tell its weight %zu", i);
        }
    }
    return true;
}

/* The library reads the tensors until its event completes. */
static bool pack(session *s, clattn_layer *layer, const clattn_tensor *tensors, size_t count, failure *f) {
    cl_event done;
    clattn_status status = clattn_layer_load(layer, s->queue, tensors, count, 0, NULL, &done);
    return status == CLATTN_SUCCESS ? session_wait(s, "loading the weights", done, f)
                                    : session_failed(s, "the weights were not loaded", status, f);
}

bool weights_load(session *s, const safetensors *file, const char *path, clattn_layer *layer, failure *f) {
    size_t count = clattn_layer_weight_count(layer);
    if (!check_all(file, path, layer, f)) {
        return false;
    }
    clattn_tensor *tensors = calloc(count > 0 ? count : 1, sizeof *tensors);
    bool done = tensors ? upload_all(s, file, layer, tensors, f) && pack(s, layer, tensors, count, f)
                        : fail_with(f, "no memory for a list of %zu weights", count);
    for (size_t i = 0; tensors && i < count; ++i) {
        if (tensors[i].memory) {
            clReleaseMemObject(tensors[i].memory);
        }
    }
    free(tensors);
    return done;
}
