/* What the families that multiply tiles share on the host side: packed keys and values, defines, local bytes. */
#ifndef CLATTN_VARIANT_ATTENTION_H
#define CLATTN_VARIANT_ATTENTION_H

#include "core/plan.h"
#include "core/target.h"

enum { CLATTN__MAX_HEAD_SIZE = 256 };

/* A tensor [batch, heads, rows, head size] as a kernel sees it: innermost stride 1. */
typedef struct clattn__view {
    clattn__operand at;
    clattn_type type;
    int64_t batch_stride, head_stride, row_stride;
} clattn__view;

/* Sizes of a core. kv_heads divides heads. */
typedef struct clattn__sizes {
    int64_t batch, heads, kv_heads, queries, keys, head_size, value_size;
} clattn__sizes;

/* Keys in panels and values in padded rows (cl/include/attention.h), in f32. */
typedef struct clattn__packed {
    clattn__operand keys, values;
    int64_t key_batch_stride, key_head_stride, value_batch_stride, value_head_stride;
} clattn__packed;

/* q [B,H,M,D], k [B,Hkv,N,D], v [B,Hkv,N,Dv] and o [B,H,M,Dv] fit together and have one type. Errors: INVALID_SHAPE,
 * INVALID_TYPE, naming the tensor and both values. */
clattn_status clattn__qkvo_check(const clattn_tensor *q, const clattn_tensor *k, const clattn_tensor *v,
                                 const clattn_tensor *o, clattn__error *error);

/* The view of a rank-4 tensor [B, H, rows, head size] of a slot. */
clattn__view clattn__view_of(int slot, const clattn_tensor *tensor);

/* Strides of packed keys and values, operands unset. */
clattn__packed clattn__packed_layout(const clattn__target *target, const clattn__sizes *sizes);

/* The same, in the workspace. */
clattn__packed clattn__packed_reserve(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes);

/* Append the stage that packs k, k times a factor, v as rows, or v as panels of columns: [columns of a micro-tile] after another, each
 * [keys, those columns]. */
void clattn__packed_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                         const clattn__view *k, const clattn__packed *packed);
void clattn__packed_keys_scaled(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                                const clattn__view *k, const clattn__packed *packed, float factor);
void clattn__packed_values(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                           const clattn__view *v, const clattn__packed *packed);
void clattn__packed_columns(clattn__plan *plan, const clattn__target *target, const clattn__sizes *sizes,
                            const clattn__view *v, const clattn__packed *packed);

/* Local memory of attention.h's steps. */
uint64_t clattn__attention_local_bytes(const clattn__target *target, const clattn__sizes *sizes);

/* Defines of attention.h, local bytes, and the work range: a group for each block of queries, head, sequence. */
void clattn__attention_shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target,
                             const clattn__sizes *sizes, clattn_type q_type, clattn_type o_type);

/* Refuse head sizes that no tile serves. Errors: UNSUPPORTED. */
clattn_status clattn__head_sizes_check(const clattn__sizes *sizes, clattn__error *error);

#endif
