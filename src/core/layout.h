/* Checks of tensor layouts that every problem shares: each failure names the tensor and both values. */
#ifndef CLATTN_CORE_LAYOUT_H
#define CLATTN_CORE_LAYOUT_H

#include <stdbool.h>

#include <clattn/tensor.h>

#include "base/error.h"

enum { CLATTN__ANY_SIZE = -1 };

/* A tensor of this rank and shape (ANY_SIZE accepts any extent ≥ 0), innermost stride 1, no negative stride. */
typedef struct clattn__layout_rule {
    const char *name;
    int32_t rank;
    int64_t shape[CLATTN_MAX_RANK];
    bool output;   /* no stride 0 along an extent above 1 */
    bool optional; /* may be absent */
    bool typed;    /* has this type; else f32, f16 or bf16 */
    clattn_type type;
} clattn__layout_rule;

clattn_status clattn__layout_check(const clattn_tensor *tensor, const clattn__layout_rule *rule, clattn__error *error);

/* A floating tensor with the shape of another. */
clattn_status clattn__like_check(const char *name, const clattn_tensor *tensor, const clattn_tensor *like, bool output,
                                 clattn__error *error);

/* A gradient has the shape of what it belongs to, and this type. Errors: INVALID_SHAPE, INVALID_TYPE. */
clattn_status clattn__gradient_check(const char *name, const clattn_tensor *tensor, const clattn_tensor *like,
                                     clattn_type type, bool output, clattn__error *error);

/* No gaps, in order. Errors: INVALID_SHAPE. */
clattn_status clattn__contiguous_check(const char *name, const clattn_tensor *tensor, clattn__error *error);

bool clattn__layout_absent(const clattn_tensor *tensor);

/* Elements from the first to one past the last that the layout reaches; 0 for an empty one. */
uint64_t clattn__layout_extent(const clattn_tensor *tensor);

bool clattn__layout_equal(const clattn_tensor *a, const clattn_tensor *b);

/* "f32 [2, 3] strides [3, 1]" */
void clattn__layout_text(const clattn_tensor *tensor, char *text, size_t size);

/* value in minimum..maximum, else INVALID_ARGUMENT naming it. */
clattn_status clattn__range_check(const char *name, int64_t value, int64_t minimum, int64_t maximum,
                                  clattn__error *error);

#endif
