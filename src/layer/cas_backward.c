/* The cas layers, backwards. */
#include "variant/cas_backward.h"

#include "core/fill.h"
#include "layer/cas.h"

typedef clattn_cas_layer_desc description;

/* ---- shared ---- */

static clattn__operand grad_of(int weight) { return clattn__slot(CLATTN_LAYER_GRAD_WEIGHTS + weight); }

static clattn__cas_grad grad_like(const clattn_layer_shape *shape) {
    return (clattn__cas_grad){shape->grad_type, shape->accumulate};
}

/* ---- additive ---- */

static clattn__linear_grad linear_grad(const description *d, const clattn_layer_shape *shape, int buffer, int weight) {
    const int64_t size = d->model_size;
    return (clattn__linear_grad){.linear = clattn__cas_square(d),
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x_batch_stride = shape->length * size,
                                 .x_row_stride = size,
                                 .lengths = clattn__none(),
                                 .resident = clattn__cas_resident(buffer, 0),
                                 .dw = {grad_of(weight), clattn__none(), clattn__none()},
                                 .db = {grad_of(weight + 1), clattn__none(), clattn__none()},
                                 .grad_type = shape->grad_type,
                                 .accumulate = shape->accumulate};
}

/* They have no effect, so that their gradients are 0. */
static void clear_unused(const description *d, const clattn_layer_shape *shape, clattn__plan *plan) {
    const int64_t size = d->model_size;
    if (shape->accumulate)
        return;
    clattn__fill_append(plan, grad_of(CONV_Q), size * size * d->kernel, shape->grad_type, 0);
    clattn__fill_append(plan, grad_of(CONV_Q_BIAS), size, shape->grad_type, 0);
    clattn__fill_append(plan, grad_of(CONV_K_BIAS), size, shape->grad_type, 0);
}

static clattn__cas_shape heads_of(const description *d, const clattn_layer_shape *shape, int64_t size) {
    return (clattn__cas_shape){shape->batch, d->heads, shape->length, size, clattn__cas_input_of(shape).lengths};
}

/* Backwards through a matrix that a row went through: [B, d / row_head, d] from the row's gradient [B, d]. */
static clattn__operand apply_plain(const description *d, const clattn__target *target, clattn__plan *plan,
                                   int64_t batch, int buffer, int64_t row_head, clattn__operand from) {
    const int64_t size = d->model_size, heads = size / row_head;
    const clattn__operand to = clattn__plan_scratch(plan, batch * heads * size);
    clattn__cas_apply_flipped(plan, target,
                              &(clattn__cas_flipped){.batch = batch,
                                                     .heads = heads,
                                                     .rows = row_head,
                                                     .size = size,
                                                     .w = clattn__cas_resident(buffer, 0),
                                                     .from = from,
                                                     .to = to,
                                                     .from_batch_stride = size,
                                                     .from_head_stride = row_head,
                                                     .to_batch_stride = heads * size,
                                                     .to_head_stride = size,
                                                     .scale = 1});
    return to;
}

/* Gradients of the two matrices; returns that of the means of x. */
static clattn__operand backward_rows(const description *d, const clattn_layer_shape *shape,
                                     const clattn__target *target, clattn__plan *plan,
                                     const clattn__cas_plain_saved *saved) {
    const int64_t size = d->model_size, batch = shape->batch;
    const clattn__cas_shape all = {batch, 1, shape->length, size, clattn__cas_input_of(shape).lengths};
    const clattn__cas_tensor y = {{CLATTN_LAYER_GRAD_Y, 0}, shape->type, shape->length * size, 0, size};
    const clattn__operand rows = clattn__cas_sum_rows(plan, target, &all, &y, true);
    clattn__cas_outer outer = {.batch = batch, .out = size, .in = size, .row_head = size, .grad = grad_like(shape)};
    outer.a = rows;
    outer.x = saved->value;
    outer.s = (clattn__operand){rows.slot, rows.offset + batch * size};
    outer.dw = grad_of(PROJ);
    outer.db = grad_of(PROJ_BIAS);
    clattn__cas_add_outer(plan, target, &outer);

    const clattn__operand values = apply_plain(d, target, plan, batch, KEEP_PROJ, size, rows);
    outer.row_head = size / d->heads;
    outer.a = outer.s = values;
    outer.x = saved->pool.means;
    outer.dw = grad_of(VALUE);
    outer.db = grad_of(VALUE_BIAS);
    clattn__cas_add_outer(plan, target, &outer);
    return apply_plain(d, target, plan, batch, KEEP_VALUE, outer.row_head, values);
}

static void backward_plain(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                           clattn__plan *plan) {
    const int64_t size = d->model_size, n = shape->length;
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = clattn__cas_input_of(shape);
    const clattn__cas_plain_saved saved = clattn__cas_save_plain(plan, d, shape);
    const clattn__operand rows = backward_rows(d, shape, target, plan, &saved);
    const clattn__cas_shape heads = heads_of(d, shape, size);
    const clattn__cas_tensor x = {input.x, shape->type, n * size, 0, size};
    const clattn__operand scores = clattn__plan_scratch(plan, shape->batch * d->heads * n);
    const clattn__operand slopes = clattn__cas_slopes_make(plan, &heads);
    clattn__cas_scores(plan, &filters, &input, scores);
    clattn__cas_weigh(plan, target, &heads, scores, scores, &saved.pool, rows, &x, slopes);
    clattn__cas_convolve_backward(plan, target, &filters, &input,
                                  &(clattn__cas_convolved){.base = clattn__none(),
                                                           .weights = scores,
                                                           .rows = rows,
                                                           .slopes = slopes,
                                                           .dx = {CLATTN_LAYER_GRAD_X, 0},
                                                           .dw = grad_of(CONV_K),
                                                           .grad = grad_like(shape)});
    clear_unused(d, shape, plan);
}

