/* clattn bench: adaptive sparse self-attention. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/clock.h"

enum { TOPK, ADAPTIVE };
static const char *const modes[] = {"topk", "adaptive", NULL};

/* Two kept scores nearer than this could change places by rounding. */
static const double near_tie = 5e-5;

static double kept(const bench_case *c) {
    const double k = (double)c->k, n = (double)c->n;
    return !c->causal ? n * fmin(k, n) : bench_pairs(c->n, c->k - 1, 0, true);
}

/* topk: all scores, k values a query; backward on the kept keys, and for `all` two more products over every key.
 * adaptive: as dense, in windows. */
static bench_work work(const bench_case *c, int64_t links) {
    (void)links;
    const double d = (double)c->d, n = (double)c->n;
    bench_work w = {0, 0, 8 * n * d * d, 16 * n * d * d};
    if (c->mode == TOPK) {
        const double pairs = bench_pairs(c->n, -1, -1, c->causal);
        w.core = 2 * pairs * d + 2 * kept(c) * d;
        w.core_backward = 8 * kept(c) * d + (c->all ? 6 * pairs * d : 0);
    } else {
        const double pairs = n * (c->window > 0 ? (double)(c->window * c->window) : n);
        w.core = 4 * pairs * d;
        w.core_backward = 10 * pairs * d;
    }
    return w;
}

static bench_parts parts(const bench_case *c) {
    return c->mode == TOPK ? (bench_parts){{"q_proj.weight", "q_proj.bias", 0},
                                           {"k_proj.weight", "k_proj.bias", 0},
                                           {"v_proj.weight", "v_proj.bias", 0},
                                           {"out_proj.weight", "out_proj.bias", 0}}
                           : (bench_parts){{"qkv.to_q.weight", "qkv.to_q.bias", 0},
                                           {"qkv.to_kv.weight", "qkv.to_kv.bias", 0},
                                           {"qkv.to_kv.weight", "qkv.to_kv.bias", 1},
                                           {"proj.weight", "proj.bias", 0}};
}

/* ---- topk ---- */

static int descending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Hide all but the k largest. all: of the softmax over every score. False: the choice hangs by a hair. */
static bool choose(const bench_case *c, double *p, int64_t seen) {
    bool firm = true;
    double *sorted = bench_doubles((size_t)c->n), floor = -INFINITY;
    memcpy(sorted, p, (size_t)c->n * sizeof *p);
    qsort(sorted, (size_t)c->n, sizeof *sorted, descending);
    if (seen > c->k) {
        floor = sorted[c->k - 1];
        firm = floor - sorted[c->k] > near_tie;
    }
    if (!c->all) {
        for (int64_t j = 0; j < c->n; ++j) {
            p[j] = p[j] < floor ? -INFINITY : p[j];
        }
        bench_softmax(p, c->n);
    } else {
        double *scores = sorted;
        memcpy(scores, p, (size_t)c->n * sizeof *p);
        bench_softmax(p, c->n);
        for (int64_t j = 0; j < c->n; ++j) {
            p[j] = scores[j] < floor ? 0 : p[j];
        }
    }
    free(sorted);
    return firm;
}

static bool topk_row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    double *p = bench_doubles((size_t)c->n);
    bool firm = true;
    const int64_t last = c->causal ? i : c->n - 1;
    for (int64_t h = 0; h < c->heads && firm; ++h) {
        bench_scores(view, h, bench_head_scale(c), 0, last, p);
        firm = choose(c, p, last + 1);
        bench_average(view, h, p, o);
    }
    free(p);
    return firm;
}

/* ---- adaptive ---- */

/* 0 before the last window, 1 in it, 2 where the roll brought the other end. */
static int64_t region(int64_t place, int64_t size, int64_t window, int64_t shift) {
    return place < size - window ? 0 : place < size - shift ? 1 : 2;
}

/* Bias and mask of a pair of tokens of one window; -INFINITY for tokens of two windows. */
static double bias(const bench_case *c, const float *table, int64_t h, int64_t i, int64_t j) {
    const int64_t *g = c->grid, s = c->window;
    if (s == 0) {
        return 0;
    }
    const int64_t y = (i / g[1] + g[0] - c->shift) % g[0], x = (i % g[1] + g[1] - c->shift) % g[1];
    const int64_t v = (j / g[1] + g[0] - c->shift) % g[0], u = (j % g[1] + g[1] - c->shift) % g[1];
    if (y / s != v / s || x / s != u / s) {
        return -INFINITY;
    }
    bool apart = c->shift > 0 && (region(y, g[0], s, c->shift) != region(v, g[0], s, c->shift) ||
                                  region(x, g[1], s, c->shift) != region(u, g[1], s, c->shift));
    return table[((y - v + s - 1) * (2 * s - 1) + x - u + s - 1) * c->heads + h] + (apart ? -100 : 0);
}

