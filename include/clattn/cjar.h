/* cjar: local window, learnt global memory and random links, in one softmax.
 *
 *     o[b,h,i] = sum_j p_ij v[b,h,j] + sum_t p_it memory_v[h,t]
 *
 * p is the softmax of scale * q_i . k_j over the keys that query i sees: -window_left <= j - i <= window_right, or (i, j) is
 * a link; and over every memory row t, always. Source: the layer named CJAR in the tutorial that the project started
 * from; windows and global tokens after Beltagy et al., "Longformer", 2020, random links after Zaheer et al., "Big
 * Bird", 2020. Cost O(n (window + memory + links per query)); no n x n array, no n x n scan.
 */
#ifndef CLATTN_CJAR_H
#define CLATTN_CJAR_H

#include <clattn/layer.h>

/* What a hidden score does. Keys hidden by causal or padding are excluded either way. */
typedef enum clattn_cjar_masked {
    CLATTN_CJAR_EXCLUDE = 0,  /* leaves the softmax */
    CLATTN_CJAR_MULTIPLY = 1, /* counts as a score of 0: softmax(S * M), the tutorial's formula */
} clattn_cjar_masked;

typedef enum clattn_cjar_scale {
    CLATTN_CJAR_SCALE_BY_HEAD = 0,  /* 1/sqrt(head size) */
    CLATTN_CJAR_SCALE_BY_MODEL = 1, /* 1/sqrt(heads * head size) */
} clattn_cjar_scale;

/* ---- links ---- */

/* A sorted list of extra keys for each query, on the host: query i has keys[starts[i]] .. keys[starts[i+1]-1], ascending, each
 * once. The caller copies both arrays into buffers of the device. Thread-safety: constant once made. */
typedef struct clattn_links {
    int64_t length;  /* n */
    int64_t count;   /* starts[n] */
    int64_t *starts; /* [n + 1] */
    int32_t *keys;   /* [count] */
} clattn_links;

/* Build a list from pairs (query, key), any order, repetitions allowed: pairs[2*e], pairs[2*e + 1]. Pairs inside a window may
 * stay: a layer counts each key once. *bad, when not NULL, receives the first pair outside 0..length-1, else -1.
 * Errors: INVALID_ARGUMENT (a NULL, a length outside 0..INT32_MAX, a pair outside 0..length-1), OUT_OF_HOST_MEMORY. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_links_from_pairs(const int64_t *pairs, int64_t count, int64_t length,
                                                                   int64_t *bad, clattn_links *links);

/* Draw a list: each pair outside the window, independently, with probability p. The same seed gives the same list on every
 * machine. Costs O(n + links). window_left, window_right: -1 = unlimited.
 * Errors: INVALID_ARGUMENT (a NULL, p outside 0..1, a length outside 0..INT32_MAX), OUT_OF_HOST_MEMORY. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_links_draw(int64_t length, int64_t window_left, int64_t window_right,
                                                             double p, uint64_t seed, clattn_links *links);

/* Free what the two above allocated; a zeroed list and NULL are accepted. */
CLATTN_API void clattn_links_finish(clattn_links *links);

/* ---- core ---- */

typedef enum clattn_cjar_slot {
    CLATTN_CJAR_Q,
    CLATTN_CJAR_K,
    CLATTN_CJAR_V,
    CLATTN_CJAR_O,
    CLATTN_CJAR_MEMORY_K,
    CLATTN_CJAR_MEMORY_V,
    CLATTN_CJAR_LINK_ROWS,
    CLATTN_CJAR_LINK_KEYS,
    CLATTN_CJAR_LENGTHS,
    CLATTN_CJAR_SAVED,  /* [clattn_plan_saved_count], F32, where problem.train: written by forward, read by backward */
    CLATTN_CJAR_GRAD_O, /* backward: in, beside o and every input of forward */
    CLATTN_CJAR_GRAD_Q, /* backward: out, like all that follow */
    CLATTN_CJAR_GRAD_K,
    CLATTN_CJAR_GRAD_V,
    CLATTN_CJAR_GRAD_MEMORY_K,
    CLATTN_CJAR_GRAD_MEMORY_V,
    CLATTN_CJAR_SLOTS
} clattn_cjar_slot;

