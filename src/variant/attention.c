/* Packed operands and shapes of the tile-multiplying families. */
#include "variant/attention.h"

#include <inttypes.h>

#include "core/layout.h"
#include "core/tile.h"

clattn_status clattn__qkvo_check(const clattn_tensor *q, const clattn_tensor *k, const clattn_tensor *v,
                                 const clattn_tensor *o, clattn__error *error) {
    const int64_t any = CLATTN__ANY_SIZE;
    const int64_t b = q->shape[0], h = q->shape[1], m = q->shape[2], d = q->shape[3];
    const int64_t hkv = k->shape[1], n = k->shape[2], dv = v->shape[3];
    const clattn__layout_rule rules[] = {{.name = "q", .rank = 4, .shape = {any, any, any, any}},
                                         {.name = "k", .rank = 4, .shape = {b, any, any, d}},
                                         {.name = "v", .rank = 4, .shape = {b, hkv, n, any}},
                                         {.name = "o", .rank = 4, .shape = {b, h, m, dv}, .output = true}};
    const clattn_tensor *const tensors[] = {q, k, v, o};
    for (int i = 0; i < 4; i++) {
        clattn_status status = clattn__layout_check(tensors[i], &rules[i], error);
        if (status != CLATTN_SUCCESS)
            return status;
        if (tensors[i]->type != q->type)
            return clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but q has %s", rules[i].name,
                                clattn_type_name(tensors[i]->type), clattn_type_name(q->type));
    }
    return CLATTN_SUCCESS;
}

clattn__view clattn__view_of(int slot, const clattn_tensor *tensor) {
    return (clattn__view){{slot, 0}, tensor->type, tensor->stride[0], tensor->stride[1], tensor->stride[2]};
}

clattn__packed clattn__packed_layout(const clattn__target *target, const clattn__sizes *s) {
    const int64_t width = clattn__panel_width(target);
    const int64_t key_head = clattn__ceil_div(s->keys, width) * width * s->head_size;
    const int64_t value_head = s->keys * clattn__padded_row(target, s->value_size);
    return (clattn__packed){.key_head_stride = key_head,
                            .key_batch_stride = key_head * s->kv_heads,
                            .value_head_stride = value_head,
                            .value_batch_stride = value_head * s->kv_heads};
}

clattn__packed clattn__packed_reserve(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s) {
    clattn__packed packed = clattn__packed_layout(target, s);
    packed.keys = clattn__plan_scratch(plan, packed.key_batch_stride * s->batch);
    packed.values = clattn__plan_scratch(plan, packed.value_batch_stride * s->batch);
    return packed;
}

static clattn__stage *fill(clattn__plan *plan, const clattn__target *target, const char *kernel,
                           const clattn__sizes *s, int64_t head_size, const clattn__view *x, clattn__operand to,
                           int64_t to_batch, int64_t to_head, float factor) {
    clattn__stage *stage = clattn__plan_kernel(plan, "pack", kernel);
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "D", head_size);
    clattn__stage_define(plan, stage, "TYPE_X", x->type);
    clattn__stage_operand(plan, stage, x->at);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, s->keys);
    clattn__stage_long(plan, stage, x->batch_stride);
    clattn__stage_long(plan, stage, x->head_stride);
    clattn__stage_long(plan, stage, x->row_stride);
    clattn__stage_long(plan, stage, to_batch);
    clattn__stage_long(plan, stage, to_head);
    clattn__stage_float(plan, stage, factor);
    clattn__stage_range(stage, clattn__ceil_div(s->keys, clattn__panel_width(target)), s->kv_heads, s->batch, 1);
    return stage;
}

void clattn__packed_keys_scaled(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                                const clattn__view *k, const clattn__packed *packed, float factor) {
    fill(plan, target, "pack_keys", s, s->head_size, k, packed->keys, packed->key_batch_stride, packed->key_head_stride,
         factor);
}

void clattn__packed_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                         const clattn__view *k, const clattn__packed *packed) {
    clattn__packed_keys_scaled(plan, target, s, k, packed, 1);
}

static void fill_values(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s, const clattn__view *v,
                        const clattn__packed *packed, int64_t row, int64_t panel) {
    clattn__stage *stage = fill(plan, target, "pack_values", s, s->value_size, v, packed->values,
                                packed->value_batch_stride, packed->value_head_stride, 1);
    clattn__stage_long(plan, stage, row);
    clattn__stage_long(plan, stage, panel);
}

void clattn__packed_values(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                           const clattn__view *v, const clattn__packed *packed) {
    fill_values(plan, target, s, v, packed, clattn__padded_row(target, s->value_size), clattn__padded_row(target, 1));
}

void clattn__packed_columns(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                            const clattn__view *v, const clattn__packed *packed) {
    const int64_t width = clattn__padded_row(target, 1);
    fill_values(plan, target, s, v, packed, width, s->keys * width);
}

/* Q, S, and m, l, c, visible (two ints) of each row. */
uint64_t clattn__attention_local_bytes(const clattn__target *target, const clattn__sizes *s) {
    const clattn__tile *tile = &target->attention;
    return tile->wg == 1 ? 0 : sizeof(float) * (uint64_t)(tile->bm * (s->head_size + tile->bn + 1 + 5));
}

void clattn__attention_shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target,
                             const clattn__sizes *s, clattn_type q_type, clattn_type o_type) {
    const clattn__tile *tile = &target->attention;
    clattn__tile_defines(plan, stage, tile);
    clattn__stage_define(plan, stage, "D", s->head_size);
    clattn__stage_define(plan, stage, "DV", s->value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", q_type);
    clattn__stage_define(plan, stage, "TYPE_O", o_type);
    stage->local_bytes = (size_t)clattn__attention_local_bytes(target, s);
    clattn__stage_range(stage, clattn__ceil_div(s->queries, tile->bm), s->heads, s->batch, tile->wg);
}

clattn_status clattn__head_sizes_check(const clattn__sizes *s, clattn__error *error) {
    const int64_t most = s->head_size > s->value_size ? s->head_size : s->value_size;
    if (most > CLATTN__MAX_HEAD_SIZE)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "head size is %" PRId64 ", but a tile's accumulators hold at most %d", most,
                            CLATTN__MAX_HEAD_SIZE);
    return CLATTN_SUCCESS;
}
