/* What the files of cas's layer share. */
#ifndef CLATTN_LAYER_CAS_H
#define CLATTN_LAYER_CAS_H

#include "core/variant.h"
#include "gemm/gemm.h"
#include "variant/cas.h"

/* ---- weights, in the order of the load plan ---- */

enum { CONV_Q, CONV_Q_BIAS, CONV_K, CONV_K_BIAS, VALUE, VALUE_BIAS, PROJ, PROJ_BIAS, ADDITIVE_WEIGHTS };

/* An operator's weights follow one another. */
enum { TAPS, TAPS_BIAS, NORM, NORM_BIAS, NORM_MEAN, NORM_VARIANCE, GATE, CHANNELS, OPERATOR_WEIGHTS };

enum {
    QKV,
    OPERATOR_Q,
    OPERATOR_K = OPERATOR_Q + OPERATOR_WEIGHTS,
    DWC = OPERATOR_K + OPERATOR_WEIGHTS,
    DWC_BIAS,
    LAST,
    LAST_BIAS,
    QKV_BIAS, /* where there is one */
    VIT_WEIGHTS
};

/* ---- resident buffers ---- */

enum { KEEP_FILTERS, KEEP_VALUE, KEEP_PROJ, ADDITIVE_BUFFERS };

enum { KEEP_QKV, KEEP_OPERATORS, KEEP_CHANNELS, KEEP_DWC, KEEP_LAST, KEEP_NORMS, VIT_BUFFERS };

static inline clattn__operand clattn__cas_resident(int buffer, int64_t offset) {
    return (clattn__operand){CLATTN__SLOT_RESIDENT + buffer, offset};
}

/* Bind a checked description's weights and plan their packing. */
void clattn__cas_load(const clattn_cas_layer_desc *desc, const clattn__target *target, clattn__load *load);

/* ---- shared by forward and backward ---- */

/* The linear of KEEP_VALUE and KEEP_PROJ. */
static inline clattn__linear clattn__cas_square(const clattn_cas_layer_desc *d) {
    return (clattn__linear){.in = d->model_size, .out = d->model_size, .sections = 1, .bias = true};
}

static inline clattn__linear clattn__cas_qkv(const clattn_cas_layer_desc *d) {
    return (clattn__linear){.in = d->model_size, .out = d->model_size, .sections = 3, .bias = d->qkv_bias};
}

/* x with its lengths and filters. */
clattn__cas_input clattn__cas_input_of(const clattn_layer_shape *shape);

/* What backward needs of forward: SAVED memory when training, else workspace. */

/* pool   means of x [B, H, d] and, when training, their states
 * value  [B, d]: the values of the means */
typedef struct clattn__cas_plain_saved {
    clattn__cas_means pool;
    clattn__operand value;
} clattn__cas_plain_saved;

clattn__cas_plain_saved clattn__cas_save_plain(clattn__plan *plan, const clattn_cas_layer_desc *d,
                                               const clattn_layer_shape *shape);

/* values, outputs [B, n, d], the same memory unless training; steps [B, H, n, 2], only when training */
typedef struct clattn__cas_causal_saved {
    clattn__operand values, outputs, steps;
} clattn__cas_causal_saved;

clattn__cas_causal_saved clattn__cas_save_causal(clattn__plan *plan, const clattn_cas_layer_desc *d,
                                                 const clattn_layer_shape *shape);

/* An image with its weights, and with memory for what forward finds out; mixed is v's plane unless training. */
clattn__cas_image clattn__cas_save_vit(clattn__plan *plan, const clattn_cas_layer_desc *d,
                                       const clattn_layer_shape *shape);

/* A head's rows, side by side in [B, n, d]. */
static inline clattn__cas_tensor clattn__cas_heads(const clattn_cas_layer_desc *d, const clattn_layer_shape *shape,
                                                   clattn__operand at) {
    return (clattn__cas_tensor){at, CLATTN_F32, shape->length * d->model_size, d->model_size / d->heads, d->model_size};
}

/* ---- backward ---- */

void clattn__cas_backward_additive(const clattn_cas_layer_desc *d, const clattn_layer_shape *shape,
                                   const clattn__target *target, clattn__plan *plan);
void clattn__cas_backward_vit(const clattn_cas_layer_desc *d, const clattn_layer_shape *shape,
                              const clattn__target *target, clattn__plan *plan);

#endif
