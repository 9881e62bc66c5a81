/* assa: adaptive sparse self-attention, in two modes. S = scale * q k^T.
 *
 * topk: each query keeps its k largest visible scores, all of them where it sees fewer; on a tie the lowest key wins.
 *
 *     o_i = sum over kept j of p_ij v_j
 *     p_i = softmax of the kept scores                 (CLATTN_ASSA_SELECTED)
 *     p_i = softmax of all visible scores, at the kept (CLATTN_ASSA_ALL; the rest is dropped, not spread)
 *
 * Computed in one pass over the keys; memory O(M + N), and O(M k) where the lists are asked for. A score of NaN counts
 * as the largest and makes its query's row NaN, as does +inf; a score of -inf is never kept. A query that sees no key
 * gets o = 0, no index, lse = -inf. What hidden keys hold, NaN included, has no effect. With k >= N both are dense
 * attention.
 *
 * adaptive: two branches mixed by a learnt pair w. Zhou et al., "Adapt or Perish: Adaptive Sparse Transformer with
 * Attentive Feature Refinement for Image Restoration", CVPR 2024.
 *
 *     S = scale * q k^T + bias + mask     o_i = sum_j (w'_0 softmax(S)_ij + w'_1 relu(S_ij)^2) v_j     w' = softmax(w)
 *
 * over the whole sequence without bias and mask; or inside windows: the tokens are a grid of rows x columns, row-major,
 * rolled by -shift along both axes and cut into windows of window x window tokens. Query (y, x) and key (y', x') of a
 * window have the bias table[(y - y' + window - 1) * (2 window - 1) + x - x' + window - 1][head]; where the
 * roll brought two tokens together that are not neighbours (Swin regions) the mask is -100, else 0. Outputs
 * stand where their queries stood. Computed in one pass, memory O(n).
 *
 * Gradients, with G = dO V^T and dQ = scale dS K, dK = scale dS^T Q in both modes:
 *
 *     topk      the choice is constant, ties included: the keys that forward kept. m_j = 1 for a kept key, else 0
 *               dV_j = sum_i m_ij p_ij dO_i     dS_ij = p_ij (m_ij G_ij - c_i)     c_i = sum over kept j of p_ij G_ij
 *               SELECTED: over the kept keys alone. ALL: over every visible key, dropped ones give -p_ij c_i
 *     adaptive  P = softmax(S), R = relu(S)     dV = (w'_0 P + w'_1 R^2)^T dO     D1_i = sum_j P_ij G_ij
 *               dS = w'_0 P (G - D1) + 2 w'_1 R G     dtable: the sum of dS over all pairs that an entry serves
 *               dw_t = w'_t (D_t - w'_0 D_0 - w'_1 D_1), D_0 and D_1 the sums of P G and R^2 G over all pairs
 *
 * Of a query that sees no key, of a key that nobody sees (SELECTED: keeps) and of padding they are 0, whatever dO holds
 * at such a query. One writer a gradient, which adds in one order: the same bits in every run.
 */
#ifndef CLATTN_ASSA_H
#define CLATTN_ASSA_H

#include <clattn/causal.h>
#include <clattn/layer.h>

typedef enum clattn_assa_mode {
    CLATTN_ASSA_TOPK = 0,
    CLATTN_ASSA_ADAPTIVE = 1,
} clattn_assa_mode;

typedef enum clattn_assa_normalise {
    CLATTN_ASSA_SELECTED = 0,
    CLATTN_ASSA_ALL = 1,
} clattn_assa_normalise;

/* ---- core ---- */

/* Tensors of a core's plan. */
typedef enum clattn_assa_slot {
    CLATTN_ASSA_Q,
    CLATTN_ASSA_K,
    CLATTN_ASSA_V,
    CLATTN_ASSA_O,
    CLATTN_ASSA_INDICES,
    CLATTN_ASSA_SCORES,
    CLATTN_ASSA_LSE,
    CLATTN_ASSA_KEY_LENGTHS,
    CLATTN_ASSA_QUERY_LENGTHS,
    CLATTN_ASSA_MIX,
    CLATTN_ASSA_TABLE,
    CLATTN_ASSA_SAVED,  /* [clattn_plan_saved_count], F32, where problem.train: written by forward, read by backward */
    CLATTN_ASSA_GRAD_O, /* backward: in, beside o and every input of forward */
    CLATTN_ASSA_GRAD_Q, /* backward: out, like all that follow */
    CLATTN_ASSA_GRAD_K,
    CLATTN_ASSA_GRAD_V,
    CLATTN_ASSA_GRAD_MIX,
    CLATTN_ASSA_GRAD_TABLE,
    CLATTN_ASSA_SLOTS
} clattn_assa_slot;

