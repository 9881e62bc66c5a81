/* Stages of the cas family's gradients. Kernels: cl/cas_backward*.cl. */
#ifndef CLATTN_VARIANT_CAS_BACKWARD_H
#define CLATTN_VARIANT_CAS_BACKWARD_H

#include "variant/cas.h"

/* ---- rows of a sequence: cl/cas_backward_rows.cl ---- */

/* Where gradients of weights go, and how. */
typedef struct clattn__cas_grad {
    clattn_type type;
    bool accumulate;
} clattn__cas_grad;

/* Sums of y's rows over the tokens of each sequence: [2, B * H, size], of the real tokens, and of all where `padding`
 * may be read (else of the real ones again). */
clattn__operand clattn__cas_sum_rows(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                     const clattn__cas_tensor *y, bool padding);

/* to[b, h, c] = scale sum_r from[b, h, r] w[h, r, c]
 * batch, heads, rows, size  extents of b, h, r, c; from and to are at b*batch_stride + h*head_stride */
typedef struct clattn__cas_flipped {
    int64_t batch, heads, rows, size;
    clattn__operand w, from, to;
    int64_t from_batch_stride, from_head_stride, to_batch_stride, to_head_stride;
    float scale;
} clattn__cas_flipped;

void clattn__cas_apply_flipped(clattn__plan *plan, const clattn__target *target, const clattn__cas_flipped *f);

/* dw[r, c] = sum_b a[b, r] x[b, r / row_head, c], db[r] = sum_b s[b, r]; s and db may be SLOT_NONE */
typedef struct clattn__cas_outer {
    int64_t batch, out, in, row_head;
    clattn__operand a, x, s, dw, db;
    clattn__cas_grad grad;
} clattn__cas_outer;

void clattn__cas_add_outer(clattn__plan *plan, const clattn__target *target, const clattn__cas_outer *o);

/* ---- scores ---- */

enum { CLATTN__CAS_HALO = 8 }; /* zeros before and behind a row of slopes: the widest convolution's reach */

/* Gradients of scores: [B, H, HALO + n + HALO], unwritten. */
clattn__operand clattn__cas_slopes_make(clattn__plan *plan, const clattn__cas_shape *shape);

/* Softmax over all keys, backwards. scores [B, H, n], weights too, may be the same memory; rows [B, H, size]: gradients
 * of the means. */
void clattn__cas_weigh(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                       clattn__operand scores, clattn__operand weights, const clattn__cas_means *pool,
                       clattn__operand rows, const clattn__cas_tensor *v, clattn__operand slopes);

/* The gradient of v from weights, and from slopes that of keys, whose every channel gets factor * slope. */
void clattn__cas_values_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                 clattn__operand weights, clattn__operand rows, const clattn__cas_tensor *grad_v);
void clattn__cas_keys_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                               clattn__operand slopes, float factor, const clattn__cas_tensor *grad_k, int64_t size);

/* The causal scan, backwards, from the steps that it left: dv, and slopes. */
typedef struct clattn__cas_scanned {
    clattn__cas_tensor v, o, grad_o, grad_v;
    clattn__operand steps, slopes;
} clattn__cas_scanned;

void clattn__cas_scan_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                               const clattn__cas_scanned *s);

/* ---- the convolution that scores ---- */

/* base           [B, n, d] to which dx is added, or SLOT_NONE
 * weights, rows  where the means of x were taken: dx_j += weight[h, j] row_h; else SLOT_NONE
 * slopes         gradients of the scores
 * dx, dw         out; dw is conv_k's */
typedef struct clattn__cas_convolved {
    clattn__operand base, weights, rows, slopes, dx, dw;
    clattn_type base_type;
    clattn__cas_grad grad;
} clattn__cas_convolved;

void clattn__cas_convolve_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *filters,
                                   const clattn__cas_input *input, const clattn__cas_convolved *c);

/* ---- core ---- */

/* What a core's forward pass leaves: scores [B, H, n] and the means that they pool; causal, steps [B, H, n, 2]. */
typedef struct clattn__cas_core_saved {
    clattn__operand scores, steps;
    clattn__cas_means pool;
} clattn__cas_core_saved;

/* Reserved in SAVED where the problem trains, else in the workspace. */
clattn__cas_core_saved clattn__cas_save_core(clattn__plan *plan, const clattn_cas_problem *p);

clattn__cas_shape clattn__cas_shape_of(const clattn_cas_problem *p);
clattn__cas_tensor clattn__cas_tensor_of(int slot, const clattn_tensor *t);
float clattn__cas_scale_of(const clattn_cas_problem *p);

void clattn__cas_bind(const clattn_cas_problem *p, clattn__plan *plan);
clattn_status clattn__cas_gradients_check(const clattn_cas_problem *p, clattn__error *error);

/* ---- vit ---- */

/* What a convolution's or an operator's gradients are written to; SLOT_NONE where it has no such weight. */
typedef struct clattn__cas_taps_grad {
    clattn__operand taps, bias, norm, norm_bias, gate;
} clattn__cas_taps_grad;

/* norms          [2, 12, d]: q's and k's taps, bias less mean, 1 / deviation, and gamma / deviation
 * grad_y         [B, n, d] of y_type
 * grad_qkv       [B, n, 3 d], out
 * operators, channels, dwc, proj   gradients of weights, out */
typedef struct clattn__cas_image_grad {
    clattn__operand norms, grad_y, grad_qkv;
    clattn__cas_taps_grad operators[2], dwc, proj;
    clattn__operand channels[2];
    clattn__cas_grad grad;
} clattn__cas_image_grad;

void clattn__cas_mix_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *image,
                              const clattn__cas_image_grad *g);

#endif
