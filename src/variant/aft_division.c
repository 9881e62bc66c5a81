/* aft: channels and tokens divided among work-items. */
#include "variant/aft_division.h"

static bool side_by_side(const clattn__aft *aft) {
    const int64_t size = aft->head_size;
    return aft->heads == 1 ||
           (aft->q.head == size && aft->k.head == size && aft->v.head == size && aft->y.head == size);
}

bool clattn__aft_by_head(const clattn__aft *aft) {
    return aft->mode == CLATTN_AFT_CONV || aft->mode == CLATTN_AFT_GATED_MATRIX || !side_by_side(aft);
}

clattn__aft_division clattn__aft_divide(const clattn__aft *aft, const clattn__target *target, bool by_head, int vectors,
                                        int64_t tb) {
    const bool cpu = target->attention.wg == 1;
    clattn__aft_division d = {
        .wg = cpu ? 1 : 64, .vw = cpu ? target->attention.vw : 1, .nv = cpu ? vectors : 1, .tb = tb};
    d.groups = by_head ? aft->heads : 1;
    d.width = by_head ? aft->head_size : aft->heads * aft->head_size;
    while (d.nv > 1 && (int64_t)(d.nv - 1) * d.vw >= d.width)
        d.nv--;
    d.strips = clattn__ceil_div(d.width, (int64_t)d.nv * d.vw);
    d.count = d.groups * d.strips;
    d.pitch = d.count * d.nv * d.vw;
    d.blocks = clattn__ceil_div(aft->length, tb);
    return d;
}

clattn__stage *clattn__aft_start(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                 const char *file, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    clattn__stage_define(plan, stage, "WG", d->wg);
    clattn__stage_define(plan, stage, "VW", d->vw);
    clattn__stage_define(plan, stage, "NV", d->nv);
    clattn__stage_define(plan, stage, "TB", d->tb);
    clattn__stage_define(plan, stage, "LENGTHS", clattn__given(aft->lengths));
    clattn__stage_define(plan, stage, "TYPE_X", aft->x_type);
    clattn__stage_define(plan, stage, "TYPE_Y", aft->y_type);
    clattn__stage_define(plan, stage, "GATE", !aft->gate_ready);
    return stage;
}

void clattn__aft_view_args(clattn__plan *plan, clattn__stage *stage, const clattn__aft_view *v) {
    clattn__stage_operand(plan, stage, v->at);
    clattn__stage_long(plan, stage, v->batch);
    clattn__stage_long(plan, stage, v->row);
    clattn__stage_long(plan, stage, v->head);
}

clattn__aft_view clattn__aft_traces(const clattn__aft *aft) {
    const int64_t row = CLATTN__AFT_TRACES * aft->heads * aft->head_size;
    return (clattn__aft_view){aft->traces, aft->length * row, row, aft->head_size};
}

clattn__operand clattn__aft_peaks(const clattn__aft *aft) {
    clattn__operand peaks = aft->traces;
    peaks.offset += CLATTN__AFT_TRACES * aft->batch * aft->length * aft->heads * aft->head_size;
    return peaks;
}

void clattn__aft_extents(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft,
                         const clattn__aft_division *d) {
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_int(plan, stage, (int32_t)d->width);
    clattn__stage_int(plan, stage, (int32_t)d->strips);
    clattn__stage_int(plan, stage, (int32_t)d->count);
    clattn__stage_long(plan, stage, d->pitch);
}

void clattn__aft_bias_args(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft) {
    clattn__stage_operand(plan, stage, aft->bias);
    clattn__stage_long(plan, stage, aft->bias_row);
    clattn__stage_operand(plan, stage, aft->factor);
    clattn__stage_long(plan, stage, aft->columns);
    clattn__stage_long(plan, stage, aft->rank);
    clattn__stage_long(plan, stage, aft->reach);
}

void clattn__aft_range(clattn__stage *stage, const clattn__aft_division *d, int64_t blocks, int64_t batch) {
    clattn__stage_range(stage, clattn__ceil_div(d->count, d->wg), blocks, batch, d->wg);
}
