/* clattn bench: convolutional additive self-attention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/clock.h"

enum { ADDITIVE, VIT };
static const char *const modes[] = {"additive", "vit", NULL};

static int64_t taps_of(const bench_case *c) { return c->taps > 0 ? c->taps : 3; }

/* Of the collapsed form: H scores a token, and one average a head; one projected row, or every row where causal. */
static bench_work additive_work(const bench_case *c) {
    const double d = (double)c->d, n = (double)c->n, h = (double)c->heads;
    bench_work w = {.core = 3 * n * d};
    if (c->core) {
        return w;
    }
    w.projections = 2 * n * d * h * (double)taps_of(c) + (c->causal ? 4 * n * d * d : 2 * n * d * h + 4 * d * d);
    w.core = c->causal ? 3 * n * d : 0;
    w.projections_backward = 2 * w.projections;
    w.core_backward = 2 * w.core;
    return w;
}

/* Products of qkv; five depthwise 3x3 convolutions; gates. */
static bench_work vit_work(const bench_case *c) {
    const double d = (double)c->d, n = (double)c->n;
    const double core = 4 * 18 * n * d + 2 * (2 * n * d + 4 * n * d + 2 * d * d) + 2 * n * d;
    return (bench_work){core, 2 * core, 6 * n * d * d, 12 * n * d * d};
}

static bench_work work(const bench_case *c, int64_t links) {
    (void)links;
    return c->mode == VIT ? vit_work(c) : additive_work(c);
}

static bench_parts parts(const bench_case *c) {
    if (c->mode == VIT) {
        return (bench_parts){0};
    }
    return (bench_parts){.v = {"linear_v.weight", "linear_v.bias", 0}, .out = {"proj.weight", "proj.bias", 0}};
}

static size_t hints(const bench_case *c, clattn_weight_info *infos) {
    infos[0] = (clattn_weight_info){.name = "conv_k.weight", .rank = 3, .shape = {c->d, c->d, taps_of(c)}};
    return c->mode == ADDITIVE;
}

/* ---- additive: view->k holds the sums over a head's channels, [n, heads] ---- */

/* The sum over a head's channels of a convolution is one channel of the convolution with the summed weights. */
static double *head_weights(const bench_subject *s, int64_t h, double *bias) {
    const bench_case *c = s->c;
    const bench_array *w = bench_weight(s, "conv_k.weight"), *b = bench_weight(s, "conv_k.bias");
    const int64_t columns = c->d / c->heads, each = c->d * taps_of(c);
    double *sum = bench_doubles((size_t)each);
    *bias = 0;
    for (int64_t o = h * columns; o < (h + 1) * columns; ++o) {
        *bias += b->values[o];
        for (int64_t e = 0; e < each; ++e) {
            sum[e] += w->values[o * each + e];
        }
    }
    return sum;
}

static double convolved(const bench_view *view, const double *w, int64_t j) {
    const bench_case *c = view->subject->c;
    const int64_t taps = taps_of(c), left = c->causal ? taps - 1 : taps / 2;
    double sum = 0;
    for (int64_t t = 0; t < taps; ++t) {
        const int64_t at = j + t - left;
        for (int64_t e = 0; at >= 0 && at < c->n && e < c->d; ++e) {
            sum += w[e * taps + t] * view->x[at * c->d + e];
        }
    }
    return sum;
}

static void layer_keys(bench_view *view) {
    const bench_case *c = view->subject->c;
    for (int64_t h = 0; h < c->heads; ++h) {
        double bias, *w = head_weights(view->subject, h, &bias);
        for (int64_t j = 0; j < c->n; ++j) {
            view->k[j * c->heads + h] = convolved(view, w, j) + bias;
        }
        free(w);
    }
}

static void core_keys(bench_view *view) {
    const bench_subject *s = view->subject;
    const int64_t columns = s->c->d / s->c->heads;
    const float *k = s->inputs[1].values + view->b * s->c->n * s->c->d;
    for (int64_t e = 0; e < s->c->n * s->c->d; ++e) {
        view->k[e / columns] += k[e];
    }
}

static void prepare_additive(bench_view *view) {
    const bench_case *c = view->subject->c;
    const bench_parts p = parts(c);
    view->k = bench_doubles((size_t)(c->n * c->heads));
    view->v = bench_doubles((size_t)(c->n * c->d));
    if (!c->core) {
        layer_keys(view);
        bench_linear(view->subject, &p.v, view->x, c->n, c->d, view->v);
        return;
    }
    core_keys(view);
    for (int64_t e = 0; e < c->n * c->d; ++e) {
        view->v[e] = view->subject->inputs[2].values[view->b * c->n * c->d + e];
    }
}

static void additive_row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    double *p = bench_doubles((size_t)c->n);
    for (int64_t h = 0; h < c->heads; ++h) {
        for (int64_t j = 0; j < c->n; ++j) {
            p[j] = c->causal && j > i ? -INFINITY : view->k[j * c->heads + h] * bench_head_scale(c);
        }
        bench_softmax(p, c->n);
        bench_average(view, h, p, o);
    }
    free(p);
}

/* ---- vit: the whole image at once, [n, d]; view->v becomes y ---- */

static const float *part(const bench_view *view, const char *module, const char *suffix) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", module, suffix);
    return bench_weight(view->subject, name)->values;
}

