/* Softmax attention: softmax(q kᵀ scale + bias) v. */
#include "reference.h"

#include <stdlib.h>

/* H / HKV query heads share one head of keys and values. */
static int key_head(const ref_attention *a, int h) { return h / (a->H / a->HKV); }

const double *ref_values(const ref_attention *a, int b, int h) {
    return ref_row(a->v, a->HKV, a->N, a->DV, b, key_head(a, h), 0);
}

int ref_scores(const ref_attention *a, int b, int h, int i, double *scores, bool *sees) {
    const double *q = ref_row(a->q, a->H, a->M, a->D, b, h, i);
    int count = 0;
    for (int j = 0; j < a->N; j++) {
        scores[j] = 0;
        sees[j] = ref_sees(&a->mask, b, i, j, a->M, a->N);
        if (!sees[j])
            continue;
        scores[j] = ref_dot(q, ref_row(a->k, a->HKV, a->N, a->D, b, key_head(a, h), j), a->D) * a->scale;
        if (a->bias)
            scores[j] +=
                a->bias[b * a->bias_stride[0] + h * a->bias_stride[1] + i * a->bias_stride[2] + j * a->bias_stride[3]];
        count++;
    }
    return count;
}

void ref_dense_core(const ref_attention *a, double *o, double *lse) {
    double *scores = ref_array(a->N), *p = ref_array(a->N);
    bool *sees = ref_flags(a->N);
    size_t row = 0;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++, row++) {
                ref_scores(a, b, h, i, scores, sees);
                double logsum = ref_softmax(scores, sees, a->N, p);
                ref_weighted_sum(p, ref_values(a, b, h), a->N, a->DV, o + row * a->DV);
                if (lse)
                    lse[row] = logsum;
            }
    free(sees);
    free(p);
    free(scores);
}

/* y = Linear(softmax(q kᵀ scale) v), with q, k, v the three sections of in_proj. */
void ref_dense_layer(const ref_layer *l, double scale, int window_left, int window_right, const double *x, double *y) {
    const double *W = ref_need(l, "in_proj_weight"), *bias = ref_part(l, "in_proj_bias", "");
    double *clean = ref_without_padding(l, x);
    double *q = ref_project_heads(l, clean, W, bias, 0);
    double *k = ref_project_heads(l, clean, W, bias, 1);
    double *v = ref_project_heads(l, clean, W, bias, 2);
    double *o = ref_array((size_t)l->B * l->n * l->d);

    ref_attention a = ref_attention_of(l, q, k, v);
    if (scale != 0)
        a.scale = scale;
    a.mask.window_left = window_left;
    a.mask.window_right = window_right;
    ref_dense_core(&a, o, NULL);
    ref_output(l, o, "out_proj", y);

    free(o);
    free(v);
    free(k);
    free(q);
    free(clean);
}