/* The scan, between the gradient of its outputs and those of values and scores. */
static clattn__operand backward_scan(const description *d, const clattn_layer_shape *shape,
                                     const clattn__target *target, clattn__plan *plan,
                                     const clattn__cas_causal_saved *saved, clattn__operand grad_o,
                                     clattn__operand grad_v) {
    const clattn__cas_shape heads = heads_of(d, shape, d->model_size / d->heads);
    const clattn__operand slopes = clattn__cas_slopes_make(plan, &heads);
    clattn__cas_scan_backward(plan, target, &heads,
                              &(clattn__cas_scanned){.v = clattn__cas_heads(d, shape, saved->values),
                                                     .o = clattn__cas_heads(d, shape, saved->outputs),
                                                     .grad_o = clattn__cas_heads(d, shape, grad_o),
                                                     .grad_v = clattn__cas_heads(d, shape, grad_v),
                                                     .steps = saved->steps,
                                                     .slopes = slopes});
    return slopes;
}

static void backward_causal(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                            clattn__plan *plan) {
    const int64_t count = shape->batch * shape->length * d->model_size;
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = clattn__cas_input_of(shape);
    const clattn__cas_causal_saved saved = clattn__cas_save_causal(plan, d, shape);
    const clattn__operand grad_o = clattn__plan_scratch(plan, count), grad_v = clattn__plan_scratch(plan, count);
    /* in f32 until it is whole */
    const clattn__operand base =
        shape->type == CLATTN_F32 ? clattn__slot(CLATTN_LAYER_GRAD_X) : clattn__plan_scratch(plan, count);

    clattn__linear_grad finish = linear_grad(d, shape, KEEP_PROJ, PROJ);
    finish.x = saved.outputs;
    finish.dy = clattn__slot(CLATTN_LAYER_GRAD_Y);
    finish.dy_type = shape->type;
    finish.dx = grad_o;
    clattn__linear_backward(plan, target, &finish);
    const clattn__operand slopes = backward_scan(d, shape, target, plan, &saved, grad_o, grad_v);

    clattn__linear_grad project = linear_grad(d, shape, KEEP_VALUE, VALUE);
    project.x = input.x;
    project.x_type = shape->type;
    project.lengths = input.lengths;
    project.dy = grad_v;
    project.dx = base;
    clattn__linear_backward(plan, target, &project);
    clattn__cas_convolve_backward(plan, target, &filters, &input,
                                  &(clattn__cas_convolved){.base = base,
                                                           .weights = clattn__none(),
                                                           .rows = clattn__none(),
                                                           .slopes = slopes,
                                                           .dx = {CLATTN_LAYER_GRAD_X, 0},
                                                           .dw = grad_of(CONV_K),
                                                           .grad = grad_like(shape)});
    clear_unused(d, shape, plan);
}

void clattn__cas_backward_additive(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                                   clattn__plan *plan) {
    (d->causal ? backward_causal : backward_plain)(d, shape, target, plan);
}

/* ---- vit ---- */

static clattn__cas_taps_grad plain_taps(int weight) {
    return (clattn__cas_taps_grad){grad_of(weight), grad_of(weight + 1), clattn__none(), clattn__none(),
                                   clattn__none()};
}

static clattn__cas_taps_grad operator_taps(int slot) {
    return (clattn__cas_taps_grad){grad_of(slot + TAPS), grad_of(slot + TAPS_BIAS), grad_of(slot + NORM),
                                   grad_of(slot + NORM_BIAS), grad_of(slot + GATE)};
}

static void backward_qkv(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                         clattn__plan *plan, clattn__operand grad_qkv) {
    const int64_t size = d->model_size;
    clattn__linear_grad grad = linear_grad(d, shape, KEEP_QKV, QKV);
    grad.linear = clattn__cas_qkv(d);
    grad.x = clattn__slot(CLATTN_LAYER_X);
    grad.x_type = shape->type;
    grad.dy = grad_qkv;
    grad.dx = clattn__slot(CLATTN_LAYER_GRAD_X);
    grad.dx_type = shape->type;
    for (int s = 0; s < 3; s++) {
        grad.dw[s] = (clattn__operand){grad_of(QKV).slot, s * size * size};
        grad.db[s] = d->qkv_bias ? (clattn__operand){grad_of(QKV_BIAS).slot, s * size} : clattn__none();
    }
    clattn__linear_backward(plan, target, &grad);
}

void clattn__cas_backward_vit(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan) {
    const clattn__cas_image image = clattn__cas_save_vit(plan, d, shape);
    const clattn__operand grad_qkv = clattn__plan_scratch(plan, shape->batch * shape->length * 3 * d->model_size);
    clattn__cas_mix_backward(
        plan, target, &image,
        &(clattn__cas_image_grad){.norms = clattn__cas_resident(KEEP_NORMS, 0),
                                  .grad_y = {CLATTN_LAYER_GRAD_Y, 0},
                                  .grad_qkv = grad_qkv,
                                  .operators = {operator_taps(OPERATOR_Q), operator_taps(OPERATOR_K)},
                                  .dwc = plain_taps(DWC),
                                  .proj = plain_taps(LAST),
                                  .channels = {grad_of(OPERATOR_Q + CHANNELS), grad_of(OPERATOR_K + CHANNELS)},
                                  .grad = grad_like(shape)});
    backward_qkv(d, shape, target, plan, grad_qkv);
}
