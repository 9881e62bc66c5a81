/* aft: attention free transformer (Zhai et al., "An Attention Free Transformer", 2021) and its gated relatives.
 *
 * Queries never meet keys: each channel c averages or sums values over the tokens on its own, and sigmoid(Q) gates
 * the result. sigma is the sigmoid, i a query, j a visible key (j < length; j <= i where causal), [c] a channel:
 *
 *   GATED         y_i = sigma(Q_i) * p_h * sum_j K_j V_j                                     O(n d)
 *   GATED_MATRIX  y_i = sigma(q_i)^T (p_h sum_j k_j v_j^T), a matrix for each head h         O(n d dh)
 *   FULL          y_i = sigma(Q_i) * sum_j e^(K_j + w_ij) V_j / sum_j e^(K_j + w_ij)         O(n^2 d)
 *   LOCAL         FULL with w_ij = 0 where |i - j| >= local                                  O(n local d)
 *   SIMPLE        FULL with w = 0                                                            O(n d)
 *   CONV          FULL with one key a head, w_ij = f_h[j - i + taps/2] inside the taps, else 0   O(n taps d)
 *
 * w is a table [T, T] whose leading n x n is used, or left right^T with factors [T, rank]; n <= T. Every maximum that
 * is subtracted runs over the visible keys of one query and channel, so keys of any size, and any size of w, neither
 * overflow nor underflow. Accumulation is float32. A query that sees no key, and padding, gives 0.
 */
#ifndef CLATTN_AFT_H
#define CLATTN_AFT_H

#include <clattn/layer.h>

typedef enum clattn_aft_mode {
    CLATTN_AFT_GATED = 0,
    CLATTN_AFT_GATED_MATRIX = 1,
    CLATTN_AFT_FULL = 2,
    CLATTN_AFT_LOCAL = 3,
    CLATTN_AFT_SIMPLE = 4,
    CLATTN_AFT_CONV = 5,
} clattn_aft_mode;

/* The layer. Weights, in order: Wq, Wk, Wv, Wo, each `.weight` [out, d] and `.bias` [out] (out = d; heads for Wk of
 * CONV); then position_weights [heads, 1, 1] (GATED, GATED_MATRIX); w [max_length, max_length], or u and v
 * [max_length, rank] (FULL, LOCAL); conv.weight [heads, taps] and, with reparam, conv.gamma and conv.beta [heads]
 * (CONV): f = gamma (f - mean f) / sqrt(var f + 1e-5) + beta, mean and variance over the taps.
 *
 * model_size  d, a multiple of heads
 * heads       H, at least 1
 * mode        a clattn_aft_mode; default GATED
 * causal      default false
 * local       s >= 1: LOCAL keeps w where |i - j| < s; default 32
 * max_length  T >= 1: rows of w, or of u and v (FULL, LOCAL); longer sequences are refused
 * rank        columns of u and v; 0 (default): a table w
 * taps        odd, >= 1: columns of conv.weight (CONV); default 5
 * reparam     conv.gamma and conv.beta exist; default false
 *
 * clattn_layer_from_settings reads max_length, rank, taps and reparam off the checkpoint. */
typedef struct clattn_aft_layer_desc {
    int64_t model_size, heads;
    int mode;
    bool causal;
    int64_t local;
    int64_t max_length, rank;
    int64_t taps;
    bool reparam;
} clattn_aft_layer_desc;

/* Tensors of a core's plan. */
typedef enum clattn_aft_slot {
    CLATTN_AFT_Q,        /* [B, n, H, dh], in, before the sigmoid */
    CLATTN_AFT_K,        /* [B, n, H, dh], in; CONV: [B, n, H, 1] */
    CLATTN_AFT_V,        /* [B, n, H, dh], in */
    CLATTN_AFT_Y,        /* [B, n, H, dh], out; may be Q's memory and layout, but for GATED_MATRIX and where train */
    CLATTN_AFT_LENGTHS,  /* [B], I32, in, optional in the problem; values are clamped to 0..n */
    CLATTN_AFT_POSITION, /* [H], F32, in, optional in the problem (GATED, GATED_MATRIX): all 1 without it */
    CLATTN_AFT_W,        /* [T, T], F32, in (FULL, LOCAL) */
    CLATTN_AFT_W_LEFT,   /* [T, rank], F32, in: instead of W, with W_RIGHT */
    CLATTN_AFT_W_RIGHT,  /* [T, rank], F32, in */
    CLATTN_AFT_TAPS,     /* [H, taps], F32, in (CONV); taps odd */
    CLATTN_AFT_SAVED,    /* [clattn_plan_saved_count], F32, where problem.train; modes that average */
    CLATTN_AFT_GRAD_Y,   /* backward: shape and type of Y, in; what follows goes out, overwritten */
    CLATTN_AFT_GRAD_Q,   /* as Q; so with K and V */
    CLATTN_AFT_GRAD_K,
    CLATTN_AFT_GRAD_V,
    CLATTN_AFT_GRAD_POSITION, /* as POSITION, F32, optional in the problem; so with the others */
    CLATTN_AFT_GRAD_W,        /* 0 where no average looks: past n, past the band, at hidden keys */
    CLATTN_AFT_GRAD_W_LEFT,
    CLATTN_AFT_GRAD_W_RIGHT,
    CLATTN_AFT_GRAD_TAPS,
    CLATTN_AFT_SLOTS
} clattn_aft_slot;

/* The core, on the caller's own tensors: layouts only, memory comes at enqueue time. All strides are free but the
 * innermost (1). q, k and v share one type of f32, f16, bf16; y has any of them. Absent: all zero.
 *
 * mode    a clattn_aft_mode; default GATED
 * causal  default false
 * local   s >= 1, for LOCAL
 * train   plan a backward pass too (clattn_enqueue_backward); default false. It takes Q, K, V and what else forward took,
 *         Y (GATED) and SAVED as forward wrote them, and GRAD_Y; gradients at padding are 0, whatever GRAD_Y holds there
 * tensor  layouts by clattn_aft_slot; SAVED's is ignored */
typedef struct clattn_aft_problem {
    int mode;
    bool causal;
    int64_t local;
    bool train;
    clattn_tensor tensor[CLATTN_AFT_SLOTS];
} clattn_aft_problem;

/* Create a layer. desc is copied. Errors: INVALID_ARGUMENT (a field, with its value and range), UNSUPPORTED (the
 * device's allocations are too small), OpenCL's codes. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_aft_layer(clattn_context *context, const clattn_aft_layer_desc *desc,
                                                            clattn_layer **layer);

/* Plan the core. Errors: INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE (the tensor, what it has, what it must have),
 * UNSUPPORTED (the reason), BUILD_FAILED, OpenCL's codes. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_aft_plan(clattn_context *context, const clattn_aft_problem *problem,
                                                           clattn_plan **plan);

#endif
