/* clattn bench: attention free transformers. */
#include <math.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/clock.h"

enum { GATED, GATED_MATRIX, FULL, LOCAL, SIMPLE, CONV };
static const char *const modes[] = {"gated", "gated-matrix", "full", "local", "simple", "conv", NULL};

static int64_t taps_of(const bench_case *c) { return c->taps > 0 ? c->taps : 5; }
static bool has_w(const bench_case *c) { return c->mode == FULL || c->mode == LOCAL; }

/* Without K and V: both passes. */
static void skip_keys(bench_work *w, double n, double d) {
    w->projections = 5 * n * d * d + 2 * d * d * d;
    w->projections_backward = 10 * n * d * d + 4 * d * d * d;
}

/* Of the cheapest known form: gated sums without K and V once n passes 2/3 d, averages as two products by exponentials. */
static bench_work work(const bench_case *c, int64_t links) {
    (void)links;
    const double d = (double)c->d, n = (double)c->n, pairs = bench_pairs(c->n, -1, -1, c->causal);
    const bool skips = !c->core && !c->causal && 3 * c->n > 2 * c->d;
    bench_work w = {.projections = 8 * n * d * d, .projections_backward = 16 * n * d * d};
    switch (c->mode) {
    case GATED:
        w.core = 3 * n * d;
        w.core_backward = 7 * n * d;
        if (skips) {
            skip_keys(&w, n, d);
        }
        break;
    case GATED_MATRIX:
        w.core = 4 * n * d * d / (double)c->heads;
        w.core_backward = 2 * w.core;
        if (skips) {
            skip_keys(&w, n, d);
            w.core = 2 * (n + d) * d * d / (double)c->heads;
            w.core_backward = (4 * n + 6 * d) * d * d / (double)c->heads;
        }
        break;
    case FULL:
        w.core = 4 * pairs * d + 2 * pairs * (double)c->rank;
        break;
    case LOCAL:
        w.core = 4 * bench_pairs(c->n, c->local - 1, c->local - 1, c->causal) * d;
        break;
    case CONV:
        w.core = 4 * bench_pairs(c->n, taps_of(c) / 2, taps_of(c) / 2, c->causal) * d;
        w.projections = 6 * n * d * d + 2 * n * d * (double)c->heads;
        w.projections_backward = 2 * w.projections;
        break;
    default:
        w.core = 5 * n * d;
    }
    if (w.core_backward == 0) {
        w.core_backward = 2 * w.core;
    }
    return w;
}

static bench_parts parts(const bench_case *c) {
    (void)c;
    return (bench_parts){{"Wq.weight", "Wq.bias", 0},
                         {"Wk.weight", "Wk.bias", 0},
                         {"Wv.weight", "Wv.bias", 0},
                         {"Wo.weight", "Wo.bias", 0}};
}

/* The table of full and local has n rows, or factors where --rank is given. */
static size_t hints(const bench_case *c, clattn_weight_info *infos) {
    if (has_w(c) && c->rank == 0) {
        infos[0] = (clattn_weight_info){.name = "w", .rank = 2, .shape = {c->n, c->n}};
        return 1;
    }
    if (has_w(c)) {
        infos[0] = (clattn_weight_info){.name = "u", .rank = 2, .shape = {c->n, c->rank}};
        infos[1] = (clattn_weight_info){.name = "v", .rank = 2, .shape = {c->n, c->rank}};
        return 2;
    }
    infos[0] = (clattn_weight_info){.name = "conv.weight", .rank = 2, .shape = {c->heads, taps_of(c)}};
    return c->mode == CONV;
}

/* ---- the row ---- */

/* Key columns: one a head in conv. */
static int64_t key_columns(const bench_case *c) { return c->mode == CONV ? c->heads : c->d; }

static bool prepare(bench_view *view) {
    const bench_case *c = view->subject->c;
    const bench_parts p = parts(c);
    if (c->mode != CONV || c->core) {
        return false;
    }
    view->k = bench_doubles((size_t)(c->n * c->heads));
    view->v = bench_doubles((size_t)(c->n * c->d));
    bench_linear(view->subject, &p.k, view->x, c->n, c->heads, view->k);
    bench_linear(view->subject, &p.v, view->x, c->n, c->d, view->v);
    return true;
}

static void gated(const bench_view *view, int64_t last, double *o) {
    const bench_case *c = view->subject->c;
    const float *position = bench_weight(view->subject, "position_weights")->values;
    const int64_t d = c->d, columns = d / c->heads;
    for (int64_t j = 0; j <= last; ++j) {
        const double *k = view->k + j * d, *v = view->v + j * d;
        for (int64_t h = 0; h < c->heads; ++h) {
            double dot = 0;
            for (int64_t e = h * columns; c->mode == GATED_MATRIX && e < (h + 1) * columns; ++e) {
                dot += bench_sigmoid(view->q[e]) * k[e];
            }
            for (int64_t e = h * columns; e < (h + 1) * columns; ++e) {
                o[e] += position[h] * (c->mode == GATED_MATRIX ? dot : bench_sigmoid(view->q[e]) * k[e]) * v[e];
            }
        }
    }
}

