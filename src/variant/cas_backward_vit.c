/* CAS-ViT's token mixer, backwards. */
#include "variant/cas_backward.h"

enum { CHUNK = 64, LAST_ROWS = 10, MIX_ROWS = 12 };

/* grad_m, grad_z  [B, n, d]: gradients of what v multiplies, and of what goes into that
 * channel_slopes, grad_means  [2, B, d], slopes [2, B, n]: gradients of what the gates' sigmoids take, and of the means
 * grad_h          [2, B, n, d]: of the operators' convolutions */
typedef struct mix {
    const clattn__target *target;
    const clattn__cas_image *m;
    const clattn__cas_image_grad *g;
    int64_t strips, span, bands;
    clattn__operand grad_m, grad_z, grad_h, channel_slopes, grad_means, slopes, sums;
} mix;

static int64_t pixels(const mix *x) { return x->m->batch * x->m->height * x->m->width; }

static int64_t band_floats(const mix *x, int64_t rows) { return x->m->batch * x->bands * rows * x->m->model_size; }

static clattn__operand after(clattn__operand at, int64_t count) {
    return (clattn__operand){at.slot, at.offset + count};
}

static clattn__stage *append(clattn__plan *plan, const mix *x, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cas_backward_vit", kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(x->target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(x->target, x->m->model_size));
    clattn__stage_define(plan, stage, "D", x->m->model_size);
    clattn__stage_define(plan, stage, "TX", clattn__cas_strip_pixels(x->target));
    clattn__stage_define(plan, stage, "TYPE_Y", x->m->y_type);
    clattn__stage_define(plan, stage, "TYPE_W", x->g->grad.type);
    return stage;
}

/* A group for each strip, or for each band of strips. */
static void cover(clattn__plan *plan, clattn__stage *stage, const mix *x, int64_t operators, bool bands) {
    clattn__stage_int(plan, stage, (int32_t)x->m->height);
    clattn__stage_int(plan, stage, (int32_t)x->m->width);
    if (bands) {
        clattn__stage_long(plan, stage, x->strips);
        clattn__stage_long(plan, stage, x->span);
    }
    clattn__stage_range(stage, bands ? x->bands : x->strips, x->m->batch, operators, clattn__cas_group(x->target));
}

/* Sums of bands, rows of d floats each, to a convolution's gradients. */
static void to_weights(clattn__plan *plan, const mix *x, clattn__operand sums, int rows, clattn__operand norms,
                       const clattn__cas_taps_grad *to) {
    clattn__stage *stage = append(plan, x, "cas_backward_depthwise");
    const clattn__operand operands[] = {sums, norms, to->taps, to->bias, to->norm, to->norm_bias, to->gate};
    clattn__stage_operands(plan, stage, operands, 7);
    clattn__stage_long(plan, stage, x->m->batch * x->bands);
    clattn__stage_int(plan, stage, rows);
    clattn__stage_int(plan, stage, !clattn__given(norms));
    clattn__stage_int(plan, stage, x->g->grad.accumulate);
    clattn__stage_range(stage, clattn__ceil_div(x->m->model_size, CHUNK), 1, 1, clattn__cas_group(x->target));
}

static void convolutions(clattn__plan *plan, const mix *x) {
    clattn__stage *stage = append(plan, x, "cas_backward_last");
    const clattn__operand last[] = {x->m->qkv,    x->m->gates, x->m->channel_gates, x->m->dwc, x->m->proj,
                                    x->g->grad_y, x->grad_m,   x->g->grad_qkv,      x->sums};
    clattn__stage_operands(plan, stage, last, 9);
    cover(plan, stage, x, 1, true);
    to_weights(plan, x, x->sums, LAST_ROWS, clattn__none(), &x->g->proj);

    stage = append(plan, x, "cas_backward_mix");
    const clattn__operand inner[] = {x->m->qkv, x->m->gates, x->m->channel_gates, x->m->dwc, x->grad_m,
                                     x->grad_z, x->sums};
    clattn__stage_operands(plan, stage, inner, 7);
    cover(plan, stage, x, 1, true);
    to_weights(plan, x, x->sums, MIX_ROWS, clattn__none(), &x->g->dwc);
}

