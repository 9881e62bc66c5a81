/* The shared ends of self-attention layers, backwards. */
#include "layer/self_backward.h"

static clattn__operand gradient_of(int weight, int64_t offset) {
    return (clattn__operand){CLATTN_LAYER_GRAD_WEIGHTS + weight, offset};
}

clattn__self_weights clattn__self_weights_joined(int64_t d, int in_weight, int in_bias, int out_weight, int out_bias) {
    clattn__self_weights w = {.out_weight = gradient_of(out_weight, 0), .out_bias = gradient_of(out_bias, 0)};
    for (int section = 0; section < 3; section++) {
        w.weight[section] = gradient_of(in_weight, section * d * d);
        w.bias[section] = gradient_of(in_bias, section * d);
    }
    return w;
}

static int64_t model_size(const clattn__self *self) { return self->sizes.heads * self->sizes.head_size; }

static clattn__linear_grad linear_grad(const clattn__self *self, const clattn_layer_shape *shape, int sections,
                                       int resident) {
    const int64_t d = model_size(self);
    return (clattn__linear_grad){.linear = {.in = d, .out = d, .sections = sections, .bias = true},
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .lengths = clattn__none(),
                                 .resident = clattn__resident(resident),
                                 .grad_type = shape->grad_type,
                                 .accumulate = shape->accumulate};
}

/* The output projection reads o, which is 0 at padding; y there is the bias, whose gradient counts it. */
static void output_projection(clattn__plan *plan, const clattn__target *target, const clattn__self *self,
                              const clattn_layer_shape *shape, const clattn__self_weights *weights,
                              clattn__operand dx) {
    clattn__linear_grad grad = linear_grad(self, shape, 1, CLATTN__RESIDENT_OUT);
    grad.x = self->o.at;
    grad.x_batch_stride = self->o.batch_stride;
    grad.x_row_stride = self->o.row_stride;
    grad.dy = clattn__slot(CLATTN_LAYER_GRAD_Y);
    grad.dy_type = shape->type;
    grad.dx = dx;
    grad.dw[0] = weights->out_weight;
    grad.db[0] = weights->out_bias;
    clattn__linear_backward(plan, target, &grad);
}

clattn__core_gradients clattn__self_backward_output(clattn__plan *plan, const clattn__target *target,
                                                    const clattn__self *self, const clattn_layer_shape *shape,
                                                    const clattn__self_weights *weights) {
    const int64_t n = shape->length, d = model_size(self), dh = self->sizes.head_size;
    const clattn__operand o = clattn__plan_scratch(plan, shape->batch * n * d);
    const clattn__operand qkv = clattn__plan_scratch(plan, shape->batch * n * 3 * d);
    output_projection(plan, target, self, shape, weights, o);
    return (clattn__core_gradients){.o = {o, CLATTN_F32, n * d, dh, d},
                                    .q = {qkv, CLATTN_F32, n * 3 * d, dh, 3 * d},
                                    .k = {{qkv.slot, qkv.offset + d}, CLATTN_F32, n * 3 * d, dh, 3 * d},
                                    .v = {{qkv.slot, qkv.offset + 2 * d}, CLATTN_F32, n * 3 * d, dh, 3 * d}};
}

void clattn__self_backward_project(clattn__plan *plan, const clattn__target *target, const clattn__self *self,
                                   const clattn_layer_shape *shape, const clattn__self_weights *weights,
                                   const clattn__core_gradients *gradients) {
    const int64_t d = model_size(self);
    clattn__linear_grad grad = linear_grad(self, shape, 3, CLATTN__RESIDENT_QKV);
    grad.x = clattn__slot(CLATTN_LAYER_X);
    grad.x_type = shape->type;
    grad.x_batch_stride = shape->length * d;
    grad.x_row_stride = d;
    grad.lengths = self->lengths;
    grad.dy = gradients->q.at;
    grad.dx = clattn__slot(CLATTN_LAYER_GRAD_X);
    grad.dx_type = shape->type;
    for (int section = 0; section < 3; section++) {
        grad.dw[section] = weights->weight[section];
        grad.db[section] = weights->bias[section];
    }
    clattn__linear_backward(plan, target, &grad);
}
