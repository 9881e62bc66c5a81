/* Gradients of local window, global memory and random links, as the chain rule says them. */
#include "reference.h"

#include <stdlib.h>

/* What one query is computed with: N keys, then the memory's. */
typedef struct scratch {
    double *p, *dp, *v;
    bool *sees, *reads;
} scratch;

/* Row j of keys, and of their gradients; memory behind the keys. */
static const double *key(const ref_attention *a, const ref_cjar *c, int b, int h, int j) {
    if (j < a->N)
        return ref_row(a->k, a->H, a->N, a->D, b, h, j);
    return c->memory_k + ((size_t)(j - a->N) * a->H + h) * a->D;
}

static double *row_of(const ref_attention *a, double *sequence, double *memory, int b, int h, int j) {
    if (j < a->N)
        return sequence + (((size_t)b * a->H + h) * a->N + j) * a->D;
    return memory + ((size_t)(j - a->N) * a->H + h) * a->D;
}

static void query(const ref_attention *a, const ref_cjar *c, int b, int h, int i, const double *dO,
                  const ref_gradients *g, double *memory_k, double *memory_v, const scratch *s) {
    const int keys = a->N + c->memory, D = a->D;
    const double *q = ref_row(a->q, a->H, a->M, D, b, h, i);
    double *dq = g->q + (q - a->q), total = 0;
    ref_cjar_scores(a, c, b, h, i, s->p, s->sees, s->reads);
    ref_softmax(s->p, s->sees, keys, s->p);
    for (int j = 0; j < keys; j++)
        if (s->p[j] != 0)
            total += s->p[j] * (s->dp[j] = ref_dot(dO, s->v + (size_t)j * D, D));
    for (int j = 0; j < keys; j++) {
        if (s->p[j] == 0)
            continue;
        double *dk = row_of(a, g->k, memory_k, b, h, j), *dv = row_of(a, g->v, memory_v, b, h, j);
        const double ds = s->reads[j] ? a->scale * s->p[j] * (s->dp[j] - total) : 0;
        for (int e = 0; e < D; e++)
            dv[e] += s->p[j] * dO[e];
        for (int e = 0; e < D && s->reads[j]; e++) {
            dq[e] += ds * key(a, c, b, h, j)[e];
            dk[e] += ds * q[e];
        }
    }
}

void ref_cjar_gradients(const ref_attention *a, const ref_cjar *c, const double *grad_o, const ref_gradients *g,
                        double *memory_k, double *memory_v) {
    const int keys = a->N + c->memory;
    const scratch s = {ref_array(keys), ref_array(keys), ref_array((size_t)keys * a->D), ref_flags(keys),
                       ref_flags(keys)};
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++) {
            ref_cjar_values(a, c, b, h, s.v);
            for (int i = 0; i < a->M; i++)
                query(a, c, b, h, i, ref_row(grad_o, a->H, a->M, a->D, b, h, i), g, memory_k, memory_v, &s);
        }
    free(s.p);
    free(s.dp);
    free(s.v);
    free(s.sees);
    free(s.reads);
}