/* A core problem: layouts (memory and offset are ignored) and parameters. Zero-initialise, then set the windows.
 * q, k, v, o  [B,H,n,D], one type of f32, f16, bf16; D 1..256; any strides with innermost 1
 * memory_k, memory_v  [H,m,D], f32; both or neither (rank 0)
 * link_rows [n+1] I64, link_keys [links] I32: clattn_links' arrays; both or neither
 * lengths   [B] I32: tokens at and past it are padding: never read, output 0. rank 0: none
 * scale     0 (default) means 1/sqrt(D)
 * window_left, window_right  inclusive, >= 0; -1 = unlimited
 * causal    only keys j <= i, links included
 * masked    see clattn_cjar_masked
 * train     plan a backward pass too (clattn_enqueue_backward). It takes the inputs of the forward call, and its o. Gradients
 *           at padding are 0, whatever grad_o holds there; at most 2^31 - 1 links
 * grad_o, grad_q, grad_k, grad_v  where train: layouts of the gradients, shapes and type of o, q, k, v; overwritten
 * grad_memory_k, grad_memory_v    where train and with memory: [H,m,D], f32; overwritten */
typedef struct clattn_cjar_problem {
    clattn_tensor q, k, v, o;
    clattn_tensor memory_k, memory_v;
    clattn_tensor link_rows, link_keys;
    clattn_tensor lengths;
    float scale;
    int64_t window_left, window_right;
    bool causal;
    clattn_cjar_masked masked;
    bool train;
    clattn_tensor grad_o, grad_q, grad_k, grad_v, grad_memory_k, grad_memory_v;
} clattn_cjar_problem;

/* Plan a core; tensors are numbered by clattn_cjar_slot. Errors: as clattn_dense_plan. Thread-safety: any thread. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_cjar_plan(clattn_context *context, const clattn_cjar_problem *problem,
                                                            clattn_plan **plan);

/* ---- layer ---- */

/* y = to_out(core(x to_qkv^T)). Weights: to_qkv.weight [3d,d], to_qkv.bias [3d], to_out.weight [d,d], to_out.bias [d];
 * global_mem [m,d], split over the heads and joined to keys and values as it is, or global_mem_k and
 * global_mem_v when separate_memory.
 * model_size d, a multiple of heads; heads >= 1; head size d/H 1..256
 * memory      m >= 0, default 4          separate_memory  default false
 * window_left, window_right  default 64; -1 = unlimited
 * scale_by, masked, causal   defaults SCALE_BY_HEAD, EXCLUDE, false
 * A zeroed description has windows of 0 and no memory: start from CLATTN_CJAR_LAYER_DEFAULTS. */
typedef struct clattn_cjar_layer_desc {
    int64_t model_size, heads;
    int64_t memory;
    int64_t window_left, window_right;
    int scale_by; /* clattn_cjar_scale */
    int masked;   /* clattn_cjar_masked */
    bool separate_memory;
    bool causal;
} clattn_cjar_layer_desc;

#define CLATTN_CJAR_LAYER_DEFAULTS                                                                                     \
    {                                                                                                                  \
        .memory = 4, .window_left = 64, .window_right = 64                                                             \
    }

/* Create a layer. Settings by text: window-left, window-right (a number or "none"), scale-by (head, model), masked (exclude,
 * multiply), causal; memory is read off the checkpoint. Errors: as clattn_dense_layer. Thread-safety: any. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_cjar_layer(clattn_context *context,
                                                             const clattn_cjar_layer_desc *desc, clattn_layer **layer);

#endif
