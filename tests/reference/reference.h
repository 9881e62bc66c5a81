/* What every layer computes, in float64 and as plainly as it can be said: the judge of the kernels.
 *
 * Everything is naive, O(n²) loops included, to be read beside the formulas of the documentation. Arrays
 * are contiguous and row-major: heads are [B, H, n, D], sequences [B, n, d]. A hidden key is never read, so
 * NaN in padding stays there; a query that sees no key gives 0 and a log-sum-exp of −inf.
 * Out of memory ends the program. No function keeps state. */
#ifndef CLATTN_TESTS_REFERENCE_H
#define CLATTN_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

/* ---- arrays ---- */

/* count zeros (or falses), for free(); count may be 0. */
double *ref_array(size_t count);
bool *ref_flags(size_t count);

/* Row (b, h, i) of t [B, H, n, D]. */
static inline const double *ref_row(const double *t, int H, int n, int D, int b, int h, int i) {
    return t + (((size_t)b * H + h) * n + i) * D;
}

double ref_dot(const double *a, const double *b, int count);
double ref_sigmoid(double t);

/* [B, n, H·D] -> [B, H, n, D] and back; new arrays. */
double *ref_split_heads(const double *t, int B, int n, int H, int D);
double *ref_merge_heads(const double *t, int B, int n, int H, int D);

/* ---- which keys a query sees ---- */

/* causal, bottom_right  key j is visible to query i if j ≤ i (top-left), or if j ≤ i + N − M (bottom-right). The
 *                       same shift moves the window; where lengths are given they stand for M and N
 * window_left, _right   −left ≤ j − i ≤ right, both ends included; −1 = unlimited
 * query_lengths, key_lengths  [B], or NULL; what is at and past a length is padding */
typedef struct ref_mask {
    bool causal, bottom_right;
    int window_left, window_right;
    const int *query_lengths, *key_lengths;
} ref_mask;

/* No window; lengths (or NULL) for queries and keys alike. */
ref_mask ref_mask_make(bool causal, const int *lengths);

/* May query i of M see key j of N, in batch b? */
bool ref_sees(const ref_mask *mask, int b, int i, int j, int M, int N);

/* ---- softmax of one row ---- */

/* p_j = e^{s_j − m} / Σ e^{s_j − m} over the keys seen, m their maximum; 0 elsewhere. Returns m + log Σ. A
 * score of −inf counts as hidden. */
double ref_softmax(const double *scores, const bool *sees, int N, double *p);

/* o = Σ_j p_j v_j, v [N, D]; rows of weight 0 are not read. */
void ref_weighted_sum(const double *p, const double *v, int N, int D, double *o);

/* ---- cores ---- */

/* q [B, H, M, D], k [B, HKV, N, D], v [B, HKV, N, DV]; query head h reads key head h / (H / HKV).
 * bias  NULL, or added to the scaled scores, with strides for [B, H, M, N], 0 = broadcast */
typedef struct ref_attention {
    int B, H, HKV, M, N, D, DV;
    double scale;
    ref_mask mask;
    const double *q, *k, *v;
    const double *bias;
    ptrdiff_t bias_stride[4];
} ref_attention;

/* v of (b, query head h): [N, DV]. */
const double *ref_values(const ref_attention *a, int b, int h);

/* sees[j], and s_j = q_i·k_j scale + bias_ij for the keys seen, of one query. Returns how many it sees. */
int ref_scores(const ref_attention *a, int b, int h, int i, double *scores, bool *sees);

/* softmax(q kᵀ scale + bias) v. o [B, H, M, DV]; lse [B, H, M] or NULL. */
void ref_dense_core(const ref_attention *a, double *o, double *lse);

/* Gradients of Σ o grad_o are added to q [B, H, M, D], k, v [B, HKV, N, ·] and bias [B, H, M, N] (or NULL). Rows of
 * grad_o that see nothing are not read. */
typedef struct ref_gradients {
    double *q, *k, *v, *bias;
} ref_gradients;

void ref_dense_gradients(const ref_attention *a, const double *grad_o, const ref_gradients *g);

/* Of one query, what the weights [N] of o = Σ weights v and the gradients ds [N] of its scores are worth. Zeros are not
 * followed. */
