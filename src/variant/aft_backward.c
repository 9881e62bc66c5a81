/* aft, backwards: terms, and mode gated, cl/aft_backward.cl. */
#include "variant/aft_gram.h"

clattn__aft_division clattn__aft_pass_divide(const clattn__aft_pass *p, int vectors, int64_t tb) {
    return clattn__aft_divide(p->aft, p->target, p->by_head, vectors, tb);
}

void clattn__aft_pass_queries(const clattn__aft_pass *p, clattn__stage *stage) {
    const clattn__aft_view traces = clattn__aft_traces(p->aft);
    clattn__aft_view_args(p->plan, stage, &p->terms);
    clattn__aft_view_args(p->plan, stage, &traces);
    clattn__stage_long(p->plan, stage, p->second);
}

static int kind_of(int mode) { return mode == CLATTN_AFT_GATED ? 0 : mode == CLATTN_AFT_GATED_MATRIX ? 2 : 1; }

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft_division *d, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(p->plan, p->aft, d, "aft_backward", kernel);
    clattn__stage_define(p->plan, stage, "CAUSAL", p->aft->causal);
    clattn__stage_define(p->plan, stage, "POSITION", clattn__given(p->aft->position));
    clattn__stage_define(p->plan, stage, "KIND", kind_of(p->aft->mode));
    clattn__stage_define(p->plan, stage, "TYPE_G", p->grad->type);
    return stage;
}

/* ---- terms ---- */

void clattn__aft_backward_terms(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 4, 64);
    const clattn__aft_view traces = clattn__aft_traces(p->aft);
    clattn__stage *stage = start(p, &d, "aft_backward_terms");
    clattn__aft_view_args(p->plan, stage, &p->aft->q);
    clattn__aft_view_args(p->plan, stage, &p->aft->y);
    clattn__aft_view_args(p->plan, stage, &p->grad->y);
    clattn__aft_view_args(p->plan, stage, &p->grad->q);
    clattn__aft_view_args(p->plan, stage, &traces);
    clattn__aft_view_args(p->plan, stage, &p->terms);
    clattn__stage_long(p->plan, stage, p->second);
    clattn__aft_extents(p->plan, stage, p->aft, &d);
    clattn__aft_range(stage, &d, d.blocks, p->aft->batch);
}

/* ---- sums ---- */

void clattn__aft_backward_later(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand sums,
                                int64_t rows) {
    clattn__stage *stage = start(p, d, "aft_backward_later");
    clattn__stage_operand(p->plan, stage, sums);
    clattn__stage_long(p->plan, stage, d->blocks);
    clattn__stage_int(p->plan, stage, (int32_t)(d->count * rows));
    clattn__stage_long(p->plan, stage, d->pitch * rows);
    clattn__stage_range(stage, clattn__ceil_div(d->count * rows, d->wg), 1, p->aft->batch, d->wg);
}

static int64_t at_least_one(int64_t count) { return count > 0 ? count : 1; }

clattn__operand clattn__aft_backward_parts(const clattn__aft_pass *p, const clattn__aft_division *d) {
    return clattn__plan_scratch(p->plan, at_least_one(p->aft->batch * d->blocks) * d->pitch);
}

void clattn__aft_backward_position(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand parts) {
    if (!clattn__given(p->grad->position))
        return;
    clattn__stage *stage = start(p, d, "aft_backward_channels");
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_long(p->plan, stage, p->aft->batch * d->blocks);
    clattn__stage_int(p->plan, stage, (int32_t)d->count);
    clattn__stage_long(p->plan, stage, d->pitch);
    clattn__aft_range(stage, d, 1, 1);
    stage = start(p, d, "aft_backward_position");
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_operand(p->plan, stage, p->grad->position);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->heads);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->head_size);
    clattn__stage_long(p->plan, stage, d->groups > 1 ? d->pitch / d->groups : p->aft->head_size);
    clattn__stage_int(p->plan, stage, p->grad->accumulate);
    clattn__stage_range(stage, clattn__ceil_div(p->aft->heads, d->wg), 1, 1, d->wg);
}

/* ---- gated ---- */