/* The channel gates: their matrices, and the means that they are made from. */
static void channels(clattn__plan *plan, const mix *x) {
    const int64_t d = x->m->model_size, batch = x->m->batch;
    const int group = clattn__cas_group(x->target), vw = clattn__cas_vector(x->target, d);
    clattn__stage *stage = append(plan, x, "cas_backward_channel");
    const clattn__operand operands[] = {x->sums, x->m->channel_gates, x->channel_slopes};
    clattn__stage_operands(plan, stage, operands, 3);
    clattn__stage_long(plan, stage, x->bands);
    clattn__stage_range(stage, clattn__ceil_div(d, (int64_t)group * vw), batch, 2, group);
    for (int o = 0; o < 2; o++)
        clattn__cas_add_outer(plan, x->target,
                              &(clattn__cas_outer){.batch = batch,
                                                   .out = d,
                                                   .in = d,
                                                   .row_head = d,
                                                   .a = after(x->channel_slopes, o * batch * d),
                                                   .x = after(x->m->means, o * batch * d),
                                                   .s = clattn__none(),
                                                   .dw = x->g->channels[o],
                                                   .db = clattn__none(),
                                                   .grad = x->g->grad});
    clattn__cas_apply_flipped(
        plan, x->target,
        &(clattn__cas_flipped){.batch = batch,
                               .heads = 2,
                               .rows = d,
                               .size = d,
                               .w = x->m->channels,
                               .from = x->channel_slopes,
                               .to = x->grad_means,
                               .from_batch_stride = d,
                               .from_head_stride = batch * d,
                               .to_batch_stride = d,
                               .to_head_stride = batch * d,
                               .scale = (float)(1 / ((double)x->m->height * (double)x->m->width))});
}

static void operators(clattn__plan *plan, const mix *x) {
    const size_t group = (size_t)clattn__cas_group(x->target);
    clattn__stage *stage = append(plan, x, "cas_backward_gate");
    const clattn__operand gate[] = {x->m->qkv, x->grad_z, x->m->gates, x->m->channel_gates, x->grad_means, x->slopes};
    clattn__stage_operands(plan, stage, gate, 6);
    stage->local_bytes = group == 1 ? 0 : sizeof(float) * group * (size_t)clattn__cas_strip_pixels(x->target);
    cover(plan, stage, x, 2, false);

    stage = append(plan, x, "cas_backward_operator");
    const clattn__operand convolution[] = {x->m->qkv, x->m->operators, x->slopes, x->grad_h, x->sums};
    clattn__stage_operands(plan, stage, convolution, 5);
    cover(plan, stage, x, 2, true);
    for (int o = 0; o < 2; o++)
        to_weights(plan, x, after(x->sums, o * band_floats(x, CLATTN__CAS_GATE_ROWS)), CLATTN__CAS_GATE_ROWS,
                   after(x->g->norms, o * CLATTN__CAS_NORM_ROWS * x->m->model_size), &x->g->operators[o]);

    stage = append(plan, x, "cas_backward_spatial");
    const clattn__operand spatial[] = {x->grad_h,           x->m->operators, x->grad_z,     x->m->gates,
                                       x->m->channel_gates, x->grad_means,   x->g->grad_qkv};
    clattn__stage_operands(plan, stage, spatial, 7);
    cover(plan, stage, x, 2, false);
}

void clattn__cas_mix_backward(clattn__plan *plan, const clattn__target *target, const clattn__cas_image *image,
                              const clattn__cas_image_grad *g) {
    const uint64_t mark = plan->workspace_used;
    const int64_t d = image->model_size;
    mix x = {.target = target, .m = image, .g = g, .strips = clattn__cas_strips(target, image)};
    x.span = clattn__cas_span(target, image->batch, x.strips, 1);
    x.bands = clattn__ceil_div(x.strips, x.span);
    x.sums = clattn__plan_scratch(plan, band_floats(&x, 2 * CLATTN__CAS_GATE_ROWS));
    x.channel_slopes = clattn__plan_scratch(plan, 2 * image->batch * d);
    x.grad_means = clattn__plan_scratch(plan, 2 * image->batch * d);
    x.slopes = clattn__plan_scratch(plan, 2 * pixels(&x));
    x.grad_z = clattn__plan_scratch(plan, pixels(&x) * d);
    x.grad_h = clattn__plan_scratch(plan, 2 * pixels(&x) * d);
    x.grad_m = x.grad_h; /* read for the last time before that is written */
    convolutions(plan, &x);
    channels(plan, &x);
    operators(plan, &x);
    clattn__plan_release(plan, mark);
}
