/* Gradients of linear layers. */
#include "gemm/engine.h"

enum { ROWS = 64 }; /* of a work-item that reads dY or X once */

static bool kept(const clattn__target *target) { return target->engine == CLATTN_GEMM_CLBLAST; }

static clattn__stage *kernel(clattn__plan *plan, const clattn__target *target, const char *name, clattn_type x_type,
                             clattn_type y_type) {
    clattn__stage *stage = clattn__plan_kernel(plan, "gemm_backward", name);
    clattn__tile_defines(plan, stage, &target->gemm);
    clattn__stage_define(plan, stage, "KEPT", kept(target));
    clattn__stage_define(plan, stage, "ROWS", ROWS);
    clattn__stage_define(plan, stage, "TYPE_X", x_type);
    clattn__stage_define(plan, stage, "TYPE_Y", y_type);
    return stage;
}

static int64_t dy_row(const clattn__linear_grad *g) {
    return g->dy_row_stride > 0 ? g->dy_row_stride : g->linear.sections * g->linear.out;
}

/* ---- db, and dY^T ---- */

static void sum_section(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g, int section,
                        clattn__operand partial, int64_t blocks) {
    const int64_t out = g->linear.out;
    clattn__stage *stage = kernel(plan, target, "gemm_backward_sum", CLATTN_F32, g->grad_type);
    clattn__stage_operand(plan, stage, partial);
    clattn__stage_operand(plan, stage, g->db[section]);
    clattn__stage_long(plan, stage, blocks);
    clattn__stage_long(plan, stage, g->linear.sections * out);
    clattn__stage_long(plan, stage, section * out);
    clattn__stage_long(plan, stage, out);
    clattn__stage_int(plan, stage, g->accumulate);
    clattn__stage_range(stage, clattn__ceil_div(out, target->gemm.vw), 1, 1, 1);
}

static bool any_bias(const clattn__linear_grad *g) {
    return clattn__given(g->db[0]) || clattn__given(g->db[1]) || clattn__given(g->db[2]);
}

/* dY as [sections * out, rows], and db from what the same pass sums. */
static clattn__operand transpose(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g) {
    const int64_t rows = g->batch * g->rows, columns = g->linear.sections * g->linear.out;
    const int64_t blocks = clattn__ceil_div(rows, ROWS);
    const clattn__operand to = clattn__plan_scratch(plan, rows * columns);
    const uint64_t mark = plan->workspace_used;
    const clattn__operand partial = any_bias(g) ? clattn__plan_scratch(plan, blocks * columns) : clattn__none();
    clattn__stage *stage = kernel(plan, target, "gemm_backward_transpose", g->dy_type, CLATTN_F32);
    clattn__stage_operand(plan, stage, g->dy);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_operand(plan, stage, partial);
    clattn__stage_long(plan, stage, rows);
    clattn__stage_long(plan, stage, columns);
    clattn__stage_long(plan, stage, dy_row(g));
    clattn__stage_range(stage, clattn__ceil_div(columns, clattn__panel_width(target)), blocks, 1, 1);
    for (int s = 0; s < g->linear.sections; s++)
        if (clattn__given(g->db[s]))
            sum_section(plan, target, g, s, partial, blocks);
    clattn__plan_release(plan, mark);
    return to;
}

/* ---- dx = dY W ---- */

static clattn__operand flip(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g,
                            const clattn__linear *flipped) {
    const clattn__operand to =
        clattn__plan_scratch(plan, (int64_t)(clattn__linear_bytes(flipped, target) / sizeof(float)));
    clattn__stage *stage = kernel(plan, target, "gemm_backward_flip", CLATTN_F32, CLATTN_F32);
    clattn__stage_operand(plan, stage, g->resident);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, g->linear.in);
    clattn__stage_long(plan, stage, g->linear.out);
    clattn__stage_long(plan, stage, g->linear.sections);
    clattn__stage_range(stage, clattn__ceil_div(g->linear.in, clattn__panel_width(target)), 1, 1, 1);
    return to;
}

void clattn__linear_backward_input(clattn__plan *plan, const clattn__target *target,
                                   const clattn__linear_grad *g) {
    const uint64_t mark = plan->workspace_used;
    const int64_t rows = g->batch * g->rows, depth = g->linear.sections * g->linear.out;
    clattn__linear_call call = {.linear = {.in = depth, .out = g->linear.in, .sections = 1},
                                .batch = 1,
                                .rows = rows,
                                .x = g->dy,
                                .x_type = g->dy_type,
                                .x_batch_stride = rows * dy_row(g),
                                .x_row_stride = dy_row(g)};
    call.resident = flip(plan, target, g, &call.linear);
    call.out[0] = clattn__out_rows(g->dx, rows, g->linear.in);
    call.out[0].type = g->dx_type;
    call.out[0].add = g->add_dx;
    clattn__linear_apply(plan, target, &call);
    clattn__plan_release(plan, mark);
}

/* ---- dW = dY^T X ---- */

static clattn__operand pack_rows(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g) {
    const int64_t width = clattn__panel_width(target), panels = clattn__ceil_div(g->linear.in, width);
    const clattn__operand to = clattn__plan_scratch(plan, panels * width * (g->batch * g->rows + 1));
    clattn__stage *stage = kernel(plan, target, "gemm_backward_rows", g->x_type, CLATTN_F32);
    clattn__stage_operand(plan, stage, g->x);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_operand(plan, stage, g->lengths);
    clattn__stage_long(plan, stage, g->batch);
    clattn__stage_long(plan, stage, g->rows);
    clattn__stage_long(plan, stage, g->linear.in);
    clattn__stage_long(plan, stage, g->x_batch_stride);
    clattn__stage_long(plan, stage, g->x_row_stride);
    clattn__stage_range(stage, panels, clattn__ceil_div(g->rows, ROWS), g->batch, 1);
    return to;
}

static void weight_gradient(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g, int section,
                            clattn__operand transposed, clattn__operand x_rows) {
    const int64_t out = g->linear.out, rows = g->batch * g->rows;
    clattn__linear_call call = {.linear = {.in = rows, .out = g->linear.in, .sections = 1},
                                .batch = 1,
                                .rows = out,
                                .x = transposed,
                                .x_row_stride = rows,
                                .resident = x_rows};
    call.x.offset += section * out * rows;
    call.out[0] = clattn__out_rows(g->dw[section], out, g->linear.in);
    call.out[0].type = g->grad_type;
    call.out[0].add = g->accumulate;
    clattn__linear_apply(plan, target, &call);
}

void clattn__linear_backward(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *g) {
    const uint64_t mark = plan->workspace_used;
    if (clattn__given(g->dx))
        clattn__linear_backward_input(plan, target, g);
    const clattn__operand transposed = transpose(plan, target, g), x_rows = pack_rows(plan, target, g);
    for (int s = 0; s < g->linear.sections; s++)
        weight_gradient(plan, target, g, s, transposed, x_rows);
    clattn__plan_release(plan, mark);
}
