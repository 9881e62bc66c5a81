/* aft, backwards, mode conv: its taps, cl/include/aft_backward_taps.h and cl/aft_backward_taps.cl. */
#include "variant/aft_backward_stages.h"

void clattn__aft_pass_taps(const clattn__aft_pass *p, clattn__stage *stage) {
    const clattn__aft *aft = p->aft;
    const bool conv = aft->mode == CLATTN_AFT_CONV;
    const int64_t reach = conv ? aft->reach : -1;
    clattn__stage_operand(p->plan, stage, aft->bias);
    clattn__stage_long(p->plan, stage, aft->bias_head);
    clattn__stage_long(p->plan, stage, reach);
    clattn__stage_long(p->plan, stage, aft->causal || !conv ? 0 : reach);
}

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft_division *d, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(p->plan, p->aft, d, "aft_backward_taps", kernel);
    clattn__stage_define(p->plan, stage, "REPARAM", clattn__given(p->grad->raw_gamma));
    clattn__stage_define(p->plan, stage, "TYPE_G", p->grad->type);
    return stage;
}

void clattn__aft_backward_taps(const clattn__aft_pass *p) {
    if (!clattn__given(p->grad->taps.at))
        return;
    const clattn__aft_division d = clattn__aft_pass_divide(p, 1, 256);
    const int64_t taps = 2 * p->aft->reach + 1, items = p->aft->heads * taps, count = p->aft->batch * d.blocks;
    const uint64_t mark = p->plan->workspace_used;
    const clattn__operand parts = clattn__plan_scratch(p->plan, (count > 0 ? count : 1) * items);
    clattn__stage *stage = start(p, &d, "aft_backward_taps");
    clattn__aft_view_args(p->plan, stage, &p->aft->k);
    clattn__aft_view_args(p->plan, stage, &p->aft->v);
    clattn__aft_pass_queries(p, stage);
    clattn__aft_pass_taps(p, stage);
    clattn__stage_operand(p->plan, stage, p->aft->lengths);
    clattn__stage_long(p->plan, stage, p->aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d.width);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->heads);
    clattn__stage_range(stage, clattn__ceil_div(items, d.wg), d.blocks, p->aft->batch, d.wg);
    stage = start(p, &d, "aft_backward_conv");
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