/* w_ij of a head. */
static double logit(const bench_view *view, int64_t h, int64_t i, int64_t j) {
    const bench_case *c = view->subject->c;
    const bench_array *w = bench_weight(view->subject, "w"), *u = bench_weight(view->subject, "u"),
                      *v = bench_weight(view->subject, "v"), *taps = bench_weight(view->subject, "conv.weight");
    double sum = 0;
    if (c->mode == CONV) {
        const int64_t t = j - i + taps_of(c) / 2;
        return t >= 0 && t < taps_of(c) ? taps->values[h * taps_of(c) + t] : 0;
    }
    if (c->mode == SIMPLE || (c->mode == LOCAL && llabs(i - j) >= c->local)) {
        return 0;
    }
    if (w) {
        return w->values[i * c->n + j];
    }
    for (int64_t r = 0; r < c->rank; ++r) {
        sum += (double)u->values[i * c->rank + r] * v->values[j * c->rank + r];
    }
    return sum;
}

static void averaged(const bench_view *view, int64_t i, int64_t last, double *o) {
    const bench_case *c = view->subject->c;
    const int64_t d = c->d, columns = d / c->heads, keys = key_columns(c);
    double *w = bench_doubles((size_t)(last + 1)), *p = bench_doubles((size_t)(last + 1));
    for (int64_t e = 0; e < d; ++e) {
        for (int64_t j = 0; e % columns == 0 && j <= last; ++j) {
            w[j] = logit(view, e / columns, i, j);
        }
        for (int64_t j = 0; j <= last; ++j) {
            p[j] = view->k[j * keys + e / (d / keys)] + w[j];
        }
        bench_softmax(p, last + 1);
        for (int64_t j = 0; j <= last; ++j) {
            o[e] += bench_sigmoid(view->q[e]) * p[j] * view->v[j * d + e];
        }
    }
    free(p);
    free(w);
}

static bool row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    const int64_t last = c->causal ? i : c->n - 1;
    if (c->mode == GATED || c->mode == GATED_MATRIX) {
        gated(view, last, o);
    } else {
        averaged(view, i, last, o);
    }
    return true;
}

/* ---- core ---- */

static bool core_weights(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    clattn_weight_info infos[2];
    if (has_w(c) && c->rank > 0) {
        hints(c, infos);
        return bench_core_weight(s, CLATTN_AFT_W_LEFT, CLATTN_AFT_GRAD_W_LEFT, &infos[0], NULL, f) &&
               bench_core_weight(s, CLATTN_AFT_W_RIGHT, CLATTN_AFT_GRAD_W_RIGHT, &infos[1], NULL, f);
    }
    if (has_w(c) || c->mode == CONV) {
        const bool taps = c->mode == CONV;
        hints(c, infos);
        return bench_core_weight(s, taps ? CLATTN_AFT_TAPS : CLATTN_AFT_W,
                                 taps ? CLATTN_AFT_GRAD_TAPS : CLATTN_AFT_GRAD_W, &infos[0], NULL, f);
    }
    const clattn_weight_info position = {.name = "position_weights", .rank = 1, .shape = {c->heads}};
    return c->mode == SIMPLE ||
           bench_core_weight(s, CLATTN_AFT_POSITION, CLATTN_AFT_GRAD_POSITION, &position, NULL, f);
}

static bool core(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const bench_core_slots slots = {.count = CLATTN_AFT_SLOTS,
                                    .inputs = {CLATTN_AFT_Q, CLATTN_AFT_K, CLATTN_AFT_V},
                                    .output = CLATTN_AFT_Y,
                                    .input_grads = {CLATTN_AFT_GRAD_Q, CLATTN_AFT_GRAD_K, CLATTN_AFT_GRAD_V},
                                    .output_grad = CLATTN_AFT_GRAD_Y,
                                    .saved = CLATTN_AFT_SAVED,
                                    .key_columns = key_columns(c) / c->heads,
                                    .token_major = true};
    clattn_aft_problem problem = {
        .mode = c->mode, .causal = c->causal, .local = c->mode == LOCAL ? c->local : 0, .train = c->train};
    if (!bench_core_tensors(s, &slots, f) || !core_weights(s, f)) {
        return false;
    }
    for (int i = 0; i < CLATTN_AFT_SLOTS; ++i) {
        problem.tensor[i] = s->tensors[i];
    }
    double start = clock_ms();
    return bench_core_planned(s, clattn_aft_plan(s->session->context, &problem, &s->plan), start, f);
}

const bench_family bench_family_aft = {.name = "aft",
                                       .modes = modes,
                                       .work = work,
                                       .parts = parts,
                                       .hints = hints,
                                       .prepare = prepare,
                                       .row = row,
                                       .core = core};
