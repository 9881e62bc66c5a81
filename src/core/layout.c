/* Checks of tensor layouts. */
#include "core/layout.h"

#include <inttypes.h>

#include "base/text.h"

bool clattn__layout_absent(const clattn_tensor *tensor) { return tensor->rank == 0; }

bool clattn__layout_equal(const clattn_tensor *a, const clattn_tensor *b) {
    bool equal = a->type == b->type && a->rank == b->rank;
    for (int i = 0; equal && i < a->rank; i++)
        equal = a->shape[i] == b->shape[i] && (a->stride[i] == b->stride[i] || a->shape[i] <= 1);
    return equal;
}

uint64_t clattn__layout_extent(const clattn_tensor *tensor) {
    uint64_t last = 0;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0)
            return 0;
        last += (uint64_t)(tensor->shape[i] - 1) * (uint64_t)tensor->stride[i];
    }
    return last + 1;
}

/* "[2, any, 3]" */
static void list(clattn__text *text, const int64_t *values, int32_t count) {
    clattn__text_add(text, "[");
    for (int i = 0; i < count; i++) {
        clattn__text_add(text, "%s", i ? ", " : "");
        if (values[i] == CLATTN__ANY_SIZE)
            clattn__text_add(text, "any");
        else
            clattn__text_add(text, "%" PRId64, values[i]);
    }
    clattn__text_add(text, "]");
}

static int32_t listed(const clattn_tensor *tensor) {
    return tensor->rank < 0 ? 0 : tensor->rank > CLATTN_MAX_RANK ? CLATTN_MAX_RANK : tensor->rank;
}

void clattn__layout_text(const clattn_tensor *tensor, char *data, size_t size) {
    clattn__text text = {data, size, 0};
    clattn__text_add(&text, "%s ", clattn_type_name(tensor->type));
    list(&text, tensor->shape, listed(tensor));
    clattn__text_add(&text, " strides ");
    list(&text, tensor->stride, listed(tensor));
}

static clattn_status check_type(const clattn_tensor *t, const clattn__layout_rule *r, clattn__error *error) {
    if (r->typed && t->type != r->type)
        return clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but must be %s", r->name,
                            clattn_type_name(t->type), clattn_type_name(r->type));
    if (!r->typed && t->type != CLATTN_F32 && t->type != CLATTN_F16 && t->type != CLATTN_BF16)
        return clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but must be f32, f16 or bf16", r->name,
                            clattn_type_name(t->type));
    return CLATTN_SUCCESS;
}

static clattn_status bad_shape(const clattn_tensor *t, const clattn__layout_rule *r, clattn__error *error) {
    char got[160], want[160];
    clattn__text text = {got, sizeof got, 0};
    list(&text, t->shape, listed(t));
    text = (clattn__text){want, sizeof want, 0};
    list(&text, r->shape, r->rank);
    return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s has shape %s, but must have %s", r->name, got, want);
}

static clattn_status check_stride(const clattn_tensor *t, const clattn__layout_rule *r, int axis,
                                  clattn__error *error) {
    const int64_t stride = t->stride[axis], shape = t->shape[axis];
    if (stride < 0)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "%s has stride %" PRId64 " along axis %d, but must have at least 0", r->name, stride, axis);
    if (axis == t->rank - 1 && shape > 1 && stride != 1)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s has innermost stride %" PRId64 ", but must have 1",
                            r->name, stride);
    if (r->output && shape > 1 && stride == 0)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "%s is an output of extent %" PRId64 " along axis %d, but has stride 0 there", r->name,
                            shape, axis);
    if (shape > 1 && stride > INT64_MAX / 8 / shape)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s: extent %" PRId64 " times stride %" PRId64 " overflows",
                            r->name, shape, stride);
    return CLATTN_SUCCESS;
}

/* Broadcast and overlapping axes cost no memory, so their product must be bounded too: sizes in plans stay far below 64
 * bits. */
static clattn_status check_count(const clattn_tensor *t, const clattn__layout_rule *r, clattn__error *error) {
    const int64_t most = INT64_C(1) << 47;
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] > most / count)
            return clattn__fail(error, CLATTN_UNSUPPORTED, "%s has more than %" PRId64 " elements", r->name, most);
        count *= t->shape[i] > 0 ? t->shape[i] : 1;
    }
    return CLATTN_SUCCESS;
}

clattn_status clattn__layout_check(const clattn_tensor *t, const clattn__layout_rule *r, clattn__error *error) {
    if (r->optional && clattn__layout_absent(t))
        return CLATTN_SUCCESS;
    clattn_status status = check_type(t, r, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (t->rank != r->rank)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s has rank %d, but must have %d", r->name, t->rank, r->rank);
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0 || (r->shape[i] != CLATTN__ANY_SIZE && t->shape[i] != r->shape[i]))
            return bad_shape(t, r, error);
        if ((status = check_stride(t, r, i, error)) != CLATTN_SUCCESS)
            return status;
    }
    return check_count(t, r, error);
}

clattn_status clattn__like_check(const char *name, const clattn_tensor *tensor, const clattn_tensor *like, bool output,
                                 clattn__error *error) {
    clattn__layout_rule rule = {.name = name, .rank = like->rank, .output = output};
    for (int i = 0; i < like->rank; i++)
        rule.shape[i] = like->shape[i];
    return clattn__layout_check(tensor, &rule, error);
}

clattn_status clattn__gradient_check(const char *name, const clattn_tensor *tensor, const clattn_tensor *like,
                                     clattn_type type, bool output, clattn__error *error) {
    clattn_status status = clattn__like_check(name, tensor, like, output, error);
    if (status == CLATTN_SUCCESS && tensor->type != type)
        status = clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but must have %s", name,
                              clattn_type_name(tensor->type), clattn_type_name(type));
    return status;
}

clattn_status clattn__contiguous_check(const char *name, const clattn_tensor *tensor, clattn__error *error) {
    const clattn_tensor want = clattn_tensor_make(NULL, tensor->type, tensor->rank, tensor->shape);
    char got_text[256], want_text[256];
    if (clattn__layout_equal(tensor, &want))
        return CLATTN_SUCCESS;
    clattn__layout_text(tensor, got_text, sizeof got_text);
    clattn__layout_text(&want, want_text, sizeof want_text);
    return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s is %s, but must be contiguous: %s", name, got_text, want_text);
}

clattn_status clattn__range_check(const char *name, int64_t value, int64_t minimum, int64_t maximum,
                                  clattn__error *error) {
    if (value >= minimum && value <= maximum)
        return CLATTN_SUCCESS;
    if (maximum == INT64_MAX)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is %" PRId64 ", but must be at least %" PRId64, name,
                            value, minimum);
    return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is %" PRId64 ", but must be in %" PRId64 "..%" PRId64, name,
                        value, minimum, maximum);
}