static bool adaptive_row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    const bench_array *table = bench_weight(view->subject, "relative_position_bias_table");
    const float *w = bench_weight(view->subject, "w")->values;
    double *scores = bench_doubles((size_t)c->n), *p = bench_doubles((size_t)c->n);
    double soft = bench_sigmoid((double)w[0] - w[1]);
    for (int64_t h = 0; h < c->heads; ++h) {
        bench_scores(view, h, bench_head_scale(c), 0, c->n - 1, scores);
        for (int64_t j = 0; j < c->n; ++j) {
            scores[j] += bias(c, table ? table->values : NULL, h, i, j);
            p[j] = scores[j];
        }
        bench_softmax(p, c->n);
        for (int64_t j = 0; j < c->n; ++j) {
            p[j] = soft * p[j] + (scores[j] > 0 ? (1 - soft) * scores[j] * scores[j] : 0);
        }
        bench_average(view, h, p, o);
    }
    free(p);
    free(scores);
    return true;
}

static bool row(const bench_view *view, int64_t i, double *o) {
    return view->subject->c->mode == TOPK ? topk_row(view, i, o) : adaptive_row(view, i, o);
}

/* ---- core ---- */

static bool adaptive_weights(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const int64_t side = 2 * c->window - 1;
    const clattn_weight_info mix = {.name = "w", .rank = 1, .shape = {2}};
    const clattn_weight_info table = {
        .name = "relative_position_bias_table", .rank = 2, .shape = {side * side, c->heads}};
    return bench_core_weight(s, CLATTN_ASSA_MIX, CLATTN_ASSA_GRAD_MIX, &mix, NULL, f) &&
           (c->window == 0 ||
            bench_core_weight(s, CLATTN_ASSA_TABLE, CLATTN_ASSA_GRAD_TABLE, &table, NULL, f));
}

static bool core(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const bench_core_slots slots = {.count = CLATTN_ASSA_SLOTS,
                                    .inputs = {CLATTN_ASSA_Q, CLATTN_ASSA_K, CLATTN_ASSA_V},
                                    .output = CLATTN_ASSA_O,
                                    .input_grads = {CLATTN_ASSA_GRAD_Q, CLATTN_ASSA_GRAD_K, CLATTN_ASSA_GRAD_V},
                                    .output_grad = CLATTN_ASSA_GRAD_O,
                                    .saved = CLATTN_ASSA_SAVED};
    if (!bench_core_tensors(s, &slots, f) || (c->mode == ADAPTIVE && !adaptive_weights(s, f))) {
        return false;
    }
    clattn_assa_problem problem = {.q = s->tensors[CLATTN_ASSA_Q],
                                   .k = s->tensors[CLATTN_ASSA_K],
                                   .v = s->tensors[CLATTN_ASSA_V],
                                   .o = s->tensors[CLATTN_ASSA_O],
                                   .mode = c->mode == TOPK ? CLATTN_ASSA_TOPK : CLATTN_ASSA_ADAPTIVE,
                                   .train = c->train,
                                   .grad_o = s->tensors[CLATTN_ASSA_GRAD_O],
                                   .grad_q = s->tensors[CLATTN_ASSA_GRAD_Q],
                                   .grad_k = s->tensors[CLATTN_ASSA_GRAD_K],
                                   .grad_v = s->tensors[CLATTN_ASSA_GRAD_V],
                                   .grad_mix = s->tensors[CLATTN_ASSA_GRAD_MIX],
                                   .grad_table = s->tensors[CLATTN_ASSA_GRAD_TABLE]};
    if (c->mode == TOPK) {
        problem.top = c->k;
        problem.normalise = c->all ? CLATTN_ASSA_ALL : CLATTN_ASSA_SELECTED;
        problem.causal = c->causal ? CLATTN_CAUSAL_TOP_LEFT : CLATTN_CAUSAL_NONE;
    } else {
        problem.mix = s->tensors[CLATTN_ASSA_MIX];
        problem.table = s->tensors[CLATTN_ASSA_TABLE];
        problem.window = c->window;
        memcpy(problem.grid, c->grid, sizeof problem.grid);
        problem.shift = c->shift;
    }
    double start = clock_ms();
    return bench_core_planned(s, clattn_assa_plan(s->session->context, &problem, &s->plan), start, f);
}

/* Queries and keys that grow together keep their order. */
static bool scales(const bench_case *c, const char *tensor) {
    static const char *const names[] = {"the input", "q", "k", "q_proj.weight", "q_proj.bias", "k_proj.weight",
                                        "k_proj.bias"};
    bool named = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        named = named || strcmp(tensor, names[i]) == 0;
    }
    return named && c->mode == TOPK;
}

const bench_family bench_family_assa = {
    .name = "assa", .modes = modes, .work = work, .parts = parts, .row = row, .core = core, .scales = scales};
