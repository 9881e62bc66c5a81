/* aft: mode gated by one symmetric product, cl/aft_gram.cl. */
#include "variant/aft.h"

enum { TOKENS = 128, CHANNELS = 32, LEAST_PART = 256 };

/* Micro-tiles whose columns are whole rows of tiles, so that blocks on the diagonal are square. */
bool clattn__aft_gram_shape(const clattn__target *target, int64_t model_size, clattn__aft_gram *gram) {
    if (target->attention.wg != 1)
        return false;
    const bool wide = target->attention.vw == 16;
    gram->tm = wide ? 8 : 4;
    gram->tnv = wide ? 2 : 3;
    const int64_t tn = (int64_t)gram->tnv * target->attention.vw;
    gram->columns = clattn__ceil_div(model_size + 1, tn) * tn;
    gram->rows = clattn__ceil_div(model_size, CHANNELS) * CHANNELS;
    return true;
}

static clattn__stage *start(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                            const clattn__aft_gram *gram, clattn_type x_type, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, "aft_gram", kernel);
    clattn__stage_define(plan, stage, "WG", 1);
    clattn__stage_define(plan, stage, "VW", target->attention.vw);
    clattn__stage_define(plan, stage, "TM", gram->tm);
    clattn__stage_define(plan, stage, "TNV", gram->tnv);
    clattn__stage_define(plan, stage, "PW", (int64_t)gram->tnv * target->attention.vw);
    clattn__stage_define(plan, stage, "BM", CHANNELS);
    clattn__stage_define(plan, stage, "BN", TOKENS);
    clattn__stage_define(plan, stage, "TYPE_X", x_type);
    clattn__stage_define(plan, stage, "LENGTHS", clattn__given(aft->lengths));
    clattn__stage_define(plan, stage, "POSITION", clattn__given(aft->position));
    return stage;
}

/* Four work-items a compute unit: parts of the tokens first, then panels of each part. */
typedef struct share {
    int64_t parts, part_tokens, groups;
} share;

static share divide(const clattn__target *target, const clattn__aft *aft, int64_t panels) {
    const int64_t wanted = clattn__ceil_div(4 * (int64_t)target->caps.compute_units, aft->batch);
    const int64_t most = clattn__ceil_div(aft->length, LEAST_PART);
    const int64_t parts = wanted < most ? wanted : most;
    share s = {.part_tokens = clattn__ceil_div(clattn__ceil_div(aft->length, parts), TOKENS) * TOKENS};
    s.parts = clattn__ceil_div(aft->length, s.part_tokens);
    s.groups = clattn__ceil_div(wanted, s.parts);
    s.groups = s.groups < panels ? s.groups : panels;
    return s;
}

void clattn__aft_gram_core(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                           const clattn__aft_gram *gram, clattn__operand x, clattn_type x_type,
                           clattn__operand weights) {
    if (aft->batch == 0 || aft->length == 0)
        return;
    const int64_t d = aft->heads * aft->head_size, columns = gram->columns;
    const int64_t tn = (int64_t)gram->tnv * target->attention.vw, panels = columns / tn;
    const share s = divide(target, aft, panels);
    const clattn__operand packed = clattn__plan_scratch(plan, aft->batch * s.parts * s.groups * columns * TOKENS);
    const clattn__operand sums = clattn__plan_scratch(plan, aft->batch * s.parts * panels * (panels + 1) / 2 * tn * tn);
    const clattn__operand whole = clattn__plan_scratch(plan, aft->batch * columns * columns);
    const clattn__aft_total total = clattn__aft_total_reserve(plan, target, aft);

    clattn__stage *stage = start(plan, target, aft, gram, x_type, "aft_gram");
    clattn__stage_operand(plan, stage, x);
    clattn__stage_long(plan, stage, aft->length * d);
    clattn__stage_long(plan, stage, d);
    clattn__stage_operand(plan, stage, packed);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_long(plan, stage, d);
    clattn__stage_long(plan, stage, columns);
    clattn__stage_long(plan, stage, s.part_tokens);
    clattn__stage_range(stage, s.groups, s.parts, aft->batch, 1);

    stage = start(plan, target, aft, gram, x_type, "aft_gram_sum");
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, whole);
    clattn__stage_long(plan, stage, columns);
    clattn__stage_long(plan, stage, s.parts);
    clattn__stage_range(stage, panels, panels, aft->batch, 1);

    stage = start(plan, target, aft, gram, x_type, "aft_form");
    clattn__stage_operand(plan, stage, weights);
    clattn__stage_operand(plan, stage, whole);
    clattn__stage_operand(plan, stage, aft->position);
    clattn__stage_operand(plan, stage, total.at);
    clattn__stage_long(plan, stage, total.batch);
    clattn__stage_long(plan, stage, columns);
    clattn__stage_long(plan, stage, gram->rows);
    clattn__stage_long(plan, stage, d);
    clattn__stage_long(plan, stage, aft->head_size);
    clattn__stage_range(stage, gram->rows / CHANNELS, 1, aft->batch, 1);
    clattn__aft_gate_only(plan, target, aft, &total);
}
