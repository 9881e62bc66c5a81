/* Packed operands, terms and shapes of backward passes. */
#include "variant/attention_backward.h"

#include <inttypes.h>

#include "core/layout.h"
#include "core/tile.h"

static const char *const gradient_names[] = {"grad_o", "grad_q", "grad_k", "grad_v"};

clattn_status clattn__gradient_tensors_check(const clattn__gradient_tensors *g, clattn__error *error) {
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < 4 && status == CLATTN_SUCCESS; i++)
        status = clattn__gradient_check(gradient_names[i], g->tensor[i], g->of[i], g->of[1]->type, i > 0, error);
    return status;
}

clattn__core_gradients clattn__gradient_tensors_bind(clattn__plan *plan, const clattn__gradient_tensors *g) {
    for (int i = 0; i < 4; i++)
        clattn__plan_bind(plan, g->slot + i, gradient_names[i], g->tensor[i], false);
    return (clattn__core_gradients){clattn__view_of(g->slot, g->tensor[0]), clattn__view_of(g->slot + 1, g->tensor[1]),
                                    clattn__view_of(g->slot + 2, g->tensor[2]),
                                    clattn__view_of(g->slot + 3, g->tensor[3])};
}

void clattn__stage_strides(clattn__plan *plan, clattn__stage *stage, const clattn__view *view) {
    clattn__stage_long(plan, stage, view->batch_stride);
    clattn__stage_long(plan, stage, view->head_stride);
    clattn__stage_long(plan, stage, view->row_stride);
}

clattn__operand clattn__terms_append(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                                     const clattn__view *o, const clattn__view *grad_o, clattn__operand saved,
                                     clattn__operand lengths) {
    const int64_t width = clattn__panel_width(target), blocks = clattn__ceil_div(s->queries, width);
    const clattn__operand terms = clattn__plan_scratch(plan, s->batch * s->heads * 2 * blocks * width);
    clattn__stage *stage = clattn__plan_kernel(plan, "attention", "attention_terms");
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "DV", s->value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", o->type);
    const clattn__operand operands[] = {o->at, grad_o->at, saved, terms, lengths};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)s->queries);
    clattn__stage_strides(plan, stage, o);
    clattn__stage_strides(plan, stage, grad_o);
    clattn__stage_range(stage, blocks, s->heads, s->batch, 1);
    return terms;
}

/* As keys and values of a problem of their own. */
static clattn__sizes sizes_of(const clattn__stream *s) {
    return (clattn__sizes){s->batch, s->heads, s->heads, 0, s->rows, s->width, s->width};
}

clattn__operand clattn__stream_panels(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream) {
    const clattn__sizes sizes = sizes_of(stream);
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.keys = clattn__plan_scratch(plan, packed.key_batch_stride * stream->batch);
    clattn__packed_keys_scaled(plan, target, &sizes, stream->view, &packed, stream->factor);
    return packed.keys;
}

clattn__operand clattn__stream_rows(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream) {
    const clattn__sizes sizes = sizes_of(stream);
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.values = clattn__plan_scratch(plan, packed.value_batch_stride * stream->batch);
    clattn__packed_values(plan, target, &sizes, stream->view, &packed);
    return packed.values;
}

clattn__operand clattn__stream_columns(clattn__plan *plan, const clattn__target *target, const clattn__stream *stream) {
    const clattn__sizes sizes = sizes_of(stream);
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.values = clattn__plan_scratch(plan, packed.value_batch_stride * stream->batch);
    clattn__packed_columns(plan, target, &sizes, stream->view, &packed);
    return packed.values;
}

static clattn__streams both(clattn__plan *plan, const clattn__target *target, const clattn__stream *first,
                            const clattn__stream *second, bool second_rows) {
    clattn__streams streams = {.second_rows = clattn__none()};
    streams.first_panels = clattn__stream_panels(plan, target, first);
    streams.second_panels = clattn__stream_panels(plan, target, second);
    streams.first_rows = clattn__stream_rows(plan, target, first);
    if (second_rows)
        streams.second_rows = clattn__stream_rows(plan, target, second);
    return streams;
}

