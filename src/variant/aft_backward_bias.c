/* aft, backwards: what stands beside the keys, cl/include/aft_backward_bias.h and cl/aft_backward_bias.cl. */
#include "variant/aft_backward_stages.h"

void clattn__aft_pass_bias(const clattn__aft_pass *p, clattn__stage *stage) {
    const clattn__aft *aft = p->aft;
    const bool simple = aft->mode == CLATTN_AFT_SIMPLE;
    const int64_t reach = simple ? -1 : aft->reach;
    clattn__stage_operand(p->plan, stage, simple ? clattn__none() : aft->bias);
    clattn__stage_long(p->plan, stage, aft->bias_row);
    clattn__stage_long(p->plan, stage, aft->bias_head);
    clattn__stage_long(p->plan, stage, reach);
    clattn__stage_long(p->plan, stage, aft->causal || simple ? 0 : reach);
}

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft_division *d, const char *kernel, bool own) {
    clattn__stage *stage = clattn__aft_start(p->plan, p->aft, d, "aft_backward_bias", kernel);
    clattn__stage_define(p->plan, stage, "SHARED_KEY", p->aft->mode == CLATTN_AFT_CONV);
    clattn__stage_define(p->plan, stage, "OWN", own);
    clattn__stage_define(p->plan, stage, "REPARAM", clattn__given(p->grad->raw_gamma));
    clattn__stage_define(p->plan, stage, "TYPE_G", p->grad->type);
    return stage;
}

/* CORE_PARAMETERS. */
static void core(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__stage *stage) {
    clattn__aft_view_args(p->plan, stage, &p->aft->k);
    clattn__aft_view_args(p->plan, stage, &p->aft->v);
    clattn__aft_pass_queries(p, stage);
    clattn__aft_pass_bias(p, stage);
    clattn__stage_operand(p->plan, stage, p->aft->lengths);
    clattn__stage_long(p->plan, stage, p->aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d->width);
    clattn__stage_int(p->plan, stage, (int32_t)d->strips);
    clattn__stage_int(p->plan, stage, (int32_t)d->count);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->batch);
}

static void add_table(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 1, 32);
    clattn__stage *stage = start(p, &d, "aft_backward_table", false);
    core(p, &d, stage);
    clattn__stage_operand(p->plan, stage, p->grad->w.at);
    clattn__stage_long(p->plan, stage, p->grad->w.row);
    clattn__stage_long(p->plan, stage, p->grad->w.rows);
    clattn__stage_int(p->plan, stage, p->grad->accumulate);
    clattn__stage_range(stage, clattn__ceil_div(p->grad->w.rows, d.tb * d.wg), p->grad->w.rows, 1, d.wg);
}

/* own: the right factor, whose rows are keys'; other: the factor that is not it. */
static void add_factor(const clattn__aft_pass *p, bool own, const clattn__aft_table *to,
                       const clattn__aft_rows *other) {
    if (!clattn__given(to->at))
        return;
    const clattn__aft_division d = clattn__aft_pass_divide(p, 1, 32);
    const uint64_t mark = p->plan->workspace_used;
    clattn__stage *stage = start(p, &d, "aft_backward_factor", own);
    core(p, &d, stage);
    clattn__stage_operand(p->plan, stage, other->at);
    clattn__stage_long(p->plan, stage, other->row);
    clattn__stage_operand(p->plan, stage, clattn__plan_scratch(p->plan, to->rows * p->grad->rank));
    clattn__stage_long(p->plan, stage, p->grad->rank);
    clattn__stage_operand(p->plan, stage, to->at);
    clattn__stage_long(p->plan, stage, to->row);
    clattn__stage_long(p->plan, stage, to->rows);
    clattn__stage_int(p->plan, stage, p->grad->accumulate);
    clattn__stage_range(stage, clattn__ceil_div(to->rows, d.wg), 1, 1, d.wg);
    clattn__plan_release(p->plan, mark);
}

void clattn__aft_backward_bias(const clattn__aft_pass *p) {
    if (clattn__given(p->grad->w.at))
        add_table(p);
    add_factor(p, false, &p->grad->left, &p->grad->right_rows);
    add_factor(p, true, &p->grad->right, &p->grad->left_rows);
}

void clattn__aft_backward_taps(const clattn__aft_pass *p) {
    if (!clattn__given(p->grad->taps.at))
        return;
    const clattn__aft_division d = clattn__aft_pass_divide(p, 1, 256);
    const int64_t taps = 2 * p->aft->reach + 1, items = p->aft->heads * taps, count = p->aft->batch * d.blocks;
    const uint64_t mark = p->plan->workspace_used;
    const clattn__operand parts = clattn__plan_scratch(p->plan, (count > 0 ? count : 1) * items);
    clattn__stage *stage = start(p, &d, "aft_backward_taps", false);
    core(p, &d, stage);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->heads);
    clattn__stage_range(stage, clattn__ceil_div(items, d.wg), d.blocks, p->aft->batch, d.wg);
    stage = start(p, &d, "aft_backward_conv", false);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_long(p->plan, stage, count);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->heads);
    clattn__stage_int(p->plan, stage, (int32_t)taps);
    clattn__stage_operand(p->plan, stage, p->grad->raw_taps);
    clattn__stage_operand(p->plan, stage, p->grad->raw_gamma);
    clattn__stage_operand(p->plan, stage, p->grad->taps.at);
    clattn__stage_long(p->plan, stage, p->grad->taps.row);
    clattn__stage_operand(p->plan, stage, p->grad->gamma);
    clattn__stage_operand(p->plan, stage, p->grad->beta);
    clattn__stage_int(p->plan, stage, p->grad->accumulate);
    clattn__stage_range(stage, clattn__ceil_div(p->aft->heads, d.wg), 1, 1, d.wg);
    clattn__plan_release(p->plan, mark);
}
