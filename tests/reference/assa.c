/* Adaptive sparse self-attention: the k largest scores, or softmax and squared ReLU mixed. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

/* ---- top-k ---- */

/* The largest score among the keys seen and not yet chosen; the lowest key on a tie; −1 when none is left. */
static int best_left(const double *scores, const bool *sees, const bool *chosen, int N) {
    int best = -1;
    for (int j = 0; j < N; j++)
        if (sees[j] && !chosen[j] && (best < 0 || scores[j] > scores[best]))
            best = j;
    return best;
}

/* Mark the k best keys, and list them; indices, kept may be NULL. */
static void choose(const double *scores, const bool *sees, int N, int k, bool *chosen, int *indices, double *kept) {
    for (int j = 0; j < N; j++)
        chosen[j] = false;
    for (int t = 0; t < k; t++) {
        int best = best_left(scores, sees, chosen, N);
        if (best >= 0)
            chosen[best] = true;
        if (indices)
            indices[t] = best;
        if (kept)
            kept[t] = best >= 0 ? scores[best] : -INFINITY;
    }
}

void ref_assa_topk_core(const ref_attention *a, int k, ref_normalise normalise, double *o, int *indices, double *kept) {
    int N = a->N;
    double *scores = ref_array(N), *p = ref_array(N);
    bool *sees = ref_flags(N), *chosen = ref_flags(N);
    size_t row = 0;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++, row++) {
                ref_scores(a, b, h, i, scores, sees);
                choose(scores, sees, N, k, chosen, indices ? indices + row * k : NULL, kept ? kept + row * k : NULL);
                ref_softmax(scores, normalise == REF_SELECTED ? chosen : sees, N, p);
                for (int j = 0; j < N; j++)
                    p[j] = chosen[j] ? p[j] : 0;
                ref_weighted_sum(p, ref_values(a, b, h), N, a->DV, o + row * a->DV);
            }
    free(chosen);
    free(sees);
    free(p);
    free(scores);
}

void ref_assa_topk_layer(const ref_layer *l, int k, ref_normalise normalise, const double *x, double *y) {
    double *clean = ref_without_padding(l, x);
    double *q = ref_project_heads(l, clean, ref_need(l, "q_proj.weight"), ref_part(l, "q_proj", ".bias"), 0);
    double *key = ref_project_heads(l, clean, ref_need(l, "k_proj.weight"), ref_part(l, "k_proj", ".bias"), 0);
    double *v = ref_project_heads(l, clean, ref_need(l, "v_proj.weight"), ref_part(l, "v_proj", ".bias"), 0);
    double *o = ref_array((size_t)l->B * l->n * l->d);

    ref_attention a = ref_attention_of(l, q, key, v);
    ref_assa_topk_core(&a, k, normalise, o, NULL, NULL);
    ref_output(l, o, "out_proj", y);

    free(o);
    free(v);
    free(key);
    free(q);
    free(clean);
}

/* ---- adaptive ---- */

void ref_assa_adaptive_core(const ref_attention *a, const double *w, double *o) {
    int N = a->N;
    double *scores = ref_array(N), *p = ref_array(N), mix[2];
    bool *sees = ref_flags(N);
    size_t row = 0;
    ref_softmax(w, (bool[]){true, true}, 2, mix);
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->M; i++, row++) {
                ref_scores(a, b, h, i, scores, sees);
                ref_softmax(scores, sees, N, p);
                for (int j = 0; j < N; j++) {
                    double positive = sees[j] && scores[j] > 0 ? scores[j] : 0;
                    p[j] = mix[0] * p[j] + mix[1] * positive * positive;
                }
                ref_weighted_sum(p, ref_values(a, b, h), N, a->DV, o + row * a->DV);
            }
    free(sees);
    free(p);
    free(scores);
}

/* An H×W image rolled by −shift and cut into S×S windows. */
typedef struct cut {
    int H, W, S, shift;
} cut;

/* Row and column in the rolled image of token t of window number `window`. */
static void rolled_place(const cut *c, int window, int t, int *row, int *column) {
    int across = c->W / c->S;
    *row = window / across * c->S + t / c->S;
    *column = window % across * c->S + t % c->S;
}

/* Where that token stands in the sequence: undoes the roll, so it serves to read x and to write y. */
static int token_of(const cut *c, int window, int t) {
    int row, column;
    rolled_place(c, window, t, &row, &column);
    return (row + c->shift) % c->H * c->W + (column + c->shift) % c->W;
}

/* Along one axis of the rolled image: 0 before the last window, 1 in it, 2 where the roll brought the other end. */
static int axis_region(int place, int size, int S, int shift) {
    return place < size - S ? 0 : place < size - shift ? 1 : 2;
}

static int region_of(const cut *c, int window, int t) {
    int row, column;
    rolled_place(c, window, t, &row, &column);
    return 3 * axis_region(row, c->H, c->S, c->shift) + axis_region(column, c->W, c->S, c->shift);
}

