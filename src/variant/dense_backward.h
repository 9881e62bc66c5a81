/* Gradients of the dense core as stages of a plan. */
#ifndef CLATTN_VARIANT_DENSE_BACKWARD_H
#define CLATTN_VARIANT_DENSE_BACKWARD_H

#include "variant/attention_backward.h"
#include "variant/dense.h"

/* Append the gradients of q, k and v. dense: q, k, v and o as forward had them; packed is not read. */
void clattn__dense_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *dense,
                                   const clattn__core_gradients *gradients);

#endif
