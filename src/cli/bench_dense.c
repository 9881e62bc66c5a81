/* clattn bench: dense attention. */
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/clock.h"

/* Two products of n x n x d forward; five backward, which computes the probabilities again. */
static bench_work work(const bench_case *c, int64_t links) {
    (void)links;
    const double pairs = bench_pairs(c->n, -1, -1, c->causal), d = (double)c->d, n = (double)c->n;
    return (bench_work){4 * pairs * d, 10 * pairs * d, 8 * n * d * d, 16 * n * d * d};
}

static bench_parts parts(const bench_case *c) {
    (void)c;
    return (bench_parts){{"in_proj_weight", "in_proj_bias", 0},
                         {"in_proj_weight", "in_proj_bias", 1},
                         {"in_proj_weight", "in_proj_bias", 2},
                         {"out_proj.weight", "out_proj.bias", 0}};
}

static bool row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    double *p = bench_doubles((size_t)c->n);
    for (int64_t h = 0; h < c->heads; ++h) {
        bench_scores(view, h, bench_head_scale(c), 0, c->causal ? i : c->n - 1, p);
        bench_softmax(p, c->n);
        bench_average(view, h, p, o);
    }
    free(p);
    return true;
}

static bool core(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const bench_core_slots slots = {.count = CLATTN_DENSE_SLOTS,
                                    .inputs = {CLATTN_DENSE_Q, CLATTN_DENSE_K, CLATTN_DENSE_V},
                                    .output = CLATTN_DENSE_O,
                                    .input_grads = {CLATTN_DENSE_GRAD_Q, CLATTN_DENSE_GRAD_K, CLATTN_DENSE_GRAD_V},
                                    .output_grad = CLATTN_DENSE_GRAD_O,
                                    .saved = CLATTN_DENSE_SAVED};
    if (!bench_core_tensors(s, &slots, f)) {
        return false;
    }
    const clattn_dense_problem problem = {.q = s->tensors[CLATTN_DENSE_Q],
                                          .k = s->tensors[CLATTN_DENSE_K],
                                          .v = s->tensors[CLATTN_DENSE_V],
                                          .o = s->tensors[CLATTN_DENSE_O],
                                          .scale = (float)c->scale,
                                          .causal = c->causal ? CLATTN_CAUSAL_TOP_LEFT : CLATTN_CAUSAL_NONE,
                                          .train = c->train,
                                          .grad_o = s->tensors[CLATTN_DENSE_GRAD_O],
                                          .grad_q = s->tensors[CLATTN_DENSE_GRAD_Q],
                                          .grad_k = s->tensors[CLATTN_DENSE_GRAD_K],
                                          .grad_v = s->tensors[CLATTN_DENSE_GRAD_V]};
    double start = clock_ms();
    return bench_core_planned(s, clattn_dense_plan(s->session->context, &problem, &s->plan), start, f);
}

const bench_family bench_family_dense = {.name = "dense", .work = work, .parts = parts, .row = row, .core = core};
