/* dense: projections round the core, as torch.nn.MultiheadAttention has them. */
#include <math.h>

#include "layer/self_backward.h"
#include "variant/dense_backward.h"

enum { IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS, WEIGHTS };

static void defaults(void *desc) { *(clattn_dense_layer_desc *)desc = (clattn_dense_layer_desc){0}; }

static clattn_status check(const clattn_dense_layer_desc *desc, clattn__error *error) {
    if (!isfinite(desc->scale))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "scale is %g, but must be finite", (double)desc->scale);
    return clattn__self_check(desc->model_size, desc->heads, error);
}

static clattn_status load(const void *description, const clattn__target *target, clattn__load *load,
                          clattn__error *error) {
    const clattn_dense_layer_desc *desc = description;
    const int64_t d = desc->model_size;
    clattn_status status = check(desc, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__plan_init(&load->plan, WEIGHTS);
    clattn__weight_bind(&load->plan, IN_WEIGHT, "in_proj_weight", 3 * d, d);
    clattn__weight_bind(&load->plan, IN_BIAS, "in_proj_bias", 3 * d, 0);
    clattn__weight_bind(&load->plan, OUT_WEIGHT, "out_proj.weight", d, d);
    clattn__weight_bind(&load->plan, OUT_BIAS, "out_proj.bias", d, 0);
    clattn__self_load(load, target, CLATTN__RESIDENT_QKV,
                      &(clattn__linear){.in = d, .out = d, .sections = 3, .bias = true},
                      (clattn__operand[]){{IN_WEIGHT, 0}, {IN_WEIGHT, d * d}, {IN_WEIGHT, 2 * d * d}},
                      (clattn__operand[]){{IN_BIAS, 0}, {IN_BIAS, d}, {IN_BIAS, 2 * d}});
    clattn__self_load(load, target, CLATTN__RESIDENT_OUT,
                      &(clattn__linear){.in = d, .out = d, .sections = 1, .bias = true},
                      &(clattn__operand){OUT_WEIGHT, 0}, &(clattn__operand){OUT_BIAS, 0});
    return CLATTN_SUCCESS;
}

static clattn__dense core_of(const clattn_dense_layer_desc *desc, const clattn__self *self) {
    clattn__dense core = {.sizes = self->sizes,
                          .q = self->q,
                          .k = self->k,
                          .v = self->v,
                          .o = self->o,
                          .packed = self->packed,
                          .bias = clattn__none(),
                          .lse = clattn__none(),
                          .saved = self->lse,
                          .key_lengths = self->lengths,
                          .query_lengths = self->lengths,
                          .scale = desc->scale,
                          .left = -1,
                          .right = desc->causal ? 0 : -1};
    if (core.scale == 0)
        core.scale = 1.0f / sqrtf((float)self->sizes.head_size);
    return core;
}

static clattn_status forward(const void *description, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    const clattn_dense_layer_desc *desc = description;
    (void)error;
    const clattn__self self = clattn__self_project(plan, target, desc->model_size, desc->heads, shape, false);
    const clattn__dense core = core_of(desc, &self);
    clattn__dense_append(plan, target, &core);
    clattn__self_output(plan, target, desc->model_size, shape, self.o.at);
    return CLATTN_SUCCESS;
}

static clattn_status backward(const void *description, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan, clattn__error *error) {
    const clattn_dense_layer_desc *desc = description;
    (void)error;
    const clattn__self self = clattn__self_saved(plan, desc->model_size, desc->heads, shape);
    const clattn__self_weights weights =
        clattn__self_weights_joined(desc->model_size, IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS);
    const clattn__core_gradients gradients = clattn__self_backward_output(plan, target, &self, shape, &weights);
    const clattn__dense core = core_of(desc, &self);
    clattn__dense_backward_append(plan, target, &core, &gradients);
    clattn__self_backward_project(plan, target, &self, shape, &weights, &gradients);
    return CLATTN_SUCCESS;
}

static const clattn__option options[] = {
    {"causal", CLATTN__OPTION_FLAG, offsetof(clattn_dense_layer_desc, causal), 0, NULL},
    {"scale", CLATTN__OPTION_FLOAT, offsetof(clattn_dense_layer_desc, scale), 0, NULL},
    {0},
};

const clattn__variant clattn__variant_dense = {.name = "dense",
                                               .desc_size = sizeof(clattn_dense_layer_desc),
                                               .options = options,
                                               .defaults = defaults,
                                               .load = load,
                                               .forward = forward,
                                               .backward = backward,
                                               .core = clattn__dense_core,
                                               .core_trains = clattn__dense_core_trains,
                                               .core_backward = clattn__dense_core_backward};
