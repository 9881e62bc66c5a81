/* dense: softmax attention, the yardstick.
 *
 *     o[b,h,i] = sum_j p_ij v[b,h',j],   p = softmax_j(scale * q[b,h,i] . k[b,h',j] + bias[b,h,i,j])
 *
 * over the keys that query i sees; h' = h / (H / Hkv). Source: Vaswani et al., "Attention Is All You Need", 2017. Computed
 * in one pass over the keys with a running maximum (online softmax): memory O(M + N), no M x N array. A
 * query that sees no key gets o = 0 and lse = -inf. What hidden keys hold, NaN included, has no effect.
 */
#ifndef CLATTN_DENSE_H
#define CLATTN_DENSE_H

#include <clattn/causal.h>
#include <clattn/layer.h>

/* Tensors of a core's plan. */
typedef enum clattn_dense_slot {
    CLATTN_DENSE_Q,
    CLATTN_DENSE_K,
    CLATTN_DENSE_V,
    CLATTN_DENSE_O,
    CLATTN_DENSE_BIAS,
    CLATTN_DENSE_LSE,
    CLATTN_DENSE_KEY_LENGTHS,
    CLATTN_DENSE_QUERY_LENGTHS,
    CLATTN_DENSE_SAVED,     /* [clattn_plan_saved_count], F32, where problem.train: written by forward, read by backward */
    CLATTN_DENSE_GRAD_O,    /* backward: in, beside o and every input of forward */
    CLATTN_DENSE_GRAD_Q,    /* backward: out, like all that follow */
    CLATTN_DENSE_GRAD_K,
    CLATTN_DENSE_GRAD_V,
    CLATTN_DENSE_GRAD_BIAS,
    CLATTN_DENSE_SLOTS
} clattn_dense_slot;

/* A core problem: layouts (memory and offset are ignored) and parameters. Zero-initialise.
 * q [B,H,M,D], k [B,Hkv,N,D], v [B,Hkv,N,Dv], o [B,H,M,Dv]: f32, f16 or bf16, all four of one type; D and
 *     Dv 1..256; Hkv divides H. Any strides with innermost 1, so [B,n,H,D] memory is a matter of strides
 * bias  [B,H,M,N], f32, added to the scaled scores; stride 0 broadcasts; -inf hides a key. rank 0: none
 * lse   [B,H,M], f32, out: log of the sum of exponentials, natural. rank 0: none
 * key_lengths, query_lengths  [B], I32: keys and queries at and past them are padding, never read, and
 *     padding queries get o = 0, lse = -inf. Values are clamped to 0..N and 0..M. rank 0: none
 * scale  0 (default) means 1/sqrt(D)
 * causal see clattn_causal
 * windowed, window_left, window_right  when windowed: key j is seen only if -window_left <= j - p <= window_right, with
 *     p = i for top-left or no causal and p = i + N - M for bottom-right; -1 = unlimited on that side
 * train  plan a backward pass too (clattn_enqueue_backward), with dS = P (dO V^T - dO . O): dQ = scale dS K, dK = scale dS^T Q,
 *     dV = P^T dO, dBias = dS. It takes the inputs of the forward call, and its o. Of a query that sees nothing,
 *     of a key that nobody sees and of padding the gradients are 0, whatever grad_o holds there
 * grad_o, grad_q, grad_k, grad_v  where train: layouts of the gradients, shapes and type of o, q, k, v; overwritten
 * grad_bias  where train, f32, [B,H,M,N]; an extent may be 1 instead: then summed over that axis. rank 0: not wanted */
typedef struct clattn_dense_problem {
    clattn_tensor q, k, v, o;
    clattn_tensor bias, lse;
    clattn_tensor key_lengths, query_lengths;
    float scale;
    clattn_causal causal;
    bool windowed;
    int64_t window_left, window_right;
    bool train;
    clattn_tensor grad_o, grad_q, grad_k, grad_v, grad_bias;
} clattn_dense_problem;

/* Plan a core; tensors are numbered by clattn_dense_slot.
 * Errors: INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE (field and both values), UNSUPPORTED (head size above 256, with the
 * reason), BUILD_FAILED, OpenCL's codes. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_dense_plan(clattn_context *context,
                                                             const clattn_dense_problem *problem, clattn_plan **plan);

/* The layer of torch.nn.MultiheadAttention (batch first, self-attention, no dropout):
 * y = out_proj(attention(x in_proj^T)). Weights: in_proj_weight [3d,d], in_proj_bias [3d], out_proj.weight
 * [d,d], out_proj.bias [d].
 * model_size  d, a multiple of heads       heads   H >= 1; head size d/H 1..256
 * causal      default false                scale   0 (default) means 1/sqrt(d/H) */
typedef struct clattn_dense_layer_desc {
    int64_t model_size, heads;
    bool causal;
    float scale;
} clattn_dense_layer_desc;

/* Create a layer. Settings by text: causal, scale. Errors: INVALID_ARGUMENT (field and both values), UNSUPPORTED,
 * OpenCL's codes. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_dense_layer(clattn_context *context,
                                                              const clattn_dense_layer_desc *desc, clattn_layer **layer);

#endif
