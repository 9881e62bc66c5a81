/* What the references share: masks, the softmax of a row, linear layers, heads. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size) {
    void *array = calloc(count ? count : 1, size);
    if (!array) {
        fprintf(stderr, "reference: no memory for %zu elements\n", count);
        abort();
    }
    return array;
}

double *ref_array(size_t count) { return allocate(count, sizeof(double)); }
bool *ref_flags(size_t count) { return allocate(count, sizeof(bool)); }

double ref_dot(const double *a, const double *b, int count) {
    double sum = 0;
    for (int c = 0; c < count; c++)
        sum += a[c] * b[c];
    return sum;
}

double ref_sigmoid(double t) { return 1 / (1 + exp(-t)); }

double *ref_split_heads(const double *t, int B, int n, int H, int D) {
    double *heads = ref_array((size_t)B * H * n * D), *to = heads;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < n; i++, to += D)
                memcpy(to, ref_row(t, n, H, D, b, i, h), (size_t)D * sizeof(double));
    return heads;
}

/* Heads and tokens change places again. */
double *ref_merge_heads(const double *t, int B, int n, int H, int D) { return ref_split_heads(t, B, H, n, D); }

/* ---- masks ---- */

ref_mask ref_mask_make(bool causal, const int *lengths) {
    return (ref_mask){
        .causal = causal, .window_left = -1, .window_right = -1, .query_lengths = lengths, .key_lengths = lengths};
}

static int length_of(const int *lengths, int b, int n) {
    if (!lengths || lengths[b] > n)
        return n;
    return lengths[b] < 0 ? 0 : lengths[b];
}

bool ref_sees(const ref_mask *mask, int b, int i, int j, int M, int N) {
    int queries = length_of(mask->query_lengths, b, M), keys = length_of(mask->key_lengths, b, N);
    if (i >= queries || j >= keys)
        return false;
    int distance = j - i - (mask->bottom_right ? keys - queries : 0);
    if (mask->causal && distance > 0)
        return false;
    if (mask->window_left >= 0 && distance < -mask->window_left)
        return false;
    return mask->window_right < 0 || distance <= mask->window_right;
}

/* ---- softmax ---- */

double ref_softmax(const double *scores, const bool *sees, int N, double *p) {
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < N; j++)
        if (sees[j] && scores[j] > largest)
            largest = scores[j];
    for (int j = 0; j < N; j++) {
        p[j] = sees[j] && scores[j] != -INFINITY ? exp(scores[j] - largest) : 0;
        sum += p[j];
    }
    for (int j = 0; j < N && sum != 0; j++)
        p[j] /= sum;
    return sum != 0 ? largest + log(sum) : -INFINITY;
}

void ref_weighted_sum(const double *p, const double *v, int N, int D, double *o) {
    for (int c = 0; c < D; c++)
        o[c] = 0;
    for (int j = 0; j < N; j++)
        for (int c = 0; c < D && p[j] != 0; c++)
            o[c] += p[j] * v[(size_t)j * D + c];
}

/* ---- weights ---- */

const ref_weight *ref_find(const ref_layer *layer, const char *name) {
    for (size_t w = 0; w < layer->weight_count; w++)
        if (strcmp(layer->weights[w].name, name) == 0)
            return &layer->weights[w];
    return NULL;
}

const double *ref_need(const ref_layer *layer, const char *name) {
    const ref_weight *weight = ref_find(layer, name);
    if (!weight) {
        fprintf(stderr, "reference: weight %s is missing\n", name);
        abort();
    }
    return weight->data;
}

const double *ref_part(const ref_layer *layer, const char *module, const char *suffix) {
    char name[128];
    snprintf(name, sizeof(name), "%s%s", module, suffix);
    const ref_weight *weight = ref_find(layer, name);
    return weight ? weight->data : NULL;
}

/* ---- layers ---- */

double *ref_without_padding(const ref_layer *layer, const double *x) {
    double *clean = ref_array((size_t)layer->B * layer->n * layer->d);
    for (int b = 0; b < layer->B; b++) {
        size_t start = (size_t)b * layer->n * layer->d;
        size_t kept = (size_t)length_of(layer->lengths, b, layer->n) * layer->d;
        memcpy(clean + start, x + start, kept * sizeof(double));
    }
    return clean;
}

void ref_linear(const double *x, size_t rows, int in, const double *W, const double *b, int out, double *y) {
    for (size_t r = 0; r < rows; r++)
        for (int o = 0; o < out; o++)
            y[r * out + o] = ref_dot(x + r * in, W + (size_t)o * in, in) + (b ? b[o] : 0);
}

double *ref_project(const ref_layer *layer, const double *x, const char *module, int out) {
    size_t rows = (size_t)layer->B * layer->n;
    double *y = ref_array(rows * out);
    char name[128];
    snprintf(name, sizeof(name), "%s.weight", module);
    ref_linear(x, rows, layer->d, ref_need(layer, name), ref_part(layer, module, ".bias"), out, y);
    return y;
}

double *ref_project_heads(const ref_layer *layer, const double *x, const double *W, const double *b, int section) {
    int d = layer->d;
    size_t rows = (size_t)layer->B * layer->n;
    double *t = ref_array(rows * d);
    ref_linear(x, rows, d, W + (size_t)section * d * d, b ? b + (size_t)section * d : NULL, d, t);
    double *heads = ref_split_heads(t, layer->B, layer->n, layer->H, d / layer->H);
    free(t);
    return heads;
}

void ref_output(const ref_layer *layer, const double *heads, const char *module, double *y) {
    int d = layer->d;
    size_t rows = (size_t)layer->B * layer->n;
    double *merged = ref_merge_heads(heads, layer->B, layer->n, layer->H, d / layer->H);
    double *result = ref_project(layer, merged, module, d);
    memcpy(y, result, rows * d * sizeof(double));
    free(result);
    free(merged);
}

ref_attention ref_attention_of(const ref_layer *layer, const double *q, const double *k, const double *v) {
    int dh = layer->d / layer->H;
    return (ref_attention){.B = layer->B,
                           .H = layer->H,
                           .HKV = layer->H,
                           .M = layer->n,
                           .N = layer->n,
                           .D = dh,
                           .DV = dh,
                           .scale = 1 / sqrt(dh),
                           .mask = ref_mask_make(layer->causal, layer->lengths),
                           .q = q,
                           .k = k,
                           .v = v};
}
