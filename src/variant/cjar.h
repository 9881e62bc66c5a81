/* The cjar core as stages of a plan; layers give operands of their own. */
#ifndef CLATTN_VARIANT_CJAR_H
#define CLATTN_VARIANT_CJAR_H

#include <clattn/cjar.h>

#include "variant/attention.h"

/* A validated core. Slot NONE for what is absent. left, right: -1 = unlimited; causal is in right too.
 * k, v  only for backward */
typedef struct clattn__cjar {
    clattn__sizes sizes;
    clattn__view q, k, v, o;
    clattn__packed packed;
    int64_t memory;
    clattn__operand memory_keys, memory_values; /* packed, head by head, the same for all sequences */
    clattn__operand key_rows;                   /* strides as packed.values; wanted when there are links */
    clattn__operand link_rows, link_keys, lengths;
    clattn__operand saved; /* [B,H,n] for backward: the log-sum-exp in units of log2 */
    int64_t link_count;
    float scale;
    int64_t left, right;
    bool causal;
    clattn_cjar_masked masked;
} clattn__cjar;

void clattn__cjar_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *cjar);

/* The arguments left, right and causal of a kernel. */
void clattn__cjar_window(clattn__plan *plan, clattn__stage *stage, const clattn__cjar *cjar);

/* Sizes of the memory rows as packed keys and values of one sequence. */
clattn__sizes clattn__cjar_memory_sizes(int64_t memory, int64_t heads, int64_t head_size);

/* A checked problem: bind its tensors; as a core, nothing packed. One that trains reserves what it saves. */
void clattn__cjar_bind(clattn__plan *plan, const clattn_cjar_problem *problem);
clattn__cjar clattn__cjar_canonical(const clattn_cjar_problem *problem, clattn__plan *plan);

/* A tensor [H, m, D] of a slot, the same for all sequences. */
clattn__view clattn__cjar_memory_view(int slot, const clattn_tensor *tensor);

/* clattn__variant.core */
clattn_status clattn__cjar_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                clattn__error *error);

#endif
