/* Gradients of softmax attention, as the chain rule says them. */
#include "reference.h"

#include <stdlib.h>

/* One query: P, dP = dO V^T, dS = P (dP - Σ P dP). */
static void query(const ref_attention *a, int b, int h, int i, const double *grad_o, const ref_gradients *g, double *p,
                  double *dp, bool *sees) {
    const int kv = h / (a->H / a->HKV);
    const size_t row = ((size_t)b * a->H + h) * a->M + i, keys = ((size_t)b * a->HKV + kv) * a->N;
    const double *q = a->q + row * a->D, *dO = grad_o + row * a->DV;
    double total = 0;
    ref_scores(a, b, h, i, p, sees);
    ref_softmax(p, sees, a->N, p);
    for (int j = 0; j < a->N; j++)
        if (p[j] != 0)
            total += p[j] * (dp[j] = ref_dot(dO, a->v + (keys + j) * a->DV, a->DV));
    for (int j = 0; j < a->N; j++) {
        if (p[j] == 0)
            continue;
        const double ds = p[j] * (dp[j] - total), *k = a->k + (keys + j) * a->D;
        for (int c = 0; c < a->D; c++) {
            g->q[row * a->D + c] += a->scale * ds * k[c];
            g->k[(keys + j) * a->D + c] += a->scale * ds * q[c];
        }
        for (int c = 0; c < a->DV; c++)
            g->v[(keys + j) * a->DV + c] += p[j] * dO[c];
        if (g->bias)
            g->bias[row * a->N + j] += ds;
    }
}

void ref_dense_gradients(const ref_attention *a, const double *grad_o, const ref_gradients *g) {
    double *p = ref_array(a->N), *dp = ref_array(a->N);
    bool *sees = ref_flags(a->N);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++)
                query(a, b, h, i, grad_o, g, p, dp, sees);
    free(sees);
    free(dp);
    free(p);
}
