/* Convolutional additive self-attention: the tutorial's layer, and CAS-ViT's token mixer. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- additive ---- */

static double sum_of(const double *t, int count) {
    double sum = 0;
    for (int c = 0; c < count; c++)
        sum += t[c];
    return sum;
}

/* s_ij = (Σ_c q_ic + Σ_c k_jc) scale of one query. */
static void additive_scores(const ref_attention *a, int b, int h, int i, double *scores, bool *sees) {
    for (int j = 0; j < a->N; j++) {
        scores[j] = 0;
        sees[j] = ref_sees(&a->mask, b, i, j, a->M, a->N);
        if (!sees[j])
            continue;
        double query = a->q ? sum_of(ref_row(a->q, a->H, a->M, a->D, b, h, i), a->D) : 0;
        scores[j] = (query + sum_of(ref_row(a->k, a->H, a->N, a->D, b, h, j), a->D)) * a->scale;
    }
}

void ref_cas_additive_core(const ref_attention *a, double *o) {
    double *scores = ref_array(a->N), *p = ref_array(a->N);
    bool *sees = ref_flags(a->N);
    size_t row = 0;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++, row++) {
                additive_scores(a, b, h, i, scores, sees);
                ref_softmax(scores, sees, a->N, p);
                ref_weighted_sum(p, ref_values(a, b, h), a->N, a->DV, o + row * a->DV);
            }
    free(sees);
    free(p);
    free(scores);
}

/* Conv1d along the tokens, as long as x: y_io = b_o + Σ_{c,t} W[o, c, t] x[i + t − left, c], with 0 outside the
 * sequence; left = kernel / 2, or kernel − 1 when causal. A new array [B, n, d]. */
static double *conv_tokens(const ref_layer *l, const double *x, const char *module) {
    char name[64];
    snprintf(name, sizeof(name), "%s.weight", module);
    const double *W = ref_need(l, name), *bias = ref_part(l, module, ".bias");
    int n = l->n, d = l->d, kernel = ref_find(l, name)->shape[2];
    int left = l->causal ? kernel - 1 : kernel / 2;
    double *y = ref_array((size_t)l->B * n * d);
    for (int b = 0; b < l->B; b++)
        for (int i = 0; i < n; i++)
            for (int o = 0; o < d; o++) {
                double sum = bias ? bias[o] : 0;
                for (int t = 0; t < kernel; t++) {
                    int from = i + t - left;
                    for (int c = 0; c < d && from >= 0 && from < n; c++)
                        sum += W[((size_t)o * d + c) * kernel + t] * x[((size_t)b * n + from) * d + c];
                }
                y[((size_t)b * n + i) * d + o] = sum;
            }
    return y;
}

void ref_cas_additive_layer(const ref_layer *l, const double *x, double *y) {
    int dh = l->d / l->H;
    double *clean = ref_without_padding(l, x);
    double *conv_q = conv_tokens(l, clean, "conv_q"), *conv_k = conv_tokens(l, clean, "conv_k");
    double *q = ref_split_heads(conv_q, l->B, l->n, l->H, dh);
    double *k = ref_split_heads(conv_k, l->B, l->n, l->H, dh);
    double *v = ref_project_heads(l, clean, ref_need(l, "linear_v.weight"), ref_part(l, "linear_v", ".bias"), 0);
    double *o = ref_array((size_t)l->B * l->n * l->d);

    ref_attention a = ref_attention_of(l, q, k, v);
    ref_cas_additive_core(&a, o);
    ref_output(l, o, "proj", y);

    free(o);
    free(v);
    free(k);
    free(q);
    free(conv_k);
    free(conv_q);
    free(clean);
}

/* ---- vit: images are [C, h, w], one batch at a time ---- */

typedef struct image {
    int C, h, w;
} image;

/* Depthwise 3×3 convolution with 0 outside the image: W [C, 1, 3, 3]. */
static void depthwise(const ref_layer *l, image m, const char *module, const double *from, double *to) {
    const double *W = ref_part(l, module, ".weight"), *bias = ref_part(l, module, ".bias");
    for (int c = 0; c < m.C; c++)
        for (int y = 0; y < m.h; y++)
            for (int x = 0; x < m.w; x++) {
                double sum = bias ? bias[c] : 0;
                for (int t = 0; t < 9; t++) {
                    int yy = y + t / 3 - 1, xx = x + t % 3 - 1;
                    if (yy >= 0 && yy < m.h && xx >= 0 && xx < m.w)
                        sum += W[c * 9 + t] * from[((size_t)c * m.h + yy) * m.w + xx];
                }
                to[((size_t)c * m.h + y) * m.w + x] = sum;
            }
}

