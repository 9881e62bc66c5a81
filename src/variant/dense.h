/* The dense core as stages of a plan; layers give operands of their own. */
#ifndef CLATTN_VARIANT_DENSE_H
#define CLATTN_VARIANT_DENSE_H

#include <clattn/dense.h>

#include "base/text.h"
#include "variant/attention.h"

/* A validated core. Slot NONE for what is absent. left, right: -1 = all keys on that side.
 * k, v    as the caller has them: what the split plan reads; a layer has none
 * packed  what the tile plan reads */
typedef struct clattn__dense {
    clattn__sizes sizes;
    clattn__view q, k, v, o;
    clattn__packed packed;
    clattn__operand bias, lse, key_lengths, query_lengths;
    clattn__operand saved; /* [B,H,M] for backward: the log-sum-exp in units of log2 */
    int64_t bias_stride[4], lse_stride[3];
    float scale;
    int64_t left, right;
    bool bottom_right;
} clattn__dense;

/* The tile plan's last stage; packed is filled by stages before it. */
void clattn__dense_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *dense);

/* The split plan (cl/dense_split.cl), for a few queries over many keys. reject: why it does not serve, in text; NULL:
 * it does. */
const char *clattn__dense_split_reject(const clattn__dense *dense, const clattn__target *target, char *text,
                                       size_t size);
void clattn__dense_split_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *dense);

/* A checked problem: bind its tensors; as a core. One that trains reserves what it saves. */
void clattn__dense_bind(clattn__plan *plan, const clattn_dense_problem *problem);
clattn__dense clattn__dense_canonical(const clattn_dense_problem *problem, clattn__plan *plan);

/* clattn__variant.core */
clattn_status clattn__dense_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                 clattn__error *error);

#endif
