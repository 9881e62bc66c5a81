/* Gradients of adaptive sparse self-attention, as the chain rule says them. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

/* What one query is computed with: dO V^T, weights, gradients of the scores, each [N]. */
typedef struct scratch {
    double *scores, *p, *g, *weights, *ds;
    bool *sees, *chosen;
} scratch;

static scratch scratch_make(int N) {
    return (scratch){ref_array(N), ref_array(N), ref_array(N), ref_array(N), ref_array(N), ref_flags(N), ref_flags(N)};
}

static void scratch_free(const scratch *s) {
    double *const arrays[] = {s->scores, s->p, s->g, s->weights, s->ds};
    for (int i = 0; i < 5; i++)
        free(arrays[i]);
    free(s->sees);
    free(s->chosen);
}

/* dO V^T of the keys with a weight or a probability; the others are not read. */
static void dot_values(const ref_attention *a, int b, int h, int i, const double *grad_o, const scratch *s) {
    const double *dO = ref_row(grad_o, a->H, a->M, a->DV, b, h, i), *v = ref_values(a, b, h);
    for (int j = 0; j < a->N; j++)
        s->g[j] = s->p[j] != 0 || s->weights[j] != 0 ? ref_dot(dO, v + (size_t)j * a->DV, a->DV) : 0;
}

/* ---- top-k ---- */

static void topk_query(const ref_attention *a, int b, int h, int i, const int *kept, int k, ref_normalise normalise,
                       const double *grad_o, const ref_gradients *g, const scratch *s) {
    double c = 0;
    ref_scores(a, b, h, i, s->scores, s->sees);
    for (int j = 0; j < a->N; j++)
        s->chosen[j] = false;
    for (int t = 0; t < k; t++)
        if (kept[t] >= 0)
            s->chosen[kept[t]] = true;
    ref_softmax(s->scores, normalise == REF_SELECTED ? s->chosen : s->sees, a->N, s->p);
    for (int j = 0; j < a->N; j++)
        s->weights[j] = s->chosen[j] ? s->p[j] : 0;
    dot_values(a, b, h, i, grad_o, s);
    for (int j = 0; j < a->N; j++)
        c += s->weights[j] * s->g[j];
    for (int j = 0; j < a->N; j++)
        s->ds[j] = s->weights[j] * s->g[j] - s->p[j] * c;
    ref_gradients_add(a, b, h, i, grad_o, s->weights, s->ds, g);
}

void ref_assa_topk_gradients(const ref_attention *a, int k, ref_normalise normalise, const double *grad_o,
                             const ref_gradients *g) {
    const size_t rows = (size_t)a->B * a->H * a->M;
    const scratch s = scratch_make(a->N);
    double *o = ref_array(rows * a->DV);
    int *kept = calloc(rows * k + 1, sizeof *kept);
    if (!kept)
        abort();
    ref_assa_topk_core(a, k, normalise, o, kept, NULL);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++)
                topk_query(a, b, h, i, kept + (((size_t)b * a->H + h) * a->M + i) * k, k, normalise, grad_o, g, &s);
    free(kept);
    free(o);
    scratch_free(&s);
}

/* ---- adaptive ---- */

/* parts: Σ P G and Σ relu(S)² G, added to. */
static void adaptive_query(const ref_attention *a, int b, int h, int i, const double mix[2], const double *grad_o,
                           const ref_gradients *g, double parts[2], const scratch *s) {
    double mean = 0;
    ref_scores(a, b, h, i, s->scores, s->sees);
    ref_softmax(s->scores, s->sees, a->N, s->p);
    for (int j = 0; j < a->N; j++) {
        s->scores[j] = s->sees[j] && s->scores[j] > 0 ? s->scores[j] : 0;
        s->weights[j] = mix[0] * s->p[j] + mix[1] * s->scores[j] * s->scores[j];
    }
    dot_values(a, b, h, i, grad_o, s);
    for (int j = 0; j < a->N; j++) {
        mean += s->p[j] * s->g[j];
        parts[1] += s->scores[j] * s->scores[j] * s->g[j];
    }
    parts[0] += mean;
    for (int j = 0; j < a->N; j++)
        s->ds[j] = mix[0] * s->p[j] * (s->g[j] - mean) + 2 * mix[1] * s->scores[j] * s->g[j];
    ref_gradients_add(a, b, h, i, grad_o, s->weights, s->ds, g);
}

void ref_assa_adaptive_gradients(const ref_attention *a, const double *w, const double *grad_o, const ref_gradients *g,
                                 double *grad_w) {
    const scratch s = scratch_make(a->N);
    double mix[2], parts[2] = {0, 0};
    ref_softmax(w, (bool[]){true, true}, 2, mix);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++)
                adaptive_query(a, b, h, i, mix, grad_o, g, parts, &s);
    for (int t = 0; t < 2; t++)
        grad_w[t] += mix[t] * (parts[t] - mix[0] * parts[0] - mix[1] * parts[1]);
    scratch_free(&s);
}
