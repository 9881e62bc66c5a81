/* Convolutional additive self-attention, in two forms.
 *
 * Additive: q = Conv1d(x) and k = Conv1d(x) along the tokens, v = Linear(x), and for each head
 *
 *     score_ij = sum_c (q_ic + k_jc)        o_i = sum_j softmax_j(score_ij * scale) v_j        y = Linear(o)
 *
 * The term of q is the same for every key, so the softmax cancels it: only sum_c k_jc counts. It follows that
 * every query of a sequence that is not causal has the same output row, and that conv_q, and conv_k's bias, have no
 * effect at all. The layer uses it: one read of x and one write of y, O(n d H) work; causal, O(n d) beside the
 * projections. Results are those of the formula above.
 *
 * ViT: the token mixer of CAS-ViT (Zhang et al., "CAS-ViT: Convolutional Additive Self-attention Vision Transformers
 * for Efficient Mobile Applications", 2024), with batch norm by its running statistics. On an image of channels:
 *
 *     q, k, v = conv1x1(x)       spatial(t) = t * sigmoid(conv1x1[d -> 1](relu(BN(dw3x3(t)))))
 *     phi(t) = channel(spatial(t))    channel(t) = t * sigmoid(conv1x1[d -> d](mean of t over the image))
 *     y = proj3x3(dwc3x3(phi_q(q) + phi_k(k)) * v)                 dw, dwc, proj: depthwise, zero padding
 */
#ifndef CLATTN_CAS_H
#define CLATTN_CAS_H

#include <clattn/layer.h>

/* ---- core: additive attention on the caller's own q, k, v ---- */

/* Tensors of a core's plan. */
typedef enum clattn_cas_slot {
    CLATTN_CAS_Q,       /* [B, H, n, D], in, where the problem has a q; may be absent when enqueueing: it cancels */
    CLATTN_CAS_K,       /* [B, H, n, D], in */
    CLATTN_CAS_V,       /* [B, H, n, DV], in */
    CLATTN_CAS_LENGTHS, /* [B], I32, in, where the problem has lengths; values are clamped to 0..n */
    CLATTN_CAS_O,       /* [B, H, n, DV], out */
    CLATTN_CAS_SAVED,   /* [clattn_plan_saved_count], F32, where problem.train: written by forward, read by backward */
    CLATTN_CAS_GRAD_O,  /* backward: in, beside o and every input of forward */
    CLATTN_CAS_GRAD_Q,  /* backward: out, like all that follow; where the problem has a q; all zeros */
    CLATTN_CAS_GRAD_K,
    CLATTN_CAS_GRAD_V,
    CLATTN_CAS_SLOTS
} clattn_cas_slot;

/* o_i = sum_j softmax_j((sum_c q_ic + sum_c k_jc) * scale) v_j. Zero-initialise for the defaults.
 * q        optional; only its layout is looked at, because it cancels
 * k, v, o  layouts; any storage type each, any strides that tensor.h allows; sizes D, DV >= 1
 * lengths  optional, I32 [B]: tokens at and past a length are padding. They are not read, and their rows of o are 0
 * causal   query i sees only keys j <= i
 * scale    0 = 1/sqrt(D) (default); else finite
 * train    plan a backward pass too (clattn_enqueue_backward): it takes the inputs of the forward call, and its o.
 *          Gradients at padding are 0, whatever grad_o holds there
 * grad_o, grad_k, grad_v, and grad_q with q   where train: layouts of the gradients, shapes of o, k, v, q, any storage
 *          type each; overwritten. A k or v of stride 0 has gradients for each place that it stands for */
typedef struct clattn_cas_problem {
    clattn_tensor q, k, v, lengths, o;
    bool causal;
    float scale;
    bool train;
    clattn_tensor grad_o, grad_q, grad_k, grad_v;
} clattn_cas_problem;

/* Plan a core; its tensors are numbered by clattn_cas_slot. Work O(n (D + DV) H); the workspace grows with n.
 * Errors: INVALID_ARGUMENT (NULL, scale), INVALID_SHAPE, INVALID_TYPE (naming the tensor and both values),
 * UNSUPPORTED, BUILD_FAILED, OpenCL's codes. Thread-safety: any thread, any time. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_cas_plan(clattn_context *context, const clattn_cas_problem *problem,
                                                           clattn_plan **plan);

/* ---- layer ---- */

typedef enum clattn_cas_mode {
    CLATTN_CAS_ADDITIVE = 0,
    CLATTN_CAS_VIT = 1,
} clattn_cas_mode;

/* Zero-initialise for the defaults, then set model_size and heads.
 * model_size  d >= 1
 * heads       H >= 1; additive: must divide model_size. vit: not used
 * mode        a clattn_cas_mode; default additive
 * causal      additive: query i sees only keys j <= i, and the convolutions look back only. vit: refused
 * kernel      additive: taps of conv_q and conv_k, 1, 3, 5, 7 or 9; default (0) is 3
 * grid        vit: image height and width; height times width must be the length of every plan
 * qkv_bias    vit: the 1x1 convolution has a bias, weight "qkv.bias"; default false
 *
 * Weights, additive: conv_q.weight, conv_k.weight [d, d, kernel], conv_q.bias, conv_k.bias [d]; linear_v.weight,
 * proj.weight [d, d], linear_v.bias, proj.bias [d]. conv_q and conv_k.bias are accepted and not used.
 * Weights, vit: qkv.weight [3d, d, 1, 1]; for O in oper_q, oper_k: O.0.block.0.weight [d, 1, 3, 3], .bias [d],
 * O.0.block.1.weight, .bias, .running_mean, .running_var [d], O.0.block.3.weight [1, d, 1, 1], O.1.block.1.weight
 * [d, d, 1, 1]; dwc.weight, proj.weight [d, 1, 3, 3], dwc.bias, proj.bias [d]. */
typedef struct clattn_cas_layer_desc {
    int64_t model_size;
    int64_t heads;
    int mode;
    bool causal;
    bool qkv_bias;
    int64_t kernel;
    int64_t grid[2];
} clattn_cas_layer_desc;

/* Create a layer. Its plans take lengths in additive mode only; rows of y at padding are proj's bias.
 * Errors: INVALID_ARGUMENT (a field, with its value), UNSUPPORTED, OpenCL's codes.
 * Thread-safety: any thread, any time. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_cas_layer(clattn_context *context, const clattn_cas_layer_desc *desc,
                                                            clattn_layer **layer);

#endif