static void add_sums(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand sums) {
    clattn__stage *stage = start(p, d, "aft_backward_sum");
    clattn__aft_view_args(p->plan, stage, &p->terms);
    clattn__stage_operand(p->plan, stage, sums);
    clattn__aft_extents(p->plan, stage, p->aft, d);
    clattn__aft_range(stage, d, d->blocks, p->aft->batch);
}

/* sums [batch][blocks][pitch]. */
static clattn__operand add_later(const clattn__aft_pass *p, const clattn__aft_division *d) {
    const clattn__operand sums = clattn__plan_scratch(p->plan, p->aft->batch * d->blocks * d->pitch);
    add_sums(p, d, sums);
    clattn__aft_backward_later(p, d, sums, 1);
    return sums;
}

clattn__aft_channels clattn__aft_backward_gate(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 4, 64);
    clattn__aft_backward_terms(p);
    return (clattn__aft_channels){add_later(p, &d), d.blocks * d.pitch};
}

static void add_gated(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 4, 64);
    const clattn__operand sums = add_later(p, &d), parts = clattn__aft_backward_parts(p, &d);
    clattn__stage *stage = start(p, &d, "aft_backward_gated");
    clattn__aft_view_args(p->plan, stage, &p->aft->k);
    clattn__aft_view_args(p->plan, stage, &p->aft->v);
    clattn__aft_view_args(p->plan, stage, &p->grad->k);
    clattn__aft_view_args(p->plan, stage, &p->grad->v);
    clattn__aft_view_args(p->plan, stage, &p->terms);
    clattn__stage_operand(p->plan, stage, sums);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_operand(p->plan, stage, p->aft->position);
    clattn__aft_extents(p->plan, stage, p->aft, &d);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->head_size);
    clattn__aft_range(stage, &d, d.blocks, p->aft->batch);
    clattn__aft_backward_position(p, &d, parts);
}

/* ---- all modes ---- */

clattn__aft_gradients clattn__aft_gradients_none(clattn_type type, bool accumulate) {
    const clattn__aft_table table = {clattn__none(), 0, 0};
    const clattn__aft_rows rows = {clattn__none(), 0};
    return (clattn__aft_gradients){.type = type,
                                   .accumulate = accumulate,
                                   .position = clattn__none(),
                                   .w = table,
                                   .left = table,
                                   .right = table,
                                   .taps = table,
                                   .left_rows = rows,
                                   .right_columns = rows,
                                   .gamma = clattn__none(),
                                   .beta = clattn__none(),
                                   .raw_taps = clattn__none(),
                                   .raw_gamma = clattn__none()};
}

static bool by_head(const clattn__aft *aft, const clattn__aft_gradients *grad) {
    const int64_t size = aft->head_size;
    return clattn__aft_by_head(aft) || (aft->heads > 1 && (grad->y.head != size || grad->q.head != size ||
                                                           grad->k.head != size || grad->v.head != size));
}

clattn__aft_pass clattn__aft_pass_start(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                                        const clattn__aft_gradients *grad) {
    const int64_t channels = aft->heads * aft->head_size;
    const int64_t row = aft->mode == CLATTN_AFT_GATED_MATRIX ? 2 * channels : channels;
    return (clattn__aft_pass){
        .plan = plan,
        .target = target,
        .aft = aft,
        .grad = grad,
        .by_head = by_head(aft, grad),
        .terms = {clattn__plan_scratch(plan, aft->batch * aft->length * row), aft->length * row, row, aft->head_size},
        .second = channels};
}

void clattn__aft_backward(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                          const clattn__aft_gradients *grad) {
    const uint64_t mark = plan->workspace_used;
    const clattn__aft_pass p = clattn__aft_pass_start(plan, target, aft, grad);
    clattn__aft_backward_terms(&p);
    if (aft->mode == CLATTN_AFT_GATED) {
        add_gated(&p);
    } else if (aft->mode == CLATTN_AFT_GATED_MATRIX) {
        clattn__aft_backward_matrix(&p);
    } else if (aft->mode == CLATTN_AFT_FULL || aft->mode == CLATTN_AFT_LOCAL) {
        clattn__aft_backward_full(&p);
    } else {
        clattn__aft_backward_average(&p);
        if (aft->mode == CLATTN_AFT_CONV)
            clattn__aft_backward_taps(&p);
    }
    clattn__plan_release(plan, mark);
}