/* relu(BN(g)) in place: BN by the running statistics, ε = 1e-5. */
static void norm_relu(const ref_layer *l, image m, const char *module, double *g) {
    const double *mean = ref_part(l, module, ".running_mean"), *var = ref_part(l, module, ".running_var");
    const double *gamma = ref_part(l, module, ".weight"), *beta = ref_part(l, module, ".bias");
    for (int c = 0; c < m.C; c++)
        for (int p = 0; p < m.h * m.w; p++) {
            double *t = g + (size_t)c * m.h * m.w + p;
            *t = fmax(0, (*t - mean[c]) / sqrt(var[c] + 1e-5) * gamma[c] + beta[c]);
        }
}

/* spatial(t) = t σ(conv1×1[C→1](relu(BN(dw3×3(t))))), in place. */
static void spatial(const ref_layer *l, image m, const char *oper, double *t) {
    int pixels = m.h * m.w;
    char name[64];
    double *g = ref_array((size_t)m.C * pixels);
    snprintf(name, sizeof(name), "%s.0.block.0", oper);
    depthwise(l, m, name, t, g);
    snprintf(name, sizeof(name), "%s.0.block.1", oper);
    norm_relu(l, m, name, g);
    const double *W = ref_part(l, oper, ".0.block.3.weight");
    for (int p = 0; p < pixels; p++) {
        double gate = 0;
        for (int c = 0; c < m.C; c++)
            gate += W[c] * g[(size_t)c * pixels + p];
        for (int c = 0; c < m.C; c++)
            t[(size_t)c * pixels + p] *= ref_sigmoid(gate);
    }
    free(g);
}

/* channel(t) = t σ(conv1×1[C→C](mean over the image)), in place. */
static void channel(const ref_layer *l, image m, const char *oper, double *t) {
    int pixels = m.h * m.w;
    const double *W = ref_part(l, oper, ".1.block.1.weight");
    double *mean = ref_array(m.C);
    for (int c = 0; c < m.C; c++)
        mean[c] = sum_of(t + (size_t)c * pixels, pixels) / pixels;
    for (int c = 0; c < m.C; c++) {
        double gate = ref_sigmoid(ref_dot(W + (size_t)c * m.C, mean, m.C));
        for (int p = 0; p < pixels; p++)
            t[(size_t)c * pixels + p] *= gate;
    }
    free(mean);
}

/* y = dw_proj(dw_dwc(Φq(q) + Φk(k)) ⊙ v) of one image; q, k, v [C, h, w] are used up. */
static void mix_image(const ref_layer *l, image m, double *q, double *k, const double *v, double *y) {
    size_t count = (size_t)m.C * m.h * m.w;
    spatial(l, m, "oper_q", q);
    channel(l, m, "oper_q", q);
    spatial(l, m, "oper_k", k);
    channel(l, m, "oper_k", k);
    for (size_t e = 0; e < count; e++)
        q[e] += k[e];
    depthwise(l, m, "dwc", q, k);
    for (size_t e = 0; e < count; e++)
        k[e] *= v[e];
    depthwise(l, m, "proj", k, y);
}

void ref_cas_vit_layer(const ref_layer *l, int grid_h, int grid_w, const double *x, double *y) {
    int n = l->n, d = l->d;
    image m = {.C = d, .h = grid_h, .w = grid_w};
    double *tokens = ref_project(l, x, "qkv", 3 * d); /* [B, n, 3d] */
    double *planes = ref_array((size_t)3 * d * n), *mixed = ref_array((size_t)d * n);
    for (int b = 0; b < l->B; b++) {
        for (int c = 0; c < 3 * d; c++)
            for (int i = 0; i < n; i++)
                planes[(size_t)c * n + i] = tokens[((size_t)b * n + i) * 3 * d + c];
        mix_image(l, m, planes, planes + (size_t)d * n, planes + (size_t)2 * d * n, mixed);
        for (int c = 0; c < d; c++)
            for (int i = 0; i < n; i++)
                y[((size_t)b * n + i) * d + c] = mixed[(size_t)c * n + i];
    }
    free(mixed);
    free(planes);
    free(tokens);
}
