/* Local window, global memory, random links. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool linked(const ref_links *links, int i, int j) {
    for (long e = links->rows ? links->rows[i] : 0; links->rows && e < links->rows[i + 1]; e++)
        if (links->keys[e] == j)
            return true;
    return false;
}

/* May query i see key j at all, the window aside? */
static bool allowed(const ref_attention *a, int b, int i, int j) {
    ref_mask mask = a->mask;
    mask.window_left = mask.window_right = -1;
    return ref_sees(&mask, b, i, j, a->M, a->N);
}

void ref_cjar_scores(const ref_attention *a, const ref_cjar *c, int b, int h, int i, double *scores, bool *sees,
                     bool *reads) {
    const double *q = ref_row(a->q, a->H, a->M, a->D, b, h, i);
    for (int j = 0; j < a->N; j++) {
        const bool near = allowed(a, b, i, j) && (ref_sees(&a->mask, b, i, j, a->M, a->N) || linked(&c->links, i, j));
        reads[j] = near;
        sees[j] = near || (c->masked == REF_MULTIPLY && allowed(a, b, i, j));
        scores[j] = near ? ref_dot(q, ref_row(a->k, a->H, a->N, a->D, b, h, j), a->D) * a->scale : 0;
    }
    bool padding = a->mask.query_lengths && i >= a->mask.query_lengths[b];
    for (int g = 0; g < c->memory; g++) {
        reads[a->N + g] = sees[a->N + g] = !padding;
        scores[a->N + g] = padding ? 0 : ref_dot(q, c->memory_k + ((size_t)g * a->H + h) * a->D, a->D) * a->scale;
    }
}

void ref_cjar_values(const ref_attention *a, const ref_cjar *c, int b, int h, double *v) {
    size_t bytes = (size_t)a->D * sizeof(double);
    memcpy(v, ref_values(a, b, h), a->N * bytes);
    for (int g = 0; g < c->memory; g++)
        memcpy(v + (size_t)(a->N + g) * a->D, c->memory_v + ((size_t)g * a->H + h) * a->D, bytes);
}

void ref_cjar_core(const ref_attention *a, const ref_cjar *c, double *o, double *lse) {
    int keys = a->N + c->memory;
    double *scores = ref_array(keys), *p = ref_array(keys), *v = ref_array((size_t)keys * a->D);
    bool *sees = ref_flags(keys), *reads = ref_flags(keys);
    size_t row = 0;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++) {
            ref_cjar_values(a, c, b, h, v);
            for (int i = 0; i < a->M; i++, row++) {
                ref_cjar_scores(a, c, b, h, i, scores, sees, reads);
                double logsum = ref_softmax(scores, sees, keys, p);
                ref_weighted_sum(p, v, keys, a->D, o + row * a->D);
                if (lse)
                    lse[row] = logsum;
            }
        }
    free(reads);
    free(sees);
    free(v);
    free(p);
    free(scores);
}

/* The layer's memory: global_mem for keys and values, or one of its own for each. */
static void find_memory(const ref_layer *l, ref_cjar *c) {
    const ref_weight *both = ref_find(l, "global_mem");
    const ref_weight *k = ref_find(l, "global_mem_k"), *v = ref_find(l, "global_mem_v");
    k = k ? k : both;
    v = v ? v : both;
    if (k && v) {
        c->memory = k->shape[0];
        c->memory_k = k->data;
        c->memory_v = v->data;
    }
}

void ref_cjar_layer(const ref_layer *l, const ref_cjar_options *options, const double *x, double *y) {
    const double *W = ref_need(l, "to_qkv.weight"), *bias = ref_part(l, "to_qkv", ".bias");
    double *clean = ref_without_padding(l, x);
    double *q = ref_project_heads(l, clean, W, bias, 0);
    double *k = ref_project_heads(l, clean, W, bias, 1);
    double *v = ref_project_heads(l, clean, W, bias, 2);
    double *o = ref_array((size_t)l->B * l->n * l->d);

    ref_attention a = ref_attention_of(l, q, k, v);
    a.mask.window_left = options->window_left;
    a.mask.window_right = options->window_right;
    a.scale = 1 / sqrt(options->scale_by == REF_BY_MODEL ? l->d : a.D);
    ref_cjar c = {.links = options->links, .masked = options->masked};
    find_memory(l, &c);
    ref_cjar_core(&a, &c, o, NULL);
    ref_output(l, o, "to_out", y);

    free(o);
    free(v);
    free(k);
    free(q);
    free(clean);
}