clattn__streams clattn__stream_queries(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                                       const clattn__view *q, const clattn__view *grad_o, float scale) {
    const clattn__stream first = {q, s->batch, s->heads, s->queries, s->head_size, scale * CLATTN__LOG2E};
    const clattn__stream second = {grad_o, s->batch, s->heads, s->queries, s->value_size, 1};
    return both(plan, target, &first, &second, true);
}

clattn__streams clattn__stream_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                                    const clattn__view *k, const clattn__view *v, bool value_rows) {
    const clattn__stream first = {k, s->batch, s->kv_heads, s->keys, s->head_size, 1};
    const clattn__stream second = {v, s->batch, s->kv_heads, s->keys, s->value_size, 1};
    return both(plan, target, &first, &second, value_rows);
}

/* Both owned operands, P and G, and L, delta and visible (two ints) of each row. */
static uint64_t local_bytes(const clattn__tile *tile, const clattn__sizes *s) {
    const int64_t row = s->head_size + s->value_size + 2 * ((int64_t)tile->bn + 1) + 4;
    return tile->wg == 1 ? 0 : sizeof(float) * (uint64_t)(tile->bm * row);
}

clattn__tile clattn__backward_tile(const clattn__target *target, const clattn__sizes *s) {
    clattn__tile tile = target->attention;
    while (local_bytes(&tile, s) > target->caps.local_bytes && tile.bm % (2 * tile.tm) == 0)
        tile.bm /= 2;
    return tile;
}

void clattn__backward_shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target,
                            const clattn__sizes *s, clattn_type q_type, clattn_type grad_type, int64_t owned_rows,
                            int64_t heads) {
    const clattn__tile tile = clattn__backward_tile(target, s);
    clattn__tile_defines(plan, stage, &tile);
    clattn__stage_define(plan, stage, "D", s->head_size);
    clattn__stage_define(plan, stage, "DV", s->value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", q_type);
    clattn__stage_define(plan, stage, "TYPE_O", grad_type);
    stage->local_bytes = (size_t)local_bytes(&tile, s);
    clattn__stage_range(stage, clattn__ceil_div(owned_rows, tile.bm), heads, s->batch, tile.wg);
}

/* ---- joint passes ---- */

/* TASKS  wanted for each compute unit
 * JOINT, SEPARATE  products of a pair of a joint plan and of one with two kernels
 * PARTS  bytes of parts at most, where heads have several: many compute units and long sequences would want gigabytes
 */
enum { TASKS = 4, JOINT = 5, SEPARATE = 7, PARTS = 512 << 20 };

static int64_t units_of(const clattn__target *target) {
    return target->caps.compute_units > 0 ? target->caps.compute_units : 1;
}

int64_t clattn__joint_wanted(const clattn__target *target, int64_t heads) {
    return heads > 0 ? clattn__ceil_div(TASKS * units_of(target), heads) : 1;
}

int64_t clattn__joint_shares(const clattn__target *target, int64_t heads, int64_t blocks) {
    const int64_t wanted = clattn__joint_wanted(target, heads), most = blocks > 0 ? blocks : 1;
    return wanted < most ? wanted : most;
}

bool clattn__joint_reject(const clattn__target *target, int64_t heads, int64_t shares, int64_t part_floats,
                          const char *blocks_of, clattn__text *reason) {
    const int64_t units = units_of(target), tasks = heads * shares;
    const int64_t bytes = (int64_t)sizeof(float) * tasks * part_floats;
    if (target->attention.wg > 1)
        clattn__text_add(reason, "work-groups of %d", target->attention.wg);
    else if (JOINT * clattn__ceil_div(tasks, units) * units > SEPARATE * tasks)
        clattn__text_add(reason, "%" PRId64 " blocks of %s for %" PRId64 " compute units", tasks, blocks_of, units);
    else if (shares > 1 && bytes > PARTS)
        clattn__text_add(reason, "%" PRId64 " bytes of parts", bytes);
    return reason->length > 0;
}
