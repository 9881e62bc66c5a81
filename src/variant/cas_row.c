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

static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const char *file, const char *kernel,
                             int64_t size) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, size));
    clattn__stage_define(plan, stage, "D", size);
    return stage;
}

static int64_t group_floats(const clattn__target *target, int64_t size) {
    return (int64_t)clattn__cas_group(target) * clattn__cas_vector(target, size);
}

void clattn__cas_merge(clattn__plan *plan, const clattn__target *target, int64_t batch, int64_t heads,
                       const clattn__cas_parts *parts, const clattn__cas_means *to) {
    const int group = clattn__cas_group(target);
    clattn__stage *stage = append(plan, target, "cas_row", "cas_merge", parts->size);
    clattn__stage_define(plan, stage, "MAX_PARTS", CLATTN__CAS_MAX_PARTS);
    clattn__stage_operand(plan, stage, parts->sums);
    clattn__stage_operand(plan, stage, parts->peaks);
    clattn__stage_operand(plan, stage, to->means);
    clattn__stage_operand(plan, stage, to->states);
    clattn__stage_int(plan, stage, (int32_t)parts->count);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * CLATTN__CAS_MAX_PARTS;
    const int64_t chunks = group == 1 ? 1 : clattn__ceil_div(parts->size, group_floats(target, parts->size));
    clattn__stage_range(stage, chunks, heads, batch, group);
}

void clattn__cas_apply_rows(clattn__plan *plan, const clattn__target *target, const clattn__cas_rows *r) {
    enum { ROWS = 4 };
    const int group = clattn__cas_group(target);
    clattn__stage *stage = append(plan, target, "cas_row", "cas_rows", r->in);
    clattn__stage_define(plan, stage, "MAX_PARTS", CLATTN__CAS_MAX_PARTS);
    clattn__stage_operand(plan, stage, r->w);
    clattn__stage_operand(plan, stage, r->bias);
    clattn__stage_operand(plan, stage, r->from);
    clattn__stage_operand(plan, stage, r->lengths);
    clattn__stage_operand(plan, stage, r->to);
    clattn__stage_long(plan, stage, r->batch);
    clattn__stage_long(plan, stage, r->out);
    clattn__stage_long(plan, stage, r->row_head);
    clattn__stage_int(plan, stage, ROWS);
    clattn__stage_int(plan, stage, r->sigmoid);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * (size_t)group;
    clattn__stage_range(stage, clattn__ceil_div(r->out, ROWS), r->sections, 1, group);
}

void clattn__cas_spread(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                        clattn__operand rows, clattn__operand bias, const clattn__cas_tensor *y) {
    enum { ROWS = 32 };
    clattn__stage *stage = append(plan, target, "cas_spread", "cas_spread", shape->size);
    clattn__stage_define(plan, stage, "TYPE_Y", y->type);
    clattn__stage_operand(plan, stage, rows);
    clattn__stage_operand(plan, stage, bias);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, y->at);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_long(plan, stage, ROWS);
    clattn__stage_long(plan, stage, y->batch_stride);
    clattn__stage_long(plan, stage, y->head_stride);
    clattn__stage_long(plan, stage, y->row_stride);
    clattn__stage_range(stage, clattn__ceil_div(shape->length, ROWS), shape->heads, shape->batch,
                        clattn__cas_group(target));
}
