#include "cli/gradients.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/safetensors.h"
#include "cli/transfer.h"

/* The next weight that is trained, from *i on; false past the last. */
static bool next_weight(const clattn_layer *layer, size_t *i, clattn_weight_info *w) {
    size_t count = clattn_layer_weight_count(layer);
    for (; *i < count && *i < GRADIENTS_MAX; ++*i) {
        if (clattn_layer_weight(layer, *i, w) == CLATTN_SUCCESS && w->trainable) {
            return true;
        }
    }
    return false;
}

/* ---- host memory ---- */

static bool alloc(float **values, uint64_t count, const char *what, failure *f) {
    *values = malloc(count > 0 ? (size_t)count * sizeof **values : 1);
    return *values || fail_with(f, "no memory for %" PRIu64 " numbers of the gradient of %s", count, what);
}

bool gradients_alloc(gradients *g, const clattn_layer *layer, uint64_t elements, bool x, bool weights, failure *f) {
    clattn_weight_info w;
    if (x && !alloc(&g->x, elements, "the input", f)) {
        return false;
    }
    for (size_t i = 0; weights && next_weight(layer, &i, &w); ++i) {
        if (!alloc(&g->weights[i], tensor_elements(w.rank, w.shape), w.name, f)) {
            return false;
        }
    }
    return true;
}

void gradients_free(gradients *g) {
    free(g->x);
    for (int i = 0; i < GRADIENTS_MAX; ++i) {
        free(g->weights[i]);
    }
    *g = (gradients){0};
}

/* ---- the device ---- */

bool gradients_put(session *s, const gradients *g, const clattn_layer *layer, const clattn_plan *plan, clattn_type type,
                   const int64_t *shape, clattn_tensor *slots, failure *f) {
    clattn_weight_info w;
    const int64_t saved = (int64_t)clattn_plan_saved_count(plan);
    bool done = put_tensor(s, "what forward saves", CLATTN_F32, 1, &saved, NULL, &slots[CLATTN_LAYER_SAVED], f) &&
                put_tensor(s, "the gradient of the output", type, 3, shape, g->y, &slots[CLATTN_LAYER_GRAD_Y], f) &&
                put_tensor(s, "the gradient of the input", type, 3, shape, NULL, &slots[CLATTN_LAYER_GRAD_X], f);
    for (size_t i = 0; done && next_weight(layer, &i, &w); ++i) {
        done = put_tensor(s, w.name, CLATTN_F32, w.rank, w.shape, NULL, &slots[CLATTN_LAYER_GRAD_WEIGHTS + i], f);
    }
    return done;
}

bool gradients_get(session *s, const gradients *g, const clattn_tensor *slots, failure *f) {
    bool done = !g->x || get_tensor(s, "the gradient of the input", &slots[CLATTN_LAYER_GRAD_X], g->x, f);
    for (int i = 0; i < GRADIENTS_MAX && done; ++i) {
        done = !g->weights[i] ||
               get_tensor(s, "a weight's gradient", &slots[CLATTN_LAYER_GRAD_WEIGHTS + i], g->weights[i], f);
    }
    return done;
}

/* ---- the file ---- */

bool gradients_write(outputs *set, const char *path, const gradients *g, const clattn_layer *layer, failure *f) {
    clattn_weight_info w[GRADIENTS_MAX];
    safetensors_tensor tensors[GRADIENTS_MAX];
    size_t count = 0;
    for (size_t i = 0; next_weight(layer, &i, &w[count]); ++i, ++count) {
        tensors[count] = (safetensors_tensor){w[count].name, w[count].rank, w[count].shape, g->weights[i]};
    }
    return safetensors_write(set, path, tensors, count, f);
}
