/* The cjar core as stages of a plan; layers give operands of their own. */
#ifndef CLATTN_VARIANT_CJAR_H
#define CLATTN_VARIANT_CJAR_H

#include <clattn/cjar.h>

#include "variant/attention.h"

/* A validated core. Slot NONE for what is absent. left, right: -1 = unlimited; causal is in right too. */
typedef struct clattn__cjar {
    clattn__sizes sizes;
    clattn__view q, o;
    clattn__packed packed;
    int64_t memory;
    clattn__operand memory_keys, memory_values; /* packed, head by head, the same for all sequences */
    clattn__operand key_rows;                   /* strides as packed.values; wanted when there are links */
    clattn__operand link_rows, link_keys, lengths;
    int64_t link_count;
    float scale;
    int64_t left, right;
    bool causal;
    clattn_cjar_masked masked;
} clattn__cjar;

void clattn__cjar_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *cjar);

/* Sizes of the memory rows as packed keys and values of one sequence. */
clattn__sizes clattn__cjar_memory_sizes(int64_t memory, int64_t heads, int64_t head_size);

/* clattn__variant.core */
clattn_status clattn__cjar_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                clattn__error *error);

#endif