/* Depthwise 3x3 convolution with 0 outside the image. */
static double *depthwise(const bench_view *view, const char *module, const double *from) {
    const bench_case *c = view->subject->c;
    const float *w = part(view, module, ".weight"), *bias = part(view, module, ".bias");
    double *to = bench_doubles((size_t)(c->n * c->d));
    for (int64_t i = 0; i < c->n; ++i) {
        for (int64_t e = 0; e < c->d; ++e) {
            double sum = bias[e];
            for (int64_t t = 0; t < 9; ++t) {
                const int64_t y = i / c->grid[1] + t / 3 - 1, x = i % c->grid[1] + t % 3 - 1;
                bool inside = y >= 0 && y < c->grid[0] && x >= 0 && x < c->grid[1];
                sum += inside ? w[9 * e + t] * from[(y * c->grid[1] + x) * c->d + e] : 0;
            }
            to[i * c->d + e] = sum;
        }
    }
    return to;
}

static void spatial(const bench_view *view, const char *oper, double *t) {
    const bench_case *c = view->subject->c;
    char module[64], norm[64];
    snprintf(module, sizeof module, "%s.0.block.0", oper);
    snprintf(norm, sizeof norm, "%s.0.block.1", oper);
    const float *mean = part(view, norm, ".running_mean"), *var = part(view, norm, ".running_var");
    const float *gamma = part(view, norm, ".weight"), *beta = part(view, norm, ".bias");
    const float *w = part(view, oper, ".0.block.3.weight");
    double *g = depthwise(view, module, t);
    for (int64_t i = 0; i < c->n; ++i) {
        double gate = 0;
        for (int64_t e = 0; e < c->d; ++e) {
            gate += w[e] * fmax(0, (g[i * c->d + e] - mean[e]) / sqrt(var[e] + 1e-5) * gamma[e] + beta[e]);
        }
        for (int64_t e = 0; e < c->d; ++e) {
            t[i * c->d + e] *= bench_sigmoid(gate);
        }
    }
    free(g);
}

static void channel(const bench_view *view, const char *oper, double *t) {
    const bench_case *c = view->subject->c;
    const float *w = part(view, oper, ".1.block.1.weight");
    double *mean = bench_doubles((size_t)c->d);
    for (int64_t e = 0; e < c->n * c->d; ++e) {
        mean[e % c->d] += t[e] / (double)c->n;
    }
    for (int64_t o = 0; o < c->d; ++o) {
        double gate = 0;
        for (int64_t e = 0; e < c->d; ++e) {
            gate += w[o * c->d + e] * mean[e];
        }
        for (int64_t i = 0; i < c->n; ++i) {
            t[i * c->d + o] *= bench_sigmoid(gate);
        }
    }
    free(mean);
}

static double *operator(const bench_view *view, const char *oper, int section) {
    const bench_case *c = view->subject->c;
    const bench_part p = {"qkv.weight", NULL, section};
    double *t = bench_doubles((size_t)(c->n * c->d));
    bench_linear(view->subject, &p, view->x, c->n, c->d, t);
    if (oper) {
        spatial(view, oper, t);
        channel(view, oper, t);
    }
    return t;
}

static void prepare_vit(bench_view *view) {
    const bench_case *c = view->subject->c;
    double *q = operator(view, "oper_q", 0), *k = operator(view, "oper_k", 1), *v = operator(view, NULL, 2);
    for (int64_t e = 0; e < c->n * c->d; ++e) {
        q[e] += k[e];
    }
    double *mixed = depthwise(view, "dwc", q);
    for (int64_t e = 0; e < c->n * c->d; ++e) {
        mixed[e] *= v[e];
    }
    view->v = depthwise(view, "proj", mixed);
    free(mixed);
    free(v);
    free(k);
    free(q);
}

/* ---- both ---- */

static bool prepare(bench_view *view) {
    if (view->subject->c->mode == VIT) {
        prepare_vit(view);
    } else {
        prepare_additive(view);
    }
    return true;
}

static bool row(const bench_view *view, int64_t i, double *o) {
    const int64_t d = view->subject->c->d;
    if (view->subject->c->mode == VIT) {
        memcpy(o, view->v + i * d, (size_t)d * sizeof *o);
    } else {
        additive_row(view, i, o);
    }
    return true;
}

static bool core(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    if (c->mode == VIT) {
        s->misused = true;
        return fail_with(f, "cas in mode vit has no core of its own: it is for --level layer");
    }
    const bench_core_slots slots = {.count = CLATTN_CAS_SLOTS,
                                    .inputs = {CLATTN_CAS_Q, CLATTN_CAS_K, CLATTN_CAS_V},
                                    .output = CLATTN_CAS_O,
                                    .input_grads = {CLATTN_CAS_GRAD_Q, CLATTN_CAS_GRAD_K, CLATTN_CAS_GRAD_V},
                                    .output_grad = CLATTN_CAS_GRAD_O,
                                    .saved = CLATTN_CAS_SAVED};
    if (!bench_core_tensors(s, &slots, f)) {
        return false;
    }
    const clattn_cas_problem problem = {.q = s->tensors[CLATTN_CAS_Q],
                                        .k = s->tensors[CLATTN_CAS_K],
                                        .v = s->tensors[CLATTN_CAS_V],
                                        .o = s->tensors[CLATTN_CAS_O],
                                        .causal = c->causal,
                                        .train = c->train,
                                        .grad_o = s->tensors[CLATTN_CAS_GRAD_O],
                                        .grad_q = s->tensors[CLATTN_CAS_GRAD_Q],
                                        .grad_k = s->tensors[CLATTN_CAS_GRAD_K],
                                        .grad_v = s->tensors[CLATTN_CAS_GRAD_V]};
    double start = clock_ms();
    return bench_core_planned(s, clattn_cas_plan(s->session->context, &problem, &s->plan), start, f);
}

const bench_family bench_family_cas = {.name = "cas",
                                       .modes = modes,
                                       .work = work,
                                       .parts = parts,
                                       .hints = hints,
                                       .prepare = prepare,
                                       .row = row,
                                       .core = core};
