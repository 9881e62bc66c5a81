/* CAS-ViT's token mixer after its first product, and the packing of its weights. */
#include "variant/cas.h"

/* ---- loading ---- */

static clattn__stage *append_load(clattn__plan *plan, const clattn__target *target, const char *kernel,
                                  int64_t groups) {
    clattn__stage *stage = clattn__cas_loading(plan, target, kernel);
    clattn__stage_range(stage, groups, 1, 1, clattn__cas_group(target));
    return stage;
}

void clattn__cas_copy(clattn__plan *plan, const clattn__target *target, clattn__operand from, clattn__operand to,
                      int64_t count) {
    enum { BLOCK = 4096 };
    clattn__stage *stage = append_load(plan, target, "cas_copy", clattn__ceil_div(count, BLOCK));
    clattn__stage_operand(plan, stage, from);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, count);
    clattn__stage_long(plan, stage, BLOCK);
}

void clattn__cas_taps(clattn__plan *plan, const clattn__target *target, int64_t model_size, clattn__operand weight,
                      clattn__operand bias, const clattn__operand norm[4], clattn__operand to) {
    clattn__stage *stage = append_load(plan, target, "cas_taps", 1);
    clattn__stage_operand(plan, stage, weight);
    clattn__stage_operand(plan, stage, bias);
    for (int i = 0; i < 4; i++)
        clattn__stage_operand(plan, stage, norm ? norm[i] : clattn__none());
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, model_size);
}

void clattn__cas_norm(clattn__plan *plan, const clattn__target *target, int64_t model_size, clattn__operand weight,
                      clattn__operand bias, const clattn__operand norm[4], clattn__operand to) {
    clattn__stage *stage = append_load(plan, target, "cas_norm", 1);
    const clattn__operand operands[] = {weight, bias, norm[0], norm[2], norm[3], to};
    for (int i = 0; i < 6; i++)
        clattn__stage_operand(plan, stage, operands[i]);
    clattn__stage_long(plan, stage, model_size);
}

/* ---- forward ---- */

static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *m,
                             const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_vit", kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, m->model_size));
    clattn__stage_define(plan, stage, "D", m->model_size);
    clattn__stage_define(plan, stage, "TX", clattn__cas_strip_pixels(target));
    clattn__stage_define(plan, stage, "TYPE_Y", m->y_type);
    return stage;
}

/* The image's extents, and a group for each strip. */
static void cover(clattn__plan *plan, clattn__stage *stage, const clattn__target *target, const clattn__cas_image *m,
                  int64_t operators) {
    clattn__stage_int(plan, stage, (int32_t)m->height);
    clattn__stage_int(plan, stage, (int32_t)m->width);
    clattn__stage_range(stage, clattn__cas_strips(target, m), m->batch, operators, clattn__cas_group(target));
}

/* Spatial gates; sums of q and k times their gates, by strip, into sums. */
static void gate(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *m, clattn__operand sums) {
    const size_t group = (size_t)clattn__cas_group(target);
    clattn__stage *stage = append(plan, target, m, "cas_gate");
    clattn__stage_operand(plan, stage, m->qkv);
    clattn__stage_operand(plan, stage, m->operators);
    clattn__stage_operand(plan, stage, m->gates);
    clattn__stage_operand(plan, stage, sums);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * (group + 1) * (size_t)clattn__cas_strip_pixels(target);
    cover(plan, stage, target, m, 2);
}

/* Channel gates, from the sums of strips. */
static void gate_channels(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *m,
                          clattn__operand sums) {
    const int64_t d = m->model_size;
    const int group = clattn__cas_group(target), vw = clattn__cas_vector(target, d);
    clattn__stage *stage = append(plan, target, m, "cas_mean");
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, m->means);
    clattn__stage_long(plan, stage, clattn__cas_strips(target, m));
    clattn__stage_float(plan, stage, (float)(1 / ((double)m->height * (double)m->width)));
    clattn__stage_range(stage, clattn__ceil_div(d, (int64_t)group * vw), m->batch, 2, group);
    clattn__cas_apply_rows(plan, target,
                           &(clattn__cas_rows){.sections = 2,
                                               .batch = m->batch,
                                               .out = d,
                                               .in = d,
                                               .row_head = d,
                                               .sigmoid = true,
                                               .w = m->channels,
                                               .bias = clattn__none(),
                                               .from = m->means,
                                               .lengths = clattn__none(),
                                               .to = m->channel_gates});
}

void clattn__cas_mix(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *m) {
    const clattn__operand sums =
        clattn__plan_scratch(plan, 2 * m->batch * clattn__cas_strips(target, m) * m->model_size);
    gate(plan, target, m, sums);
    gate_channels(plan, target, m, sums);

    clattn__stage *mix = append(plan, target, m, "cas_mix");
    clattn__stage_operand(plan, mix, m->qkv);
    clattn__stage_operand(plan, mix, m->gates);
    clattn__stage_operand(plan, mix, m->channel_gates);
    clattn__stage_operand(plan, mix, m->dwc);
    clattn__stage_operand(plan, mix, m->mixed);
    cover(plan, mix, target, m, 1);

    clattn__stage *last = append(plan, target, m, "cas_last");
    clattn__stage_operand(plan, last, m->mixed);
    clattn__stage_operand(plan, last, m->proj);
    clattn__stage_operand(plan, last, m->y);
    cover(plan, last, target, m, 1);
}
