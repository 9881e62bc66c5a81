/* Stages of the cas family, appended to a plan by the layer and by the core. Kernels: cl/cas*.cl. */
#ifndef CLATTN_VARIANT_CAS_H
#define CLATTN_VARIANT_CAS_H

#include <clattn/cas.h>

#include "core/plan.h"
#include "core/target.h"
#include "core/variant.h"

/* ---- the filters that give scores from x: one for each head, see cl/include/cas_score.h ---- */

/* What a layer has, and the shape that its kernels take; see the files of the kernels for the letters. */
typedef struct clattn__cas_filters {
    int64_t model_size, heads;
    int kernel;
    bool causal;
    int wg, vw, tm, tnv, bt, ah, anv;
    int64_t group_heads, groups, panels; /* HG, and how many groups of heads and panels there are */
} clattn__cas_filters;

clattn__cas_filters clattn__cas_filters_make(const clattn__target *target, const clattn_cas_layer_desc *desc);
uint64_t clattn__cas_filters_bytes(const clattn__cas_filters *filters);

/* Fold conv_k's weight [d, d, kernel] into filters. */
void clattn__cas_fold(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *filters,
                      clattn__operand weight, clattn__operand resident);

/* ---- loading ---- */

void clattn__cas_copy(clattn__plan *plan, const clattn__target *target, clattn__operand from, clattn__operand to,
                      int64_t count);

/* ---- additive, on x ---- */

/* lengths.slot is CLATTN__SLOT_NONE where there are none. */
typedef struct clattn__cas_input {
    int64_t batch, length;
    clattn__operand x, lengths, filters;
    clattn_type type;
} clattn__cas_input;

/* Where means of a softmax go. means [B, H, size], zeros for a sequence without tokens; states [B, H, 2] = (largest
 * score, sum of weights), or SLOT_NONE. */
typedef struct clattn__cas_means {
    clattn__operand means, states;
} clattn__cas_means;

/* sum_j p_j x_j of each head. */
void clattn__cas_pool(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *filters,
                      const clattn__cas_input *input, const clattn__cas_means *to);

/* Scores [B, H, n]. */
void clattn__cas_scores(clattn__plan *plan, const clattn__cas_filters *filters, const clattn__cas_input *input,
                        clattn__operand scores);

/* ---- parts: softmax sums over some tokens of a sequence ---- */

/* rows = B * H. sums [rows, parts, size], peaks [rows, parts, 2] = (largest score, sum of weights). */
typedef struct clattn__cas_parts {
    clattn__operand sums, peaks;
    int64_t count, size;
} clattn__cas_parts;

enum { CLATTN__CAS_MAX_PARTS = 256 };

/* Tokens of a part, in whole blocks: some parts for each compute unit, and no more than MAX_PARTS. */
int64_t clattn__cas_span(const clattn__target *target, int64_t sequences, int64_t length, int64_t block);

clattn__cas_parts clattn__cas_parts_make(clattn__plan *plan, int64_t rows, int64_t count, int64_t size);

/* Join parts by log-sum-exp. */
void clattn__cas_merge(clattn__plan *plan, const clattn__target *target, int64_t batch, int64_t heads,
                       const clattn__cas_parts *parts, const clattn__cas_means *to);

/* ---- rows ---- */

/* y[s, b, r] = act(sum_c w[s, r, c] in[s, b, r / row_head, c] + bias[r]); empty sequences give 0 where lengths are.
 * sections, batch  s and b      out, in  extents of r and c      sigmoid  else the identity
 * w [sections, out, in], bias [out] or SLOT_NONE, from [sections, batch, out / row_head, in], to [sections, batch, out]
 */
typedef struct clattn__cas_rows {
    int64_t sections, batch, out, in, row_head;
    bool sigmoid;
    clattn__operand w, bias, from, lengths, to;
} clattn__cas_rows;

void clattn__cas_apply_rows(clattn__plan *plan, const clattn__target *target, const clattn__cas_rows *rows);

/* Rows of a sequence by head: element (b, h, i, c) at b*batch_stride + h*head_stride + i*row_stride + c. */
typedef struct clattn__cas_tensor {
    clattn__operand at;
    clattn_type type;
    int64_t batch_stride, head_stride, row_stride;
} clattn__cas_tensor;