/* Entry of the bias table for query i and key j of a window: (Δy + S − 1)(2S − 1) + Δx + S − 1. */
static int relative_index(int S, int i, int j) {
    int dy = i / S - j / S, dx = i % S - j % S;
    return (dy + S - 1) * (2 * S - 1) + dx + S - 1;
}

/* [B·windows, H, S², S²]: position bias, and −100 between tokens of different regions when shifted. */
static double *window_bias(const cut *c, int B, int windows, int H, const double *table) {
    int tokens = c->S * c->S;
    double *bias = ref_array((size_t)B * windows * H * tokens * tokens), *to = bias;
    for (int b = 0; b < B * windows; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < tokens; i++)
                for (int j = 0; j < tokens; j++) {
                    bool apart = c->shift && region_of(c, b % windows, i) != region_of(c, b % windows, j);
                    *to++ = table[(size_t)relative_index(c->S, i, j) * H + h] + (apart ? -100 : 0);
                }
    return bias;
}

/* Copy tokens between the sequence [B, n, d] and its windows [B, windows, S², d]. */
static void move_tokens(const cut *c, int B, int d, double *sequence, double *cut_up, bool into_windows) {
    int n = c->H * c->W, tokens = c->S * c->S;
    for (int b = 0; b < B; b++)
        for (int r = 0; r < n; r++) {
            double *whole = sequence + ((size_t)b * n + token_of(c, r / tokens, r % tokens)) * d;
            double *part = cut_up + ((size_t)b * n + r) * d;
            for (int e = 0; e < d && into_windows; e++)
                part[e] = whole[e];
            for (int e = 0; e < d && !into_windows; e++)
                whole[e] = part[e];
        }
}

/* One attention over each sequence of l, x already free of padding; bias [B, H, n, n] or NULL. */
static void adaptive_sequence(const ref_layer *l, const double *bias, const double *x, double *y) {
    const double *kv = ref_need(l, "qkv.to_kv.weight"), *kv_bias = ref_part(l, "qkv.to_kv", ".bias");
    double *q = ref_project_heads(l, x, ref_need(l, "qkv.to_q.weight"), ref_part(l, "qkv.to_q", ".bias"), 0);
    double *k = ref_project_heads(l, x, kv, kv_bias, 0);
    double *v = ref_project_heads(l, x, kv, kv_bias, 1);
    double *o = ref_array((size_t)l->B * l->n * l->d);

    ref_attention a = ref_attention_of(l, q, k, v);
    a.bias = bias;
    a.bias_stride[0] = (ptrdiff_t)l->H * l->n * l->n;
    a.bias_stride[1] = (ptrdiff_t)l->n * l->n;
    a.bias_stride[2] = l->n;
    a.bias_stride[3] = 1;
    ref_assa_adaptive_core(&a, ref_need(l, "w"), o);
    ref_output(l, o, "proj", y);

    free(o);
    free(v);
    free(k);
    free(q);
}

void ref_assa_adaptive_layer(const ref_layer *l, int grid_h, int grid_w, int window, int shift, const double *x,
                             double *y) {
    double *clean = ref_without_padding(l, x);
    if (window) {
        cut c = {.H = grid_h, .W = grid_w, .S = window, .shift = shift};
        int windows = l->n / (window * window);
        ref_layer each = *l; /* every window is a sequence of its own */
        each.B = l->B * windows;
        each.n = window * window;
        double *bias = window_bias(&c, l->B, windows, l->H, ref_need(l, "relative_position_bias_table"));
        double *parts = ref_array((size_t)l->B * l->n * l->d), *done = ref_array((size_t)l->B * l->n * l->d);
        move_tokens(&c, l->B, l->d, clean, parts, true);
        adaptive_sequence(&each, bias, parts, done);
        move_tokens(&c, l->B, l->d, y, done, false);
        free(done);
        free(parts);
        free(bias);
    } else {
        adaptive_sequence(l, NULL, clean, y);
    }
    free(clean);
}

/* ---- windows as a bias ---- */

/* Place along an axis of the rolled grid. */
static int rolled(int place, int size, int shift) { return (place + size - shift) % size; }

int ref_assa_table_row(const ref_grid *g, int i, int j, bool *apart) {
    const int s = g->side, y = rolled(i / g->columns, g->rows, g->shift), x = rolled(i % g->columns, g->columns, g->shift);
    const int v = rolled(j / g->columns, g->rows, g->shift), u = rolled(j % g->columns, g->columns, g->shift);
    if (apart)
        *apart = g->shift > 0 && (axis_region(y, g->rows, s, g->shift) != axis_region(v, g->rows, s, g->shift) ||
                                  axis_region(x, g->columns, s, g->shift) != axis_region(u, g->columns, s, g->shift));
    return y / s == v / s && x / s == u / s ? (y - v + s - 1) * (2 * s - 1) + x - u + s - 1 : -1;
}

void ref_assa_window_bias(const ref_grid *g, int H, const double *table, double *bias) {
    const int n = g->rows * g->columns;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                bool apart;
                const int row = ref_assa_table_row(g, i, j, &apart);
                *bias++ = row < 0 ? -INFINITY : table[(size_t)row * H + h] + (apart ? -100 : 0);
            }
}
