/* Gradients of the dense core as stages of a plan. */
#ifndef CLATTN_VARIANT_DENSE_BACKWARD_H
#define CLATTN_VARIANT_DENSE_BACKWARD_H

#include "variant/attention_backward.h"
#include "variant/dense.h"

/* Append the gradients of q, k and v. dense: q, k, v and o as forward had them; packed is not read. */
void clattn__dense_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *dense,
                                   const clattn__core_gradients *gradients);

/* Gradients of q, k and v in one pass over the pairs (cl/dense_backward_joint.cl). reject: why it does not serve, in text; NULL:
 * it does. */
const char *clattn__dense_joint_reject(const clattn__dense *dense, const clattn__target *target, char *text, size_t size);
void clattn__dense_joint_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *dense,
                                const clattn__core_gradients *gradients, clattn__operand terms);

/* HAS_BIAS and HIDDEN_INSIDE; arguments: MASK_PARAMETERS of cl/include/dense_backward.h. */
void clattn__dense_bias_defines(clattn__plan *plan, clattn__stage *stage, const clattn__dense *dense);
void clattn__dense_mask(clattn__plan *plan, clattn__stage *stage, const clattn__dense *dense, clattn__operand terms);

/* Layouts of the gradients of a problem that trains. Errors: INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE. */
clattn_status clattn__dense_gradients_check(const clattn_dense_problem *problem, clattn__error *error);

/* clattn__variant.core_trains, core_backward */
bool clattn__dense_core_trains(const void *problem);
clattn_status clattn__dense_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                          clattn__error *error);

#endif