/* What all rows of the core share. */
typedef struct clattn__cas_shape {
    int64_t batch, heads, length, size;
    clattn__operand lengths;
} clattn__cas_shape;

/* Every token's row of y is rows [B, H, size], at padding bias [size] (SLOT_NONE: zeros). */
void clattn__cas_spread(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                        clattn__operand rows, clattn__operand bias, const clattn__cas_tensor *y);

/* o_i = sum_{j <= i} softmax_j(scores) v_j; scores [B, H, n]. o may be v. steps [B, H, n, 2], unless SLOT_NONE, gets
 * what makes o_i = step[0] v_i + step[1] o_{i-1}. */
void clattn__cas_scan(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                      clattn__operand scores, const clattn__cas_tensor *v, const clattn__cas_tensor *o,
                      clattn__operand steps);

/* ---- vit ---- */

/* A depthwise 3x3 convolution as cl/cas_vit.cl reads it: [9, d] taps and [d] bias, at `to`. norm: gamma, beta, mean,
 * variance of the batch norm behind it, or NULL. */
void clattn__cas_taps(clattn__plan *plan, const clattn__target *target, int64_t model_size, clattn__operand weight,
                      clattn__operand bias, const clattn__operand norm[4], clattn__operand to);

/* What gradients of a convolution with a batch norm need: [9, d] taps as they are, and [d] each of bias less mean,
 * 1 / deviation, and gamma / deviation. */
void clattn__cas_norm(clattn__plan *plan, const clattn__target *target, int64_t model_size, clattn__operand weight,
                      clattn__operand bias, const clattn__operand norm[4], clattn__operand to);

/* Rows of d floats: a convolution, an operator, what a norm's gradients need. */
enum { CLATTN__CAS_TAP_ROWS = 10, CLATTN__CAS_GATE_ROWS = 11, CLATTN__CAS_NORM_ROWS = 12 };

/* qkv        [3, B, n, d]
 * gates      [2, B, n]: q's and k's spatial gates, out
 * means, channel_gates  [2, B, d]: what their channel gates are made from, and the gates, out
 * mixed      [B, n, d]: the product with v, out; may be v's plane
 * operators  [2, 11, d]: q's and k's taps, bias and gate
 * channels   [2, d, d]: weights of their channel gates
 * dwc, proj  [10, d] */
typedef struct clattn__cas_image {
    int64_t batch, height, width, model_size;
    clattn__operand qkv, gates, means, channel_gates, mixed;
    clattn__operand operators, channels, dwc, proj, y;
    clattn_type y_type;
} clattn__cas_image;

/* Pixels of a strip, of one row of an image; strips of an image. */
static inline int clattn__cas_strip_pixels(const clattn__target *target) { return target->gemm.wg == 1 ? 32 : 8; }

static inline int64_t clattn__cas_strips(const clattn__target *target, const clattn__cas_image *m) {
    return m->height * clattn__ceil_div(m->width, clattn__cas_strip_pixels(target));
}

void clattn__cas_mix(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *image);

/* ---- core ---- */

clattn_status clattn__cas_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                               clattn__error *error);
bool clattn__cas_core_trains(const void *problem);
clattn_status clattn__cas_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                        clattn__error *error);

/* ---- shared by the files of this family ---- */

/* Work-items of a group: 1 on a CPU. */
static inline int clattn__cas_group(const clattn__target *target) { return target->gemm.wg == 1 ? 1 : 64; }

/* Floats of a vector: the device's, or the widest that divides size, so that rows have no tails. */
static inline int clattn__cas_vector(const clattn__target *target, int64_t size) {
    int vw = target->gemm.vw;
    while (size % vw)
        vw = vw > 4 ? vw / 2 : 1;
    return vw;
}

/* A stage of cl/cas_load.cl, which reads weights. */
static inline clattn__stage *clattn__cas_loading(clattn__plan *plan, const clattn__target *target, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_load", kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", 1);
    clattn__stage_define(plan, stage, "TYPE_W", target->weight_type);
    return stage;
}

#endif
