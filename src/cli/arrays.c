#include "cli/arrays.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/shape.h"

static bool check_input(const char *path, const npy_array *x, failure *f) {
    if (x->rank != 3) {
        return fail_with(f, "%s: the input has shape %s, but must have 3 axes: batch, length, model size", path,
                         shape_print(x->rank, NPY_MAX_RANK, x->shape).text);
    }
    if (!x->values) {
        return fail_with(f, "%s: the input holds integers, but must hold float16, float32 or float64", path);
    }
    return true;
}

bool read_input(const char *path, npy_array *x, failure *f) { return npy_read(path, x, f) && check_input(path, x, f); }

static bool check_gradient(const char *path, const npy_array *x, const npy_array *dy, failure *f) {
    if (dy->rank != x->rank || !shape_equal(x->rank, dy->shape, x->shape)) {
        return fail_with(f, "%s: the gradient of the output has shape %s, but the input has %s", path,
                         shape_print(dy->rank, NPY_MAX_RANK, dy->shape).text,
                         shape_print(x->rank, NPY_MAX_RANK, x->shape).text);
    }
    if (!dy->values) {
        return fail_with(f, "%s: the gradient of the output holds integers, but must hold float16, float32 or float64",
                         path);
    }
    return true;
}

bool read_gradient(const char *path, const npy_array *x, npy_array *dy, failure *f) {
    return npy_read(path, dy, f) && check_gradient(path, x, dy, f);
}

/* ---- lengths ---- */

static bool take_length(const char *path, const npy_array *a, int64_t i, int64_t limit, int32_t *to, failure *f) {
    if (a->integers) {
        if (a->integers[i] < 0 || a->integers[i] > limit) {
            return fail_with(f, "%s: length [%" PRId64 "] is %" PRId64 ", but must be in 0..%" PRId64, path, i,
                             a->integers[i], limit);
        }
        *to = (int32_t)a->integers[i];
        return true;
    }
    float value = a->values[i];
    /* Written so that NaN fails it. */
    if (!(value >= 0 && (double)value <= (double)limit && value == floorf(value))) {
        return isnan(value)
                   ? fail_with(f, "%s: length [%" PRId64 "] is NaN, but must be a whole number in 0..%" PRId64, path, i,
                               limit)
                   : fail_with(f, "%s: length [%" PRId64 "] is %.9g, but must be a whole number in 0..%" PRId64, path,
                               i, (double)value, limit);
    }
    *to = (int32_t)value;
    return true;
}

static bool take_lengths(const char *path, const npy_array *a, int64_t batch, int64_t length, int32_t *to, failure *f) {
    if (a->rank != 1 || a->shape[0] != batch) {
        return fail_with(f, "%s: the lengths have shape %s, but the input's batch wants [%" PRId64 "]", path,
                         shape_print(a->rank, NPY_MAX_RANK, a->shape).text, batch);
    }
    if (length > INT32_MAX) {
        return fail_with(f, "%s: the input's length is %" PRId64 ", but lengths go up to %d", path, length, INT32_MAX);
    }
    for (int64_t i = 0; i < batch; ++i) {
        if (!take_length(path, a, i, length, &to[i], f)) {
            return false;
        }
    }
    return true;
}

bool read_lengths(const char *path, int64_t batch, int64_t length, int32_t **lengths, failure *f) {
    npy_array a;
    *lengths = NULL;
    if (!npy_read(path, &a, f)) {
        return false;
    }
    int32_t *to = malloc((a.count > 0 ? (size_t)a.count : 1) * sizeof *to);
    bool done = to ? take_lengths(path, &a, batch, length, to, f) : fail_with(f, "%s: no memory for the lengths", path);
    npy_free(&a);
    if (!done) {
        free(to);
        return false;
    }
    *lengths = to;
    return true;
}
