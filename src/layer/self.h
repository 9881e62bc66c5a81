/* Self-attention layers share their ends: Q, K and V projected from x into the forms that attention reads,
 * and one output projection. */
#ifndef CLATTN_LAYER_SELF_H
#define CLATTN_LAYER_SELF_H

#include "core/variant.h"
#include "gemm/gemm.h"
#include "variant/attention.h"

/* Resident buffers of such a layer. */
enum { CLATTN__RESIDENT_QKV, CLATTN__RESIDENT_OUT, CLATTN__RESIDENT_OWN };

/* model_size, heads: both at least 1, heads divides model_size, head size up to 256. */
clattn_status clattn__self_check(int64_t model_size, int64_t heads, clattn__error *error);

/* Bind a weight [rows, columns] (columns 0: a vector) to a slot of a load plan. */
void clattn__weight_bind(clattn__plan *plan, int slot, const char *name, int64_t rows, int64_t columns);

/* Pack a linear into resident buffer `index`, and record its size. */
void clattn__self_load(clattn__load *load, const clattn__target *target, int index, const clattn__linear *linear,
                       const clattn__operand *weights, const clattn__operand *biases);

/* Q, K, V from x: q as rows in the workspace, keys and values packed. When the shape trains, q, k, v as rows, o and the
 * log-sum-exp are saved for backward, and keys and values packed beside them. */
typedef struct clattn__self {
    clattn__sizes sizes;
    clattn__view q, o; /* o: where the core writes, [B, n, d] */
    clattn__view k, v; /* only when the shape trains */
    clattn__operand lse; /* [B, H, n]: log-sum-exp in the core's own units, written by it when the shape trains; else NONE */
    clattn__packed packed;
    clattn__operand key_rows; /* keys as padded rows too, strides as values; slot NONE when not wanted */
    clattn__operand lengths;  /* slot NONE when absent */
} clattn__self;

/* What forward saved, for backward: packed and key_rows are not set. */
clattn__self clattn__self_saved(clattn__plan *plan, int64_t model_size, int64_t heads, const clattn_layer_shape *shape);

clattn__self clattn__self_project(clattn__plan *plan, const clattn__target *target, int64_t model_size, int64_t heads,
                                  const clattn_layer_shape *shape, bool want_key_rows);

/* y = o W_out^T + b. */
void clattn__self_output(clattn__plan *plan, const clattn__target *target, int64_t model_size,
                         const clattn_layer_shape *shape, clattn__operand o);

#endif
