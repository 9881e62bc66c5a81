/* What the files of aft's layer share. */
#ifndef CLATTN_LAYER_AFT_H
#define CLATTN_LAYER_AFT_H

#include "core/variant.h"
#include "gemm/gemm.h"
#include "layer/self.h"
#include "variant/aft.h"

/* Weights, in the order of the public header; the mode's own follow Wo. */
enum {
    CLATTN__AFT_WQ,
    CLATTN__AFT_BQ,
    CLATTN__AFT_WK,
    CLATTN__AFT_BK,
    CLATTN__AFT_WV,
    CLATTN__AFT_BV,
    CLATTN__AFT_WO,
    CLATTN__AFT_BO,
    CLATTN__AFT_EXTRA
};

/* Resident buffers: projections of x in one product; one that stands alone (conv's keys; the gate, where K and V can be
 * left out); the output projection; what stands beside the keys; the right factor transposed (FULL), the left one
 * and the right one transposed (LOCAL), conv.weight and conv.gamma (CONV), or Wk and its bias transposed (where K and V can be left out); and there Wk
 * and Wv with their biases as columns, as linear layers. */
enum {
    RESIDENT_IN = CLATTN__RESIDENT_QKV,
    RESIDENT_OUT = CLATTN__RESIDENT_OUT,
    RESIDENT_ALONE = CLATTN__RESIDENT_OWN,
    RESIDENT_BIAS,
    RESIDENT_FACTOR,
    RESIDENT_KEY,
    RESIDENT_VALUE,
    RESIDENTS
};

/* Which projections of x are made in one product; the one left out stands alone. */
typedef enum clattn__aft_split {
    CLATTN__AFT_TOGETHER,
    CLATTN__AFT_GATE_ALONE,
    CLATTN__AFT_KEY_ALONE
} clattn__aft_split;

clattn__aft_split clattn__aft_split_of(const clattn_aft_layer_desc *desc, const clattn__target *target);

/* The linear of RESIDENT_IN, and of RESIDENT_ALONE. */
clattn__linear clattn__aft_linear_in(const clattn_aft_layer_desc *desc, clattn__aft_split split);
clattn__linear clattn__aft_linear_alone(const clattn_aft_layer_desc *desc, clattn__aft_split split);

/* Gated modes, not causal, need neither K nor V: is that possible on this device, and does it pay for this shape? */
bool clattn__aft_may_skip(const clattn_aft_layer_desc *desc, const clattn__target *target);
bool clattn__aft_skips(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                       const clattn__target *target);

/* Wk or Wv with its bias as a last column. */
static inline clattn__linear clattn__aft_linear_augmented(const clattn_aft_layer_desc *desc) {
    return (clattn__linear){desc->model_size + 1, desc->model_size, 1, false};
}

/* How far LOCAL's packed band reaches. */
static inline int64_t clattn__aft_band(const clattn_aft_layer_desc *desc) {
    return clattn__aft_reach(desc->local, desc->max_length);
}

static inline bool clattn__aft_is_gated(int mode) {
    return mode == CLATTN_AFT_GATED || mode == CLATTN_AFT_GATED_MATRIX;
}

/* Columns of K: conv has one key a head. */
static inline int64_t clattn__aft_key_columns(const clattn_aft_layer_desc *desc) {
    return desc->mode == CLATTN_AFT_CONV ? desc->heads : desc->model_size;
}

/* The core of a checked description on a shape: q, k, v, y and traces have no place yet. */
clattn__aft clattn__aft_core_of(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape);

/* Where q (the gate), k, v, y and traces are saved, when the shape trains. */
void clattn__aft_save(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan,
                      clattn__aft *aft);

/* The gate alone, into q. */
void clattn__aft_project_gate(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                              const clattn__target *target, clattn__plan *plan, const clattn__aft *aft);

/* Both passes without K and V; forward up to y, which is where the core's is when placed. */
void clattn__aft_gram_forward(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                              const clattn__target *target, clattn__plan *plan, clattn__aft *aft);
void clattn__aft_gram_backward(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                               const clattn__target *target, clattn__plan *plan, clattn__aft *aft);

/* A projection of x, or its gradient's other side: rows of `columns` floats, contiguous. */
static inline clattn__aft_view clattn__aft_rows_view(clattn__operand at, const clattn_layer_shape *shape,
                                                     int64_t columns, int64_t head) {
    return (clattn__aft_view){at, shape->length * columns, columns, head};
}

/* Backward of a linear layer whose rows are contiguous: what all of aft's have in common. */
clattn__linear_grad clattn__aft_linear_grad(const clattn_layer_shape *shape, clattn__linear linear, int weights);

/* The output projection: dy, the gradient of y, and those of its weights. */
void clattn__aft_output_backward(const clattn_layer_shape *shape, const clattn__target *target, clattn__plan *plan,
                                 const clattn__aft *aft, clattn__operand dy);

/* clattn__variant.backward */
clattn_status clattn__aft_layer_backward(const void *desc, const clattn_layer_shape *shape,
                                         const clattn__target *target, clattn__plan *plan, clattn__error *error);

/* Bind a checked description's weights and plan their packing. */
void clattn__aft_load(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load);

#endif
