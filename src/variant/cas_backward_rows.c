/* Gradients of rows that a whole sequence shares, and of the matrices that they went through. */
#include "variant/cas_backward.h"

enum { BLOCK = 64 };

static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const char *kernel, int64_t size,
                             clattn_type x_type, clattn_type w_type) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_backward_rows", kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, size));
    clattn__stage_define(plan, stage, "D", size);
    clattn__stage_define(plan, stage, "BT", BLOCK);
    clattn__stage_define(plan, stage, "TYPE_X", x_type);
    clattn__stage_define(plan, stage, "TYPE_W", w_type);
    return stage;
}

/* Groups that give each work-item `vectors` of a row. */
static int64_t chunks(const clattn__target *target, int64_t size, int64_t vectors) {
    return clattn__ceil_div(size, vectors * clattn__cas_group(target) * clattn__cas_vector(target, size));
}

clattn__operand clattn__cas_sum_rows(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                     const clattn__cas_tensor *y, bool padding) {
    const int64_t rows = shape->batch * shape->heads;
    const int64_t span = clattn__cas_span(target, rows, shape->length, BLOCK);
    const int64_t parts = clattn__ceil_div(shape->length, span);
    const clattn__operand to = clattn__plan_scratch(plan, 2 * rows * shape->size);
    const clattn__operand sums = clattn__plan_scratch(plan, rows * parts * 2 * shape->size);
    clattn__stage *stage = append(plan, target, "cas_backward_sum", shape->size, y->type, CLATTN_F32);
    clattn__stage_operand(plan, stage, y->at);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_long(plan, stage, span);
    clattn__stage_long(plan, stage, y->batch_stride);
    clattn__stage_long(plan, stage, y->head_stride);
    clattn__stage_long(plan, stage, y->row_stride);
    clattn__stage_int(plan, stage, padding);
    clattn__stage_range(stage, parts, shape->heads, shape->batch, clattn__cas_group(target));

    stage = append(plan, target, "cas_backward_join", shape->size, y->type, CLATTN_F32);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, parts);
    clattn__stage_range(stage, chunks(target, shape->size, 1), shape->heads, shape->batch, clattn__cas_group(target));
    return to;
}

void clattn__cas_apply_flipped(clattn__plan *plan, const clattn__target *target, const clattn__cas_flipped *f) {
    clattn__stage *stage = append(plan, target, "cas_backward_apply", f->size, CLATTN_F32, CLATTN_F32);
    clattn__stage_operand(plan, stage, f->w);
    clattn__stage_operand(plan, stage, f->from);
    clattn__stage_operand(plan, stage, f->to);
    clattn__stage_long(plan, stage, f->rows);
    clattn__stage_long(plan, stage, f->from_batch_stride);
    clattn__stage_long(plan, stage, f->from_head_stride);
    clattn__stage_long(plan, stage, f->to_batch_stride);
    clattn__stage_long(plan, stage, f->to_head_stride);
    clattn__stage_float(plan, stage, f->scale);
    clattn__stage_range(stage, chunks(target, f->size, 4), f->heads, f->batch, clattn__cas_group(target));
}

void clattn__cas_add_outer(clattn__plan *plan, const clattn__target *target, const clattn__cas_outer *o) {
    enum { ROWS = 4 };
    clattn__stage *stage = append(plan, target, "cas_backward_outer", o->in, CLATTN_F32, o->grad.type);
    const clattn__operand operands[] = {o->a, o->x, o->s, o->dw, o->db};
    for (int i = 0; i < 5; i++)
        clattn__stage_operand(plan, stage, operands[i]);
    clattn__stage_long(plan, stage, o->batch);
    clattn__stage_long(plan, stage, o->out);
    clattn__stage_long(plan, stage, o->row_head);
    clattn__stage_int(plan, stage, ROWS);
    clattn__stage_int(plan, stage, o->grad.accumulate);
    clattn__stage_range(stage, clattn__ceil_div(o->out, ROWS), 1, 1, clattn__cas_group(target));
}
