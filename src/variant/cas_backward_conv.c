/* The convolution that scores tokens, backwards. */
#include <math.h>

#include "variant/cas_backward.h"

enum { BLOCK = 32, CHUNK = 64 };

typedef struct conv {
    const clattn__target *target;
    const clattn__cas_filters *f;
    const clattn__cas_input *input;
    const clattn__cas_convolved *c;
    clattn__operand taps;
} conv;

static int tile_heads(const clattn__cas_filters *f) {
    return f->kernel == 1 ? 8 : f->kernel == 3 ? 4 : f->kernel == 5 ? 2 : 1;
}

static clattn__stage *append(clattn__plan *plan, const conv *v, const char *kernel) {
    const clattn__cas_filters *f = v->f;
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_backward_conv", kernel);
    clattn__stage_define(plan, stage, "WG", f->wg);
    clattn__stage_define(plan, stage, "VW", f->vw);
    clattn__stage_define(plan, stage, "D", f->model_size);
    clattn__stage_define(plan, stage, "NV", f->model_size / f->vw % 2 ? 1 : 2);
    clattn__stage_define(plan, stage, "KERNEL", f->kernel);
    clattn__stage_define(plan, stage, "LEFT", f->causal ? f->kernel - 1 : f->kernel / 2);
    clattn__stage_define(plan, stage, "HALO", CLATTN__CAS_HALO);
    clattn__stage_define(plan, stage, "HT", tile_heads(f));
    clattn__stage_define(plan, stage, "BT", BLOCK);
    clattn__stage_define(plan, stage, "TYPE_X", v->input->type);
    clattn__stage_define(plan, stage, "TYPE_B", v->c->base_type);
    clattn__stage_define(plan, stage, "TYPE_W", v->c->grad.type);
    return stage;
}

static void unpack(clattn__plan *plan, const conv *v) {
    clattn__stage *stage = append(plan, v, "cas_backward_taps");
    clattn__stage_operand(plan, stage, v->input->filters);
    clattn__stage_operand(plan, stage, v->taps);
    clattn__stage_long(plan, stage, v->f->group_heads);
    clattn__stage_long(plan, stage, v->f->panels);
    clattn__stage_long(plan, stage, v->f->tnv * v->f->vw);
    clattn__stage_range(stage, v->f->heads, 1, 1, v->f->wg);
}

static void input_gradient(clattn__plan *plan, const conv *v) {
    clattn__stage *stage = append(plan, v, "cas_backward_input");
    const clattn__operand operands[] = {v->c->weights, v->c->rows,        v->c->slopes, v->taps,
                                        v->c->base,    v->input->lengths, v->c->dx};
    for (int i = 0; i < 7; i++)
        clattn__stage_operand(plan, stage, operands[i]);
    clattn__stage_long(plan, stage, v->input->length);
    clattn__stage_int(plan, stage, (int32_t)v->f->heads);
    clattn__stage_range(stage, clattn__ceil_div(v->input->length, BLOCK), 1, v->input->batch, v->f->wg);
}

static void weight_gradient(clattn__plan *plan, const conv *v) {
    const clattn__cas_filters *f = v->f;
    const int64_t tiles = clattn__ceil_div(f->heads, tile_heads(f)), batch = v->input->batch;
    const int64_t span = clattn__cas_span(v->target, batch * tiles, v->input->length, BLOCK);
    const int64_t parts = clattn__ceil_div(v->input->length, span);
    const clattn__operand sums = clattn__plan_scratch(plan, batch * parts * f->heads * f->kernel * f->model_size);
    clattn__stage *stage = append(plan, v, "cas_backward_filters");
    const clattn__operand operands[] = {v->input->x, v->c->slopes, v->input->lengths, sums};
    for (int i = 0; i < 4; i++)
        clattn__stage_operand(plan, stage, operands[i]);
    clattn__stage_long(plan, stage, v->input->length);
    clattn__stage_long(plan, stage, span);
    clattn__stage_int(plan, stage, (int32_t)f->heads);
    clattn__stage_range(stage, parts, tiles, batch, f->wg);

    stage = append(plan, v, "cas_backward_spread");
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, v->c->dw);
    clattn__stage_long(plan, stage, batch * parts);
    clattn__stage_int(plan, stage, (int32_t)f->heads);
    clattn__stage_float(plan, stage, (float)(1 / sqrt((double)(f->model_size / f->heads))));
    clattn__stage_int(plan, stage, v->c->grad.accumulate);
    clattn__stage_range(stage, clattn__ceil_div(f->model_size, CHUNK), f->heads, 1, f->wg);
}

void clattn__cas_convolve_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *filters,
                                   const clattn__cas_input *input, const clattn__cas_convolved *c) {
    const uint64_t mark = plan->workspace_used;
    const conv v = {target, filters, input, c,
                    clattn__plan_scratch(plan, filters->heads * filters->kernel * filters->model_size)};
    unpack(plan, &v);
    input_gradient(plan, &v);
    weight_gradient(plan, &v);
    clattn__plan_release(plan, mark);
}