/* A core problem: layouts (memory and offset are ignored) and parameters. Zero-initialise.
 * q [B,H,M,D], k [B,Hkv,N,D], v [B,Hkv,N,Dv], o [B,H,M,Dv]: f32, f16 or bf16, all four of one type; D and
 *     Dv 1..256; Hkv divides H. Any strides with innermost 1. Mode adaptive: M = N
 * scale  0 (default) means 1/sqrt(D)
 * train  plan a backward pass too (clattn_enqueue_backward). It takes the inputs of the forward call, its o, and its
 *     indices, scores and lse where the problem has them: these must be contiguous, and are not saved again. SAVED
 *     holds the others that backward reads: indices and scores where top < N; lse where a softmax runs over all visible
 *     keys (ALL, top >= N, adaptive). At most 2^31 - 1 kept pairs a head
 * grad_o, grad_q, grad_k, grad_v  where train: layouts of the gradients, shapes and type of o, q, k, v; overwritten
 *
 * Mode topk only (rank 0: none)
 * top          k: 1 or more; more than a query sees is all that it sees
 * normalise    see above
 * causal       see clattn_causal
 * key_lengths, query_lengths  [B], I32: keys and queries at and past them are padding, never read, and padding
 *     queries see nothing. Values are clamped to 0..N and 0..M
 * indices      [B,H,M,top], I32, out: the kept keys in ascending order, then -1
 * scores       [B,H,M,top], f32, out: their scaled scores, then -inf; a NaN is given as +inf
 * lse          [B,H,M], f32, out: natural log of the sum of exponentials that p was divided by
 *
 * Mode adaptive only
 * mix          [2], f32: w before its softmax
 * window       0 (default): the whole sequence; else side of a window, up to 4096
 * grid         rows and columns, both multiples of window, rows * columns = N; {0, 0} means window x window
 * shift        0..window-1
 * table        [(2 window - 1)^2, H], f32, contiguous, where window > 0
 * grad_mix, grad_table  where train: as mix and table. rank 0: not wanted
 * accumulate   grad_mix and grad_table are added to what they hold; default: overwritten */
typedef struct clattn_assa_problem {
    clattn_tensor q, k, v, o;
    clattn_assa_mode mode;
    float scale;
    int64_t top;
    clattn_assa_normalise normalise;
    clattn_causal causal;
    clattn_tensor key_lengths, query_lengths;
    clattn_tensor indices, scores, lse;
    clattn_tensor mix, table;
    int64_t window, grid[2], shift;
    bool train, accumulate;
    clattn_tensor grad_o, grad_q, grad_k, grad_v, grad_mix, grad_table;
} clattn_assa_problem;

/* Plan a core; tensors are numbered by clattn_assa_slot.
 * Errors: INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE (field and both values), UNSUPPORTED (head size above 256, too many
 * kept pairs, with the reason), BUILD_FAILED, OpenCL's codes. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_assa_plan(clattn_context *context, const clattn_assa_problem *problem,
                                                            clattn_plan **plan);

/* ---- layer ---- */

/* Weights, under PyTorch's names:
 * topk      q_proj, k_proj, v_proj, out_proj: each .weight [d,d] and .bias [d]
 * adaptive  qkv.to_q.weight [d,d], .bias [d]; qkv.to_kv.weight [2d,d], .bias [2d]; proj.weight [d,d], .bias [d]; w [2];
 *           relative_position_bias_table [(2 window - 1)^2, heads] where window > 0
 *
 * model_size  d, a multiple of heads       heads  H >= 1; head size d/H 1..256
 * mode        default topk
 * topk: k (0 means 32), normalise (default selected), causal (default false)
 * adaptive: window (default 0), grid (default window x window), shift (default 0), as in the core. causal and
 *     lengths are refused: every token sees all of its window. A plan's length must be rows * columns of the grid */
typedef struct clattn_assa_layer_desc {
    int64_t model_size, heads;
    int mode; /* clattn_assa_mode */
    int64_t k;
    int normalise; /* clattn_assa_normalise */
    bool causal;
    int64_t window, grid[2], shift;
} clattn_assa_layer_desc;

/* Create a layer. Settings by text: mode (topk, adaptive), k, normalise (selected, all), causal, window, grid (HxW),
 * shift. Errors: INVALID_ARGUMENT, INVALID_SHAPE (field and both values), UNSUPPORTED, OpenCL's codes.
 * Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_assa_layer(clattn_context *context,
                                                             const clattn_assa_layer_desc *desc, clattn_layer **layer);

#endif