void ref_gradients_add(const ref_attention *a, int b, int h, int i, const double *grad_o, const double *weights,
                       const double *ds, const ref_gradients *g);

typedef enum ref_normalise { REF_SELECTED, REF_ALL } ref_normalise;

/* The same with only the k largest scores of each query kept, on a tie the lowest key; softmax over the
 * kept (REF_SELECTED), or over all it sees with the others then set to 0 (REF_ALL).
 * indices  [B, H, M, k] or NULL: the kept keys, largest score first, −1 where there are fewer
 * kept     [B, H, M, k] or NULL: their scores, −inf where there are fewer */
void ref_assa_topk_core(const ref_attention *a, int k, ref_normalise normalise, double *o, int *indices, double *kept);

/* (w̃₀ softmax(S) + w̃₁ relu(S)²) v, S = q kᵀ scale + bias, w̃ = softmax(w), w [2]. */
void ref_assa_adaptive_core(const ref_attention *a, const double *w, double *o);

/* As ref_dense_gradients; the choice of keys is constant; w [2]. */
void ref_assa_topk_gradients(const ref_attention *a, int k, ref_normalise normalise, const double *grad_o,
                             const ref_gradients *g);
void ref_assa_adaptive_gradients(const ref_attention *a, const double *w, const double *grad_o, const ref_gradients *g,
                                 double *grad_w);

/* A grid of rows x columns tokens, rolled by -shift and cut into windows of side x side. */
typedef struct ref_grid {
    int rows, columns, side, shift;
} ref_grid;

/* Row of the bias table for tokens i and j of the sequence; -1: they are of two windows. *apart (may be NULL): the
 * roll brought them together. */
int ref_assa_table_row(const ref_grid *grid, int i, int j, bool *apart);

/* What windows are in an attention over the whole sequence: bias [H, n, n] of a table, -100 between tokens that stand
 * apart, -inf between windows. */
void ref_assa_window_bias(const ref_grid *grid, int H, const double *table, double *bias);

/* softmax((Σ_c q_ic + Σ_c k_jc) scale) v. q may be NULL: it cancels. HKV = H; no bias. */
void ref_cas_additive_core(const ref_attention *a, double *o);

/* Extra keys of query i: keys[rows[i] .. rows[i + 1] − 1]. */
typedef struct ref_links {
    const long *rows; /* [n + 1] */
    const int *keys;
} ref_links;

typedef enum ref_masked { REF_EXCLUDE, REF_MULTIPLY } ref_masked;

/* What the cjar core adds to ref_attention, whose mask holds the window; links escape the window, but neither
 * causality nor padding.
 * memory              rows of memory_k, memory_v [memory, H, D], visible to every query
 * links               rows NULL = none */
typedef struct ref_cjar {
    int memory;
    const double *memory_k, *memory_v;
    ref_links links;
    ref_masked masked;
} ref_cjar;

/* REF_EXCLUDE: softmax over the keys near i and the memory. REF_MULTIPLY: a key that is not near has score 0 and
 * takes part. HKV = H, M = N, D = DV. lse [B, H, M] or NULL. */
void ref_cjar_core(const ref_attention *a, const ref_cjar *c, double *o, double *lse);

/* Of one query, over the N keys and then the memory rows: scores, which take part, and which of these have a score of their
 * own instead of 0. */
void ref_cjar_scores(const ref_attention *a, const ref_cjar *c, int b, int h, int i, double *scores, bool *sees,
                     bool *reads);

/* [N + memory, D]: the values of (b, h), then the memory's of h. */
void ref_cjar_values(const ref_attention *a, const ref_cjar *c, int b, int h, double *v);

/* As ref_dense_gradients; memory_k and memory_v [memory, H, D]. */
void ref_cjar_gradients(const ref_attention *a, const ref_cjar *c, const double *grad_o, const ref_gradients *g,
                        double *memory_k, double *memory_v);

/* σ(q_i) ⊙ Σ_j k_j ⊙ v_j, or with matrix σ(q_i)ᵀ (Σ_j k_j v_jᵀ), over the keys seen, times the head's position
 * weight (NULL = 1). M = N, D = DV; scale is not used. */
void ref_aft_gated_core(const ref_attention *a, const double *position_weights, bool matrix, double *o);

