/* Additive attention over given scores, backwards. */
#include "variant/cas_backward.h"

enum { BLOCK = 64 };

clattn__operand clattn__cas_slopes_make(clattn__plan *plan, const clattn__cas_shape *shape) {
    return clattn__plan_scratch(plan, shape->batch * shape->heads * (shape->length + 2 * CLATTN__CAS_HALO));
}

static void add_strides(clattn__plan *plan, clattn__stage *stage, const clattn__cas_tensor *t) {
    clattn__stage_long(plan, stage, t->batch_stride);
    clattn__stage_long(plan, stage, t->head_stride);
    clattn__stage_long(plan, stage, t->row_stride);
}

/* A group for each of `groups` and each head. */
static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                             const char *file, const char *kernel, int64_t size, int64_t groups) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, size));
    clattn__stage_define(plan, stage, "D", size);
    clattn__stage_define(plan, stage, "BT", BLOCK);
    clattn__stage_define(plan, stage, "HALO", CLATTN__CAS_HALO);
    clattn__stage_range(stage, groups, shape->heads, shape->batch, clattn__cas_group(target));
    return stage;
}

/* ---- over all keys ---- */

static clattn__stage *append_all(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                 const char *kernel, int64_t size, clattn_type v_type, clattn_type o_type) {
    clattn__stage *stage =
        append(plan, target, shape, "cas_backward", kernel, size, clattn__ceil_div(shape->length, BLOCK));
    clattn__stage_define(plan, stage, "TJ", clattn__cas_group(target) == 1 ? 4 : 1);
    clattn__stage_define(plan, stage, "TYPE_V", v_type);
    clattn__stage_define(plan, stage, "TYPE_O", o_type);
    return stage;
}

void clattn__cas_weigh(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                       clattn__operand scores, clattn__operand weights, const clattn__cas_means *pool,
                       clattn__operand rows, const clattn__cas_tensor *v, clattn__operand slopes) {
    clattn__stage *stage = append_all(plan, target, shape, "cas_backward_scores", shape->size, v->type, CLATTN_F32);
    const clattn__operand operands[] = {scores, pool->states,   rows,    pool->means,
                                        v->at,  shape->lengths, weights, slopes};
    clattn__stage_operands(plan, stage, operands, 8);
    clattn__stage_long(plan, stage, shape->length);
    add_strides(plan, stage, v);
}

void clattn__cas_values_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                 clattn__operand weights, clattn__operand rows, const clattn__cas_tensor *grad_v) {
    clattn__stage *stage =
        append_all(plan, target, shape, "cas_backward_values", shape->size, CLATTN_F32, grad_v->type);
    const clattn__operand operands[] = {weights, rows, grad_v->at};
    clattn__stage_operands(plan, stage, operands, 3);
    clattn__stage_long(plan, stage, shape->length);
    add_strides(plan, stage, grad_v);
}

void clattn__cas_keys_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                               clattn__operand slopes, float factor, const clattn__cas_tensor *grad_k, int64_t size) {
    clattn__stage *stage = append_all(plan, target, shape, "cas_backward_keys", size, CLATTN_F32, grad_k->type);
    clattn__stage_operand(plan, stage, slopes);
    clattn__stage_operand(plan, stage, grad_k->at);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_float(plan, stage, factor);
    add_strides(plan, stage, grad_k);
}

/* ---- causal ---- */

typedef struct scan {
    const clattn__target *target;
    const clattn__cas_shape *shape;
    const clattn__cas_scanned *s;
    clattn__operand sums, tails, enters, deltas;
    int64_t parts;
} scan;

static clattn__stage *append_scan(clattn__plan *plan, const scan *c, const char *kernel, int64_t groups) {
    const size_t group = (size_t)clattn__cas_group(c->target);
    clattn__stage *stage = append(plan, c->target, c->shape, "cas_backward_scan", kernel, c->shape->size, groups);
    clattn__stage_define(plan, stage, "TYPE_V", c->s->v.type);
    clattn__stage_define(plan, stage, "TYPE_O", c->s->o.type);
    clattn__stage_define(plan, stage, "TYPE_G", c->s->grad_o.type);
    clattn__stage_define(plan, stage, "TYPE_D", c->s->grad_v.type);
    stage->local_bytes = group == 1 ? 0 : group * BLOCK * sizeof(float);
    return stage;
}

/* Each part's sums, as if no token stood behind it. */
static void sum_parts(clattn__plan *plan, const scan *c) {
    clattn__stage *stage = append_scan(plan, c, "cas_backward_block", c->parts);
    const clattn__operand operands[] = {c->s->grad_o.at, c->s->o.at, c->s->steps, c->shape->lengths,
                                        c->sums,         c->tails,   c->deltas};
    clattn__stage_operands(plan, stage, operands, 7);
    clattn__stage_long(plan, stage, c->shape->length);
    add_strides(plan, stage, &c->s->grad_o);
    add_strides(plan, stage, &c->s->o);
}

/* They become what reaches each part from behind. */
static void carry(clattn__plan *plan, const scan *c) {
    const int64_t lanes = (int64_t)clattn__cas_group(c->target) * clattn__cas_vector(c->target, c->shape->size);
    clattn__stage *stage = append_scan(plan, c, "cas_backward_carry", clattn__ceil_div(c->shape->size, lanes));
    const clattn__operand operands[] = {c->sums, c->tails, c->enters};
    clattn__stage_operands(plan, stage, operands, 3);
    clattn__stage_int(plan, stage, (int32_t)c->parts);
    stage->local_bytes = 0;
}

static void walk(clattn__plan *plan, const scan *c) {
    clattn__stage *stage = append_scan(plan, c, "cas_backward_scan", c->parts);
    const clattn__operand operands[] = {c->s->v.at, c->s->grad_o.at, c->s->steps,     c->deltas,   c->shape->lengths,
                                        c->sums,    c->enters,       c->s->grad_v.at, c->s->slopes};
    clattn__stage_operands(plan, stage, operands, 9);
    clattn__stage_long(plan, stage, c->shape->length);
    add_strides(plan, stage, &c->s->v);
    add_strides(plan, stage, &c->s->grad_o);
    add_strides(plan, stage, &c->s->grad_v);
}

void clattn__cas_scan_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                               const clattn__cas_scanned *s) {
    const int64_t rows = shape->batch * shape->heads, parts = clattn__ceil_div(shape->length, BLOCK);
    const uint64_t mark = plan->workspace_used;
    scan c = {.target = target, .shape = shape, .s = s, .parts = parts};
    c.sums = clattn__plan_scratch(plan, rows * parts * shape->size);
    c.tails = clattn__plan_scratch(plan, rows * parts * 2);
    c.enters = clattn__plan_scratch(plan, rows * parts);
    c.deltas = clattn__plan_scratch(plan, rows * shape->length);
    sum_parts(plan, &c);
    carry(plan, &c);
    walk(plan, &c);
    clattn__plan_release(plan, mark);
}
