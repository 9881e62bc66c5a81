/* Is what was computed right? No time is printed before this says so.
 *
 * A handful of tokens is computed again from the same numbers, by the definition of the family and in float64: the keys
 * and values of their sequence by plain products, then each token's row, then the output's projection. All of the
 * output must be finite. The gradients: see bench_slope.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/bench.h"

enum { TOKENS = 4, TRIES = 64, STREAM_TOKENS = 120 };

static const bench_part *present(const bench_part *p) { return p->weight ? p : NULL; }

/* ---- one sequence ---- */

static double *widened(const float *values, int64_t count) {
    double *wide = bench_doubles((size_t)count);
    for (int64_t i = 0; i < count; ++i) {
        wide[i] = values[i];
    }
    return wide;
}

static double *sequence(const bench_array *a, int64_t b) {
    const int64_t count = a->count / a->shape[0];
    return widened(a->values + b * count, count);
}

static void project(bench_view *view, const bench_parts *parts) {
    const bench_case *c = view->subject->c;
    view->k = bench_doubles((size_t)(c->n * c->d));
    view->v = bench_doubles((size_t)(c->n * c->d));
    bench_linear(view->subject, &parts->k, view->x, c->n, c->d, view->k);
    bench_linear(view->subject, &parts->v, view->x, c->n, c->d, view->v);
}

static void open_view(bench_view *view, const bench_subject *s, int64_t b, const bench_parts *parts) {
    const bench_case *c = s->c;
    *view = (bench_view){.subject = s, .b = b, .q = bench_doubles((size_t)c->d)};
    if (!c->core) {
        view->x = sequence(&s->inputs[0], b);
    }
    if (c->family->prepare && c->family->prepare(view)) {
        return;
    }
    if (c->core) {
        view->k = sequence(&s->inputs[1], b);
        view->v = sequence(&s->inputs[2], b);
    } else {
        project(view, parts);
    }
}

static void close_view(bench_view *view) {
    free((void *)(uintptr_t)view->x);
    free(view->q);
    free(view->k);
    free(view->v);
}

static void take_query(bench_view *view, const bench_parts *parts, int64_t i) {
    const bench_subject *s = view->subject;
    const int64_t d = s->c->d;
    if (s->c->core) {
        for (int64_t e = 0; e < d; ++e) {
            view->q[e] = s->inputs[0].values[(view->b * s->c->n + i) * d + e];
        }
    } else if (present(&parts->q)) {
        bench_linear(s, &parts->q, view->x + i * d, 1, d, view->q);
    }
}

/* ---- the comparison ---- */

/* Rounding of the stored output, and of float32 sums over long sequences. */
static double limit(clattn_type type) { return type == CLATTN_F32 ? 1e-4 : type == CLATTN_F16 ? 3e-3 : 2e-2; }

typedef struct comparison {
    double error, magnitude;
    int64_t b, i; /* where the error is */
    int rows;
} comparison;

static void compare(comparison *all, int64_t b, int64_t i, const float *got, const double *want, int64_t d) {
    all->rows++;
    for (int64_t e = 0; e < d; ++e) {
        const double error = fabs(got[e] - want[e]);
        all->magnitude = fmax(all->magnitude, fabs(want[e]));
        if (error > all->error || isnan(error)) {
            all->error = isnan(error) ? INFINITY : error;
            all->b = b;
            all->i = i;
        }
    }
}

static bool token(bench_view *view, const bench_parts *parts, int64_t i, const float *y, comparison *all) {
    const bench_case *c = view->subject->c;
    double *o = bench_doubles((size_t)c->d), *want = bench_doubles((size_t)c->d);
    take_query(view, parts, i);
    bool firm = c->family->row(view, i, o);
    if (firm) {
        bool last = !c->core && present(&parts->out);
        if (last) {
            bench_linear(view->subject, &parts->out, o, 1, c->d, want);
        }
        compare(all, view->b, i, y + (view->b * c->n + i) * c->d, last ? want : o, c->d);
    }
    free(want);
    free(o);
    return firm;
}

/* The ends, and tokens between them; the next one where rounding alone could change a row. */
static void check_sequence(bench_view *view, const bench_parts *parts, const float *y, comparison *all) {
    const bench_case *c = view->subject->c;
    const int64_t tokens = c->n < TOKENS ? c->n : TOKENS;
    for (int64_t t = 0; t < tokens; ++t) {
        double place = (bench_number(c->seed, STREAM_TOKENS, (uint64_t)t) / 1.7320508 + 1) / 2;
        int64_t i = t == 0 ? 0 : t == 1 ? c->n - 1 : (int64_t)(place * (double)(c->n - 1));
        for (int tries = 0; tries < TRIES && !token(view, parts, i, y, all); ++tries) {
            i = (i + 1) % c->n;
        }
    }
}

static bool finite(const bench_subject *s, const float *y, int64_t count, failure *f) {
    for (int64_t e = 0; e < count; ++e) {
        if (!isfinite(y[e])) {
            return fail_with(f,
                             "%s with n %" PRId64 ": element %" PRId64 " of the output is %g; no time is given for it",
                             s->c->family->name, s->c->n, e, (double)y[e]);
        }
    }
    return true;
}

static bool judge(const bench_subject *s, const comparison *all, failure *f) {
    const bench_case *c = s->c;
    if (all->rows == 0) {
        return fail_with(f, "%s with n %" PRId64 ": no row of the output could be checked", c->family->name, c->n);
    }
    return all->error <= limit(c->dtype) * all->magnitude ||
           fail_with(f,
                     "%s with n %" PRId64 ": row [%" PRId64 ", %" PRId64
                     "] of the output is %g off, of a largest %g; no "
                     "time is given for it",
                     c->family->name, c->n, all->b, all->i, all->error, all->magnitude);
}

bool bench_check(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const bench_parts parts = c->family->parts(c);
    comparison all = {0};
    float *y;
    int64_t count;
    if (!bench_read(s, s->output_slot, "the output", &y, &count, f)) {
        return false;
    }
    bool done = finite(s, y, count, f);
    for (int64_t b = 0; done && b<c->batch; b += c->batch> 1 ? c->batch - 1 : 1) {
        bench_view view;
        open_view(&view, s, b, &parts);
        check_sequence(&view, &parts, y, &all);
        close_view(&view);
    }
    free(y);
    return done && judge(s, &all, f);
}
