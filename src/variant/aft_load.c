/* aft: stages that prepare weights, cl/aft_load.cl. */
#include "variant/aft.h"

static int64_t group_size(const clattn__target *target) { return target->attention.wg; }

static clattn__stage *start(clattn__plan *plan, const clattn__target *target, const char *kernel, bool factors,
                            bool reparam) {
    clattn__stage *stage = clattn__plan_kernel(plan, "aft_load", kernel);
    clattn__stage_define(plan, stage, "WG", group_size(target));
    clattn__stage_define(plan, stage, "VW", 1);
    clattn__stage_define(plan, stage, "TYPE_W", target->weight_type);
    clattn__stage_define(plan, stage, "FACTORS", factors);
    clattn__stage_define(plan, stage, "REPARAM", reparam);
    return stage;
}

/* One work-item for each of `items`, for each of `rows`. */
static void range(clattn__stage *stage, const clattn__target *target, int64_t items, int64_t rows) {
    const int64_t size = group_size(target);
    clattn__stage_range(stage, clattn__ceil_div(items, size), rows, 1, size);
}

void clattn__aft_copy(clattn__plan *plan, const clattn__target *target, clattn__operand from, clattn__operand to,
                      int64_t count) {
    clattn__stage *stage = start(plan, target, "aft_copy", false, false);
    clattn__stage_operand(plan, stage, from);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, count);
    range(stage, target, count, 1);
}

void clattn__aft_bias(clattn__plan *plan, const clattn__target *target, clattn__aft_rows w, clattn__aft_rows factor,
                      clattn__operand to, int64_t count, int64_t rank, int64_t reach) {
    clattn__stage *stage = start(plan, target, "aft_bias", rank > 0, false);
    clattn__stage_operand(plan, stage, w.at);
    clattn__stage_long(plan, stage, w.row);
    clattn__stage_operand(plan, stage, rank > 0 ? factor.at : clattn__none());
    clattn__stage_long(plan, stage, factor.row);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, count);
    clattn__stage_long(plan, stage, rank);
    clattn__stage_long(plan, stage, reach);
    clattn__stage_long(plan, stage, 2 * reach + 1);
    range(stage, target, 2 * reach + 1, count);
}

void clattn__aft_transpose(clattn__plan *plan, const clattn__target *target, clattn__aft_rows factor,
                           clattn__operand to, int64_t count, int64_t rank, int64_t columns) {
    clattn__stage *stage = start(plan, target, "aft_transpose", true, false);
    clattn__stage_operand(plan, stage, factor.at);
    clattn__stage_long(plan, stage, factor.row);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, count);
    clattn__stage_long(plan, stage, columns);
    range(stage, target, columns, rank);
}

void clattn__aft_taps(clattn__plan *plan, const clattn__target *target, clattn__operand taps, clattn__operand gamma,
                      clattn__operand beta, clattn__operand to, int64_t heads, int64_t count) {
    clattn__stage *stage = start(plan, target, "aft_taps", false, clattn__given(gamma));
    clattn__stage_operand(plan, stage, taps);
    clattn__stage_operand(plan, stage, gamma);
    clattn__stage_operand(plan, stage, beta);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, heads);
    clattn__stage_long(plan, stage, count);
    range(stage, target, heads, 1);
}

void clattn__aft_augment(clattn__plan *plan, const clattn__target *target, clattn__operand weight,
                         clattn__operand bias, clattn__operand to, int64_t in, int64_t out, int64_t row,
                         int64_t step) {
    clattn__stage *stage = start(plan, target, "aft_augment", false, false);
    clattn__stage_operand(plan, stage, weight);
    clattn__stage_operand(plan, stage, bias);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, in);
    clattn__stage_long(plan, stage, row);
    clattn__stage_long(plan, stage, step);
    range(stage, target, in + 1, out);
}
