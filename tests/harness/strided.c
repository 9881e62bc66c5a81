#include "harness/strided.h"

#include <math.h>
#include <stdlib.h>

#include "reference/reference.h"

clattn_tensor strided_layout(clattn_type type, spread s, const int64_t shape[4]) {
    clattn_tensor t = clattn_tensor_make(NULL, type, 4, shape);
    const int64_t row = shape[3] + s.gap, H = shape[1] > 0 ? shape[1] : 1, n = shape[2] > 0 ? shape[2] : 1;
    t.stride[0] = H * n * row;
    t.stride[1] = s.by_token ? row : n * row;
    t.stride[2] = s.by_token ? H * row : row;
    return t;
}

static size_t element(const clattn_tensor *t, int64_t b, int64_t h, int64_t i, int64_t c) {
    return (size_t)(b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + c);
}

/* Call for each element, in the order of [B, H, n, D]. */
typedef void visitor(double *image, size_t at, double *value);

static void each(const clattn_tensor *t, double *image, double *values, visitor *visit) {
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++)
                    visit(image, element(t, b, h, i, c), values++);
}

static void put(double *image, size_t at, double *value) { image[at] = *value; }

static void take(double *image, size_t at, double *value) {
    *value = image[at];
    image[at] = NAN;
}

guarded strided_make(const fixture *f, clattn_tensor *tensor, const double *values) {
    const size_t count = (size_t)(tensor->shape[0] * tensor->stride[0]);
    double *image = ref_array(count);
    for (size_t e = 0; e < count; e++)
        image[e] = NAN;
    if (values)
        each(tensor, image, (double *)values, put);
    guarded g = guarded_upload(f, tensor->type, image, count);
    free(image);
    tensor->memory = g.memory;
    tensor->offset = g.before / clattn_type_size(g.type);
    return g;
}

double *strided_read(const fixture *f, const guarded *g, const clattn_tensor *t, const char *name) {
    double *image = guarded_read(f, g, name);
    double *values = ref_array((size_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]));
    each(t, image, values, take);
    for (size_t e = 0; e < g->count; e++)
        ck_assert_msg(isnan(image[e]), "%s: element %zu, between rows, was overwritten with %g", name, e, image[e]);
    free(image);
    return values;
}
