/* Gradients of the cjar core as stages of a plan. */
#ifndef CLATTN_VARIANT_CJAR_BACKWARD_H
#define CLATTN_VARIANT_CJAR_BACKWARD_H

#include "variant/attention_backward.h"
#include "variant/cjar.h"

/* Gradients of a core with what only they need.
 * memory_key_rows, memory_value_panels  the other form of what the core holds packed
 * memory_k, memory_v  f32, f16 or bf16; one_memory: the sum of both goes to memory_k
 * accumulate          added to what the memory's gradients hold */
typedef struct clattn__cjar_gradients {
    clattn__core_gradients core;
    clattn__operand memory_key_rows, memory_value_panels;
    clattn__view memory_k, memory_v;
    bool one_memory, accumulate;
} clattn__cjar_gradients;

/* Parts of the memory's gradients, `step` floats apart: [heads, rows] of dK, yet to be multiplied by the scale; dV `second` floats
 * behind. */
typedef struct clattn__cjar_parts {
    clattn__operand at;
    int64_t count, step, head_stride, row_stride, second;
} clattn__cjar_parts;

/* cjar: q, k, v and o as forward had them, its memory packed; packed and key_rows are not read. */
void clattn__cjar_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *cjar,
                                  const clattn__cjar_gradients *gradients);

/* Gradients of q, k and v in one pass over the pairs (cl/cjar_backward_joint.cl), and the memory's parts. reject: why it does not
 * serve, in text; NULL: it does. */
const char *clattn__cjar_joint_reject(const clattn__cjar *cjar, const clattn__target *target, char *text, size_t size);
clattn__cjar_parts clattn__cjar_joint_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *cjar,
                                             const clattn__cjar_gradients *gradients, clattn__operand terms);

/* Links by key are counted in 32 bits. Errors: UNSUPPORTED. */
clattn_status clattn__cjar_backward_check(int64_t link_count, clattn__error *error);

/* Layouts of the gradients of a problem that trains. Errors: INVALID_SHAPE, INVALID_TYPE, UNSUPPORTED. */
clattn_status clattn__cjar_gradients_check(const clattn_cjar_problem *problem, clattn__error *error);

/* clattn__variant.core_trains, core_backward */
bool clattn__cjar_core_trains(const void *problem);
clattn_status clattn__cjar_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                         clattn__error *error);

#endif
