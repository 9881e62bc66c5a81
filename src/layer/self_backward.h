/* The shared ends of self-attention layers, backwards. */
#ifndef CLATTN_LAYER_SELF_BACKWARD_H
#define CLATTN_LAYER_SELF_BACKWARD_H

#include "layer/self.h"
#include "variant/attention_backward.h"

/* Where the gradients of a layer's projections go: Q's, K's and V's weights and biases, then the output's. */
typedef struct clattn__self_weights {
    clattn__operand weight[3], bias[3], out_weight, out_bias;
} clattn__self_weights;

/* One weight [3d, d] and bias [3d] of all three; slots are those of the load plan. */
clattn__self_weights clattn__self_weights_joined(int64_t model_size, int in_weight, int in_bias, int out_weight,
                                                 int out_bias);

/* Append dO and the gradients of the output projection. The gradients of q, k and v are left to the core, which writes
 * every row of them, side by side. */
clattn__core_gradients clattn__self_backward_output(clattn__plan *plan, const clattn__target *target,
                                                    const clattn__self *self, const clattn_layer_shape *shape,
                                                    const clattn__self_weights *weights);

/* Append GRAD_X and the gradients of the projections of x, from what the core wrote. */
void clattn__self_backward_project(clattn__plan *plan, const clattn__target *target, const clattn__self *self,
                                   const clattn_layer_shape *shape, const clattn__self_weights *weights,
                                   const clattn__core_gradients *gradients);

#endif