/* y_ic = σ(Q_ic) Σ_j e^{K_jc + w_ij} V_jc / Σ_j e^{K_jc + w_ij}, for each channel c of Q, V, y [B, n, d].
 * K [B, n, keys]: channel c reads key channel c / (d / keys).
 * w [biases, n, n]: channel c reads matrix c / (d / biases); NULL = 0 */
typedef struct ref_aft {
    int B, n, d, keys, biases;
    ref_mask mask;
    const double *Q, *K, *V, *w;
} ref_aft;

void ref_aft_core(const ref_aft *a, double *y);

/* ---- layers: x [B, n, d] -> y [B, n, d] ---- */

/* One entry of a state_dict. */
typedef struct ref_weight {
    const char *name;
    int rank;
    int shape[4];
    const double *data;
} ref_weight;

/* lengths  [B] or NULL
 * weights  under PyTorch's names; a layer looks up what it needs, and an absent bias is 0 */
typedef struct ref_layer {
    int B, n, d, H;
    bool causal;
    const int *lengths;
    const ref_weight *weights;
    size_t weight_count;
} ref_layer;

/* The weight of this name, or NULL. */
const ref_weight *ref_find(const ref_layer *layer, const char *name);

/* Its numbers; a name that must be there, or the program ends with a message. */
const double *ref_need(const ref_layer *layer, const char *name);

/* The numbers of "<module><suffix>", or NULL. */
const double *ref_part(const ref_layer *layer, const char *module, const char *suffix);

/* x with the rows of padding set to 0; a new array. */
double *ref_without_padding(const ref_layer *layer, const double *x);

/* y = x Wᵀ + b: x [rows, in], W [out, in], b [out] or NULL, y [rows, out]. */
void ref_linear(const double *x, size_t rows, int in, const double *W, const double *b, int out, double *y);

/* The same by a module's weights ("q_proj"); a new array [B, n, out]. */
double *ref_project(const ref_layer *layer, const double *x, const char *module, int out);

/* Section s of x W[s·d .. s·d + d − 1]ᵀ + b, split into heads; a new array [B, H, n, d/H]. */
double *ref_project_heads(const ref_layer *layer, const double *x, const double *W, const double *b, int section);

/* y = merged heads through the module: heads [B, H, n, d/H]. */
void ref_output(const ref_layer *layer, const double *heads, const char *module, double *y);

/* A core's problem with the layer's shape: M = N = n, scale 1/√(d/H). */
ref_attention ref_attention_of(const ref_layer *layer, const double *q, const double *k, const double *v);

/* scale 0 = 1/√dh; windows −1 = unlimited. */
void ref_dense_layer(const ref_layer *l, double scale, int window_left, int window_right, const double *x, double *y);

void ref_assa_topk_layer(const ref_layer *l, int k, ref_normalise normalise, const double *x, double *y);

/* window 0: one window over the whole sequence, without position bias. Else grid_h × grid_w tokens. Causal and
 * lengths only without a window. */
void ref_assa_adaptive_layer(const ref_layer *l, int grid_h, int grid_w, int window, int shift, const double *x,
                             double *y);

void ref_cas_additive_layer(const ref_layer *l, const double *x, double *y);
void ref_cas_vit_layer(const ref_layer *l, int grid_h, int grid_w, const double *x, double *y);

typedef enum ref_scale_by { REF_BY_HEAD, REF_BY_MODEL } ref_scale_by;

/* windows −1 = unlimited. */
typedef struct ref_cjar_options {
    int window_left, window_right;
    ref_links links;
    ref_scale_by scale_by;
    ref_masked masked;
} ref_cjar_options;

void ref_cjar_layer(const ref_layer *l, const ref_cjar_options *options, const double *x, double *y);

typedef enum ref_aft_mode {
    REF_AFT_GATED,
    REF_AFT_GATED_MATRIX,
    REF_AFT_FULL,
    REF_AFT_LOCAL,
    REF_AFT_SIMPLE,
    REF_AFT_CONV,
} ref_aft_mode;

/* local  s of REF_AFT_LOCAL: w counts where |i − j| < s */
void ref_aft_layer(const ref_layer *l, ref_aft_mode mode, int local, const double *x, double *y);

#endif
