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

/* cjar: q, k, v and o as forward had them, its memory packed; packed and key_rows are not read. */
void clattn__cjar_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *cjar,
                                  const clattn__cjar_gradients *gradients);

/* Links by key are counted in 32 bits. Errors: UNSUPPORTED. */
clattn_status clattn__cjar_backward_check(int64_t link_count, clattn__error *error);

/* Layouts of the gradients of a problem that trains. Errors: INVALID_SHAPE, INVALID_TYPE, UNSUPPORTED. */
clattn_status clattn__cjar_gradients_check(const clattn_cjar_problem *problem, clattn__error *error);

/* clattn__variant.core_trains, core_backward */
bool clattn__cjar_core_trains(const void *problem);
clattn_status clattn__cjar_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                         clattn__error *error);

#endif
