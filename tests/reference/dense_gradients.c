/* Gradients of softmax attention, as the chain rule says them. */
#include "reference.h"

#include <stdlib.h>

void ref_gradients_add(const ref_attention *a, int b, int h, int i, const double *grad_o, const double *weights,
                       const double *ds, const ref_gradients *g) {
    const int kv = h / (a->H / a->HKV);
    const size_t row = ((size_t)b * a->H + h) * a->M + i, keys = ((size_t)b * a->HKV + kv) * a->N;
    for (int j = 0; j < a->N; j++) {
        for (int c = 0; c < a->D && ds[j] != 0; c++) {
            g->q[row * a->D + c] += a->scale * ds[j] * a->k[(keys + j) * a->D + c];
            g->k[(keys + j) * a->D + c] += a->scale * ds[j] * a->q[row * a->D + c];
        }
        for (int c = 0; c < a->DV && weights[j] != 0; c++)
            g->v[(keys + j) * a->DV + c] += weights[j] * grad_o[row * a->DV + c];
        if (g->bias)
            g->bias[row * a->N + j] += ds[j];
    }
}

/* One query: P, dP = dO V^T, dS = P (dP - Σ P dP). */
static void query(const ref_attention *a, int b, int h, int i, const double *grad_o, const ref_gradients *g, double *p,
                  double *ds, bool *sees) {
    const double *dO = ref_row(grad_o, a->H, a->M, a->DV, b, h, i), *v = ref_values(a, b, h);
    double total = 0;
    ref_scores(a, b, h, i, p, sees);
    ref_softmax(p, sees, a->N, p);
    for (int j = 0; j < a->N; j++)
        if (p[j] != 0)
            total += p[j] * (ds[j] = ref_dot(dO, v + (size_t)j * a->DV, a->DV));
    for (int j = 0; j < a->N; j++)
        ds[j] = p[j] != 0 ? p[j] * (ds[j] - total) : 0;
    ref_gradients_add(a, b, h, i, grad_o, p, ds, g);
}

void ref_dense_gradients(const ref_attention *a, const double *grad_o, const ref_gradients *g) {
    double *p = ref_array(a->N), *ds = ref_array(a->N);
    bool *sees = ref_flags(a->N);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++)
                query(a, b, h, i, grad_o, g, p, ds, sees);
    free(sees);
    free(ds);
    free(p);
}
