/* aft, backwards, modes simple and conv, and what is far away of local: cl/aft_backward_scan.cl. */
#include "variant/aft_backward_stages.h"

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft_division *d, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(p->plan, p->aft, d, "aft_backward_scan", kernel);
    clattn__stage_define(p->plan, stage, "SHARED_KEY", p->aft->mode == CLATTN_AFT_CONV);
    clattn__stage_define(p->plan, stage, "AHEAD", !p->aft->causal);
    return stage;
}

clattn__aft_scans clattn__aft_backward_scans(const clattn__aft_pass *p, const clattn__aft_division *d) {
    const int64_t count = p->aft->batch * d->blocks * 4 * d->pitch;
    const clattn__operand states = clattn__plan_scratch(p->plan, count);
    const clattn__operand before = p->aft->causal ? clattn__none() : clattn__plan_scratch(p->plan, count);
    clattn__stage *stage = start(p, d, "aft_backward_states");
    clattn__aft_pass_queries(p, stage);
    clattn__stage_operand(p->plan, stage, states);
    clattn__aft_extents(p->plan, stage, p->aft, d);
    clattn__aft_range(stage, d, d->blocks, p->aft->batch);
    stage = start(p, d, "aft_backward_prefix");
    clattn__stage_operand(p->plan, stage, states);
    clattn__stage_operand(p->plan, stage, before);
    clattn__stage_long(p->plan, stage, d->blocks);
    clattn__stage_int(p->plan, stage, (int32_t)d->count);
    clattn__stage_long(p->plan, stage, d->pitch);
    clattn__aft_range(stage, d, 1, p->aft->batch);
    return (clattn__aft_scans){before, states};
}

static void add_average(const clattn__aft_pass *p, const clattn__aft_division *d, const clattn__aft_scans *far,
                        clattn__operand parts) {
    clattn__stage *stage = start(p, d, "aft_backward_average");
    clattn__aft_view_args(p->plan, stage, &p->aft->k);
    clattn__aft_view_args(p->plan, stage, &p->aft->v);
    clattn__aft_view_args(p->plan, stage, &p->grad->k);
    clattn__aft_view_args(p->plan, stage, &p->grad->v);
    clattn__aft_pass_queries(p, stage);
    clattn__stage_operand(p->plan, stage, far->before);
    clattn__stage_operand(p->plan, stage, far->after);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__aft_pass_taps(p, stage);
    clattn__aft_extents(p->plan, stage, p->aft, d);
    clattn__aft_range(stage, d, d->blocks, p->aft->batch);
}

/* CONV: a head's key, from what each of its strips leaves. */
static void add_keys(const clattn__aft_pass *p, const clattn__aft_division *d, clattn__operand parts) {
    clattn__stage *stage = start(p, d, "aft_backward_keys");
    clattn__stage_operand(p->plan, stage, parts);
    clattn__aft_view_args(p->plan, stage, &p->grad->k);
    clattn__stage_long(p->plan, stage, p->aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d->strips);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->heads);
    clattn__stage_range(stage, clattn__ceil_div(p->aft->length, d->wg), 1, p->aft->batch, d->wg);
}

void clattn__aft_backward_average(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 2, 32);
    const bool conv = p->aft->mode == CLATTN_AFT_CONV;
    const uint64_t mark = p->plan->workspace_used;
    const clattn__aft_scans far = clattn__aft_backward_scans(p, &d);
    const clattn__operand parts =
        conv ? clattn__plan_scratch(p->plan, p->aft->batch * p->aft->length * d.count) : clattn__none();
    add_average(p, &d, &far, parts);
    if (conv)
        add_keys(p, &d, parts);
    clattn__plan_release(p->plan, mark);
}
