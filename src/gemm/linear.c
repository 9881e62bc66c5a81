/* Linear layers by the tile kernel, and what both engines share. */
#include "gemm/engine.h"

#include <string.h>

static int64_t padded_out(const clattn__linear *linear, const clattn__target *target) {
    const int64_t width = clattn__panel_width(target);
    return clattn__ceil_div(linear->out, width) * width;
}

/* Floats of the weights in the engine's own form; biases follow. */
static int64_t weight_floats(const clattn__linear *linear, const clattn__target *target) {
    const int64_t rows = target->engine == CLATTN_GEMM_CLBLAST ? linear->out : padded_out(linear, target);
    return linear->sections * rows * linear->in;
}

uint64_t clattn__linear_bytes(const clattn__linear *linear, const clattn__target *target) {
    return sizeof(float) * (uint64_t)(weight_floats(linear, target) + linear->sections * padded_out(linear, target));
}

clattn__linear_out clattn__out_rows(clattn__operand to, int64_t rows, int64_t out) {
    return (clattn__linear_out){.to = to, .head_size = out, .batch_stride = rows * out, .row_stride = out};
}

clattn__operand clattn__linear_bias(const clattn__linear *linear, const clattn__target *target,
                                    clattn__operand resident) {
    resident.offset += weight_floats(linear, target);
    return resident;
}

void clattn__linear_defines(clattn__plan *plan, clattn__stage *stage, const clattn__tile *tile,
                            const clattn__linear_call *call) {
    clattn__tile_defines(plan, stage, tile);
    clattn__stage_define(plan, stage, "KB", tile->kb);
    clattn__stage_define(plan, stage, "TYPE_X", call->x_type);
    clattn__stage_define(plan, stage, "TYPE_Y", call->out[0].type);
}

void clattn__linear_outputs(clattn__plan *plan, clattn__stage *stage, const clattn__linear_call *call) {
    for (int s = 0; s < CLATTN__MAX_SECTIONS; s++) {
        const clattn__linear_out *out = &call->out[s < call->linear.sections ? s : 0];
        clattn__stage_operand(plan, stage, out->to);
        clattn__stage_int(plan, stage, out->form);
        clattn__stage_int(plan, stage, out->activation);
        clattn__stage_int(plan, stage, out->add);
        clattn__stage_long(plan, stage, out->head_size);
        clattn__stage_long(plan, stage, out->batch_stride);
        clattn__stage_long(plan, stage, out->head_stride);
        clattn__stage_long(plan, stage, out->row_stride);
    }
}

void clattn__linear_load(clattn__plan *plan, const clattn__target *target, const clattn__linear *linear,
                         const clattn__operand *weights, const clattn__operand *biases, clattn__operand resident) {
    const bool clblast = target->engine == CLATTN_GEMM_CLBLAST;
    const clattn__linear_call any = {.linear = *linear, .x_type = target->weight_type};
    for (int s = 0; s < linear->sections; s++) {
        clattn__stage *stage = clattn__plan_kernel(plan, "gemm", clblast ? "gemm_keep" : "gemm_pack");
        clattn__linear_defines(plan, stage, &target->gemm, &any);
        clattn__stage_operand(plan, stage, weights[s]);
        clattn__stage_operand(plan, stage, linear->bias ? biases[s] : clattn__none());
        clattn__stage_operand(plan, stage, resident);
        clattn__stage_long(plan, stage, linear->in);
        clattn__stage_long(plan, stage, linear->out);
        clattn__stage_long(plan, stage, s);
        clattn__stage_long(plan, stage, linear->sections);
        clattn__stage_range(stage, padded_out(linear, target) / clattn__panel_width(target), 1, 1, 1);
    }
}

/* Columns of a work-group: as many as the shape has, split evenly, or fewer where that leaves less than four
 * work-groups for each compute unit of a CPU, so that the last ones to finish leave little idle. An argument, not a
 * define: it depends on rows. A GPU's micro-tiles must fill its work-group. */
static int64_t columns_each(const clattn__target *target, const clattn__linear_call *call, int64_t columns) {
    const clattn__tile *tile = &target->gemm;
    const int64_t panels = clattn__ceil_div(columns, tile->pw);
    const int64_t row_blocks = call->batch * clattn__ceil_div(call->rows, tile->bm);
    int64_t blocks = clattn__ceil_div(columns, tile->bn);
    if (tile->wg > 1 || blocks == 0)
        return tile->bn;
    while (blocks < panels && row_blocks * blocks < 4 * (int64_t)target->caps.compute_units)
        blocks++;
    return clattn__ceil_div(panels, blocks) * tile->pw;
}

static void apply_tile(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call) {
    const clattn__tile *tile = &target->gemm;
    const int64_t columns = call->linear.sections * padded_out(&call->linear, target);
    const int64_t each = columns_each(target, call, columns);
    clattn__stage *stage = clattn__plan_kernel(plan, "gemm", "gemm_linear");
    clattn__linear_defines(plan, stage, tile, call);
    clattn__stage_operand(plan, stage, call->x);
    clattn__stage_operand(plan, stage, call->resident);
    clattn__stage_long(plan, stage, call->rows);
    clattn__stage_long(plan, stage, call->linear.in);
    clattn__stage_long(plan, stage, call->linear.out);
    clattn__stage_long(plan, stage, call->linear.sections);
    clattn__stage_int(plan, stage, (int32_t)each);
    clattn__stage_long(plan, stage, call->x_batch_stride);
    clattn__stage_long(plan, stage, call->x_row_stride);
    clattn__stage_long(plan, stage, call->resident_batch_stride);
    clattn__linear_outputs(plan, stage, call);
    stage->local_bytes = tile->wg > 1 ? sizeof(float) * (size_t)(tile->bm * tile->kb) : 0;
    clattn__stage_range(stage, clattn__ceil_div(call->rows, tile->bm), clattn__ceil_div(columns, each), call->batch,
                        tile->wg);
}

/* Several sequences as one: when no side cares where one ends. */
static clattn__linear_call flatten(const clattn__linear_call *call) {
    clattn__linear_call flat = *call;
    bool whole = call->batch == 1 ||
                 (call->x_batch_stride == call->rows * call->x_row_stride && call->resident_batch_stride == 0);
    for (int s = 0; s < call->linear.sections; s++)
        whole = whole && call->out[s].form == CLATTN__ROWS &&
                call->out[s].batch_stride == call->rows * call->out[s].row_stride;
    if (whole) {
        flat.rows *= flat.batch;
        flat.batch = 1;
    }
    return flat;
}

void clattn__linear_apply(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call) {
    const clattn__linear_call flat = flatten(call);
    if (target->engine == CLATTN_GEMM_CLBLAST)
        clattn__linear_apply_clblast(plan, target, &flat);
    else
        apply_tile(plan, target, &flat);
}
