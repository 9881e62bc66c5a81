/* From the parts of a softmax to rows: joining, projecting, spreading. */
#include "variant/cas.h"

/* ---- parts ---- */

int64_t clattn__cas_span(const clattn__target *target, int64_t sequences, int64_t length, int64_t block) {
    const int64_t blocks = clattn__ceil_div(length, block);
    int64_t parts = clattn__ceil_div(8 * (int64_t)target->caps.compute_units, sequences);
    if (parts > CLATTN__CAS_MAX_PARTS)
        parts = CLATTN__CAS_MAX_PARTS;
    if (parts < 1)
        parts = 1;
    return clattn__ceil_div(blocks, parts) * block;
}

clattn__cas_parts clattn__cas_parts_make(clattn__plan *plan, int64_t rows, int64_t count, int64_t size) {
    const clattn__operand sums = clattn__plan_scratch(plan, rows * count * size);
    return (clattn__cas_parts){sums, clattn__plan_scratch(plan, rows * count * 2), count, size};
}

/* ---- stages ---- */

/* The defines that differ between the stages of cl/cas_row.cl. */
typedef struct form {
    int64_t size;
    bool lengths, bias, sigmoid;
    int rows;
    clattn_type type;
} form;

static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const char *kernel, const form *f) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_row", kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, f->size));
    clattn__stage_define(plan, stage, "D", f->size);
    clattn__stage_define(plan, stage, "HAS_LENGTHS", f->lengths);
    clattn__stage_define(plan, stage, "HAS_BIAS", f->bias);
    clattn__stage_define(plan, stage, "ACT", f->sigmoid);
    clattn__stage_define(plan, stage, "RB", f->rows);
    clattn__stage_define(plan, stage, "TYPE_Y", f->type);
    clattn__stage_define(plan, stage, "MAX_PARTS", CLATTN__CAS_MAX_PARTS);
    return stage;
}

static int64_t group_floats(const clattn__target *target, int64_t size) {
    return (int64_t)clattn__cas_group(target) * clattn__cas_vector(target, size);
}

clattn__operand clattn__cas_merge(clattn__plan *plan, const clattn__target *target, int64_t batch, int64_t heads,
                                  const clattn__cas_parts *parts) {
    const form f = {.size = parts->size, .rows = 1};
    const int group = clattn__cas_group(target);
    const clattn__operand means = clattn__plan_scratch(plan, batch * heads * parts->size);
    clattn__stage *stage = append(plan, target, "cas_merge", &f);
    clattn__stage_operand(plan, stage, parts->sums);
    clattn__stage_operand(plan, stage, parts->peaks);
    clattn__stage_operand(plan, stage, means);
    clattn__stage_int(plan, stage, (int32_t)parts->count);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * CLATTN__CAS_MAX_PARTS;
    const int64_t chunks = group == 1 ? 1 : clattn__ceil_div(parts->size, group_floats(target, parts->size));
    clattn__stage_range(stage, chunks, heads, batch, group);
    return means;
}

clattn__operand clattn__cas_apply_rows(clattn__plan *plan, const clattn__target *target, const clattn__cas_rows *r) {
    const form f = {.size = r->in,
                    .lengths = clattn__cas_given(r->lengths),
                    .bias = clattn__cas_given(r->bias),
                    .sigmoid = r->sigmoid,
                    .rows = 4};
    const int group = clattn__cas_group(target);
    const clattn__operand y = clattn__plan_scratch(plan, r->sections * r->batch * r->out);
    clattn__stage *stage = append(plan, target, "cas_rows", &f);
    clattn__stage_operand(plan, stage, r->w);
    clattn__stage_operand(plan, stage, r->bias);
    clattn__stage_operand(plan, stage, r->from);
    clattn__stage_operand(plan, stage, r->lengths);
    clattn__stage_operand(plan, stage, y);
    clattn__stage_long(plan, stage, r->batch);
    clattn__stage_long(plan, stage, r->out);
    clattn__stage_long(plan, stage, r->row_head);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * (size_t)group;
    clattn__stage_range(stage, clattn__ceil_div(r->out, f.rows), r->sections, 1, group);
    return y;
}

void clattn__cas_spread(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                        clattn__operand rows, clattn__operand bias, const clattn__cas_tensor *y) {
    const form f = {.size = shape->size,
                    .lengths = clattn__cas_given(shape->lengths),
                    .bias = clattn__cas_given(bias),
                    .rows = 32,
                    .type = y->type};
    clattn__stage *stage = append(plan, target, "cas_spread", &f);
    clattn__stage_operand(plan, stage, rows);
    clattn__stage_operand(plan, stage, bias);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, y->at);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_long(plan, stage, y->batch_stride);
    clattn__stage_long(plan, stage, y->head_stride);
    clattn__stage_long(plan, stage, y->row_stride);
    clattn__stage_range(stage, clattn__ceil_div(shape->length, f.rows), shape->heads, shape->batch,
                        clattn__cas_group(target));
}
