/* Attention free transformer. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- gated ---- */

/* o_c += weight_c v_c for one pair: weight_c = σ(q_c) k_c, or with matrix σ(q)·k for every channel. */
static void add_pair(const double *q, const double *k, const double *v, int D, bool matrix, double *o) {
    double dot = 0;
    for (int c = 0; c < D; c++)
        dot += ref_sigmoid(q[c]) * k[c];
    for (int c = 0; c < D; c++)
        o[c] += (matrix ? dot : ref_sigmoid(q[c]) * k[c]) * v[c];
}

void ref_aft_gated_core(const ref_attention *a, const double *position_weights, bool matrix, double *o) {
    int M = a->M, N = a->N, D = a->D;
    memset(o, 0, (size_t)a->B * a->H * M * D * sizeof(double));
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < M; i++, o += D) {
                for (int j = 0; j < N; j++)
                    if (ref_sees(&a->mask, b, i, j, M, N))
                        add_pair(ref_row(a->q, a->H, M, D, b, h, i), ref_row(a->k, a->H, N, D, b, h, j),
                                 ref_row(a->v, a->H, N, D, b, h, j), D, matrix, o);
                for (int c = 0; c < D && position_weights; c++)
                    o[c] *= position_weights[h];
            }
}

/* ---- full, local, simple, conv ---- */

/* y_ic of one query and channel. */
static double average(const ref_aft *a, int b, int i, int c, double *logits, bool *sees, double *p) {
    int n = a->n, key = c / (a->d / a->keys);
    const double *w = a->w ? a->w + ((size_t)(c / (a->d / a->biases)) * n + i) * n : NULL;
    for (int j = 0; j < n; j++) {
        sees[j] = ref_sees(&a->mask, b, i, j, n, n);
        logits[j] = sees[j] ? a->K[((size_t)b * n + j) * a->keys + key] + (w ? w[j] : 0) : 0;
    }
    ref_softmax(logits, sees, n, p);
    double sum = 0;
    for (int j = 0; j < n; j++)
        if (p[j] != 0)
            sum += p[j] * a->V[((size_t)b * n + j) * a->d + c];
    return sum;
}

void ref_aft_core(const ref_aft *a, double *y) {
    double *logits = ref_array(a->n), *p = ref_array(a->n);
    bool *sees = ref_flags(a->n);
    size_t e = 0;
    for (int b = 0; b < a->B; b++)
        for (int i = 0; i < a->n; i++)
            for (int c = 0; c < a->d; c++, e++) {
                bool padding = a->mask.query_lengths && i >= a->mask.query_lengths[b];
                y[e] = padding ? 0 : ref_sigmoid(a->Q[e]) * average(a, b, i, c, logits, sees, p);
            }
    free(sees);
    free(p);
    free(logits);
}

/* ---- the layer's w_ij ---- */

/* full: the leading n×n of w [T, T], or of u vᵀ with u, v [T, r]; local: 0 where |i − j| ≥ s. */
static double *matrix_bias(const ref_layer *l, bool local, int s) {
    const ref_weight *w = ref_find(l, "w"), *u = ref_find(l, "u"), *v = ref_find(l, "v");
    double *bias = ref_array((size_t)l->n * l->n);
    for (int i = 0; i < l->n; i++)
        for (int j = 0; j < l->n; j++)
            if (!local || abs(i - j) < s)
                bias[(size_t)i * l->n + j] =
                    w ? w->data[(size_t)i * w->shape[1] + j]
                      : ref_dot(u->data + (size_t)i * u->shape[1], v->data + (size_t)j * v->shape[1], u->shape[1]);
    return bias;
}

/* conv: f of one head, γ (f − mean) / √(var + 1e-5) + β where γ is given; taps [s]. */
static void head_taps(const ref_layer *l, int h, int s, double *taps) {
    const double *f = ref_need(l, "conv.weight") + (size_t)h * s;
    const double *gamma = ref_part(l, "conv.gamma", ""), *beta = ref_part(l, "conv.beta", "");
    double mean = 0, var = 0;
    for (int t = 0; t < s; t++)
        mean += f[t] / s;
    for (int t = 0; t < s; t++)
        var += (f[t] - mean) * (f[t] - mean) / s;
    for (int t = 0; t < s; t++)
        taps[t] = gamma ? gamma[h] * (f[t] - mean) / sqrt(var + 1e-5) + beta[h] : f[t];
}

/* conv: w_ij = f[j − i + ⌊s/2⌋] inside the taps, else 0; [H, n, n]. */
static double *conv_bias(const ref_layer *l) {
    int n = l->n, s = ref_find(l, "conv.weight")->shape[1];
    double *bias = ref_array((size_t)l->H * n * n), *taps = ref_array(s);
    for (int h = 0; h < l->H; h++) {
        head_taps(l, h, s, taps);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                int t = j - i + s / 2;
                bias[((size_t)h * n + i) * n + j] = t >= 0 && t < s ? taps[t] : 0;
            }
    }
    free(taps);
    return bias;
}

/* ---- layer ---- */

static void gated_layer(const ref_layer *l, bool matrix, const double *x, double *y) {
    double *q = ref_project_heads(l, x, ref_need(l, "Wq.weight"), ref_part(l, "Wq", ".bias"), 0);
    double *k = ref_project_heads(l, x, ref_need(l, "Wk.weight"), ref_part(l, "Wk", ".bias"), 0);
    double *v = ref_project_heads(l, x, ref_need(l, "Wv.weight"), ref_part(l, "Wv", ".bias"), 0);
    double *o = ref_array((size_t)l->B * l->n * l->d);
    ref_attention a = ref_attention_of(l, q, k, v);
    ref_aft_gated_core(&a, ref_need(l, "position_weights"), matrix, o);
    ref_output(l, o, "Wo", y);
    free(o);
    free(v);
    free(k);
    free(q);
}

static void average_layer(const ref_layer *l, ref_aft_mode mode, int local, const double *x, double *y) {
    bool conv = mode == REF_AFT_CONV, matrix = mode == REF_AFT_FULL || mode == REF_AFT_LOCAL;
    int keys = conv ? l->H : l->d;
    double *Q = ref_project(l, x, "Wq", l->d), *K = ref_project(l, x, "Wk", keys), *V = ref_project(l, x, "Wv", l->d);
    double *w = conv ? conv_bias(l) : matrix ? matrix_bias(l, mode == REF_AFT_LOCAL, local) : NULL;
    double *o = ref_array((size_t)l->B * l->n * l->d);
    ref_aft a = {.B = l->B,
                 .n = l->n,
                 .d = l->d,
                 .keys = keys,
                 .biases = conv ? l->H : 1,
                 .mask = ref_mask_make(l->causal, l->lengths),
                 .Q = Q,
                 .K = K,
                 .V = V,
                 .w = w};
    ref_aft_core(&a, o);
    double *result = ref_project(l, o, "Wo", l->d);
    memcpy(y, result, (size_t)l->B * l->n * l->d * sizeof(double));
    free(result);
    free(o);
    free(w);
    free(V);
    free(K);
    free(Q);
}

void ref_aft_layer(const ref_layer *l, ref_aft_mode mode, int local, const double *x, double *y) {
    double *clean = ref_without_padding(l, x);
    if (mode == REF_AFT_GATED || mode == REF_AFT_GATED_MATRIX)
        gated_layer(l, mode == REF_AFT_GATED_MATRIX, clean, y);
    else
        average_layer(l, mode, local, clean, y);
    free(clean);
}
