/* What the backward passes of softmax attention share on the host side: see cl/include/attention_backward.h. */
#ifndef CLATTN_VARIANT_ATTENTION_BACKWARD_H
#define CLATTN_VARIANT_ATTENTION_BACKWARD_H

#include "variant/attention.h"

#define CLATTN__LOG2E 1.44269504088896341f /* as in cl/include/port.h: the same products as in forward */

/* Gradients of a core: that of o comes in, the others go out, zero at padding. */
typedef struct clattn__core_gradients {
    clattn__view o, q, k, v;
} clattn__core_gradients;

/* The same as a caller's problem has them: what they belong to, and their tensors, in the order o, q, k, v. slot: of
 * o's; the others' follow it in this order. */
typedef struct clattn__gradient_tensors {
    int slot;
    const clattn_tensor *of[4], *tensor[4];
} clattn__gradient_tensors;

/* Each has the shape of what it belongs to, and q's type. Errors: INVALID_SHAPE, INVALID_TYPE. */
clattn_status clattn__gradient_tensors_check(const clattn__gradient_tensors *gradients, clattn__error *error);

/* Bind them to a plan. */
clattn__core_gradients clattn__gradient_tensors_bind(clattn__plan *plan, const clattn__gradient_tensors *gradients);

/* Append the stage that computes a query's terms. saved [B,H,M]: log-sum-exp in units of log2; lengths may be slot
 * NONE. */
clattn__operand clattn__terms_append(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                                     const clattn__view *o, const clattn__view *grad_o, clattn__operand saved,
                                     clattn__operand lengths);

/* One tensor [batch, heads, rows, width], packed in the workspace for streaming: as panels times a factor, as rows,
 * as panels of columns. */
typedef struct clattn__stream {
    const clattn__view *view;
    int64_t batch, heads, rows, width;
    float factor;
} clattn__stream;

clattn__operand clattn__stream_panels(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream);
clattn__operand clattn__stream_rows(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream);
clattn__operand clattn__stream_columns(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream);

/* Everything of one side that is streamed: panels of both tensors, rows of both (second_rows only when wanted). */
typedef struct clattn__streams {
    clattn__operand first_panels, second_panels, first_rows, second_rows;
} clattn__streams;

/* Queries and dO, the panels of queries times scale * log2(e); keys and values. */
clattn__streams clattn__stream_queries(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                                       const clattn__view *q, const clattn__view *grad_o, float scale);
clattn__streams clattn__stream_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                                    const clattn__view *k, const clattn__view *v, bool value_rows);

/* The tile of a backward kernel: the target's, with fewer rows where local memory is short. */
clattn__tile clattn__backward_tile(const clattn__target *target, const clattn__sizes *sizes);

/* Defines of attention_backward.h, local bytes, and the work range: a group for each block of owned rows, head,
 * sequence. */
void clattn__backward_shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target,
                            const clattn__sizes *sizes, clattn_type q_type, clattn_type grad_type, int64_t owned_rows,
                            int64_t heads);

/* A joint pass: one over the pairs of `heads` heads, each cut into parts of which a work-item owns one. wanted: parts
 * that a head should have, so that the last ones to finish leave little idle; shares: that many, but no more than it
 * has blocks, and one at least. reject: why it does not serve (in text; false: it does), against a plan that computes
 * pairs twice; a part takes part_floats of the workspace. */
int64_t clattn__joint_wanted(const clattn__target *target, int64_t heads);
int64_t clattn__joint_shares(const clattn__target *target, int64_t heads, int64_t blocks);
bool clattn__joint_reject(const clattn__target *target, int64_t heads, int64_t shares, int64_t part_floats,
                          const char *blocks_of, clattn__text *reason);

/* Append a view's three strides. */
void clattn__stage_strides(clattn__plan *plan, clattn__stage *stage, const clattn__view *view);

#endif
