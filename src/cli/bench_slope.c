/* Are the gradients right? They must agree with the slope of the forward pass, whose output has been checked.
 *
 * L = sum(grad_y * y). Along a direction u, (L(t + e u) - L(t - e u)) / 2e against sum(gradient * u): once for the
 * input, once for all weights together. Where a family chooses keys, what decides the choice moves along itself alone,
 * so that the choice stays: the gradients are those of a constant choice. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { STREAM_DIRECTION = 130 };
static const double step = 0.01;

/* A tensor that moves: its numbers, its gradient's slot, and what it was before. */
typedef struct mover {
    bench_array *array;
    size_t slot;
    float *before;
    double *difference; /* (plus - minus) / 2e, as stored */
} mover;

typedef struct motion {
    bench_subject *s;
    mover movers[BENCH_WEIGHTS + 1];
    size_t count;
    bool input; /* the first is the input */
} motion;

static bool scales(const bench_case *c, const char *name) { return c->family->scales && c->family->scales(c, name); }

static bool add(motion *m, bench_array *array, size_t slot, failure *f) {
    mover *v = &m->movers[m->count];
    *v = (mover){.array = array, .slot = slot};
    v->before = malloc((size_t)array->count * sizeof *v->before);
    v->difference = calloc((size_t)array->count, sizeof *v->difference);
    m->count++;
    if (!v->before || !v->difference) {
        return fail_with(f, "no memory to move %s", array->name);
    }
    memcpy(v->before, array->values, (size_t)array->count * sizeof *v->before);
    return true;
}

static bool ends_bias(const char *name) {
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".bias") == 0;
}

/* The input, with the biases that must grow as it does; or every weight. */
static bool gather(motion *m, failure *f) {
    bench_subject *s = m->s;
    if (m->input && !add(m, &s->inputs[0], CLATTN_LAYER_GRAD_X, f)) {
        return false;
    }
    for (size_t i = 0; i < s->weight_count; ++i) {
        bench_array *w = &s->weights[i];
        bool wanted = w->trainable && (!m->input || (scales(s->c, w->name) && ends_bias(w->name)));
        if (wanted && !add(m, w, CLATTN_LAYER_GRAD_WEIGHTS + i, f)) {
            return false;
        }
    }
    return true;
}

/* Tables and embeddings have a size of their own; all others move by a share of what they typically are. */
static double size_of(const bench_array *a) {
    double sum = 0;
    for (int64_t i = 0; i < a->count; ++i) {
        sum += (double)a->values[i] * a->values[i];
    }
    return a->count > 0 ? sqrt(sum / (double)a->count) : 0;
}

/* Put the tensors at t + sign e u, and keep what the storage made of it. */
static bool move(motion *m, double sign, failure *f) {
    bench_subject *s = m->s;
    for (size_t t = 0; t < m->count; ++t) {
        mover *v = &m->movers[t];
        bench_array *a = v->array;
        memcpy(a->values, v->before, (size_t)a->count * sizeof *a->values);
        const double size = size_of(a);
        const bool along = scales(s->c, a->name);
        for (int64_t i = 0; i < a->count && sign != 0; ++i) {
            double u = along ? v->before[i] : size * bench_number(s->c->seed, STREAM_DIRECTION + t, (uint64_t)i);
            a->values[i] = bench_round((float)(v->before[i] + sign * step * u), a->type);
            v->difference[i] += sign * a->values[i] / (2 * step);
        }
    }
    bool weights = m->count > (m->input ? 1 : 0);
    return (!m->input || bench_put_input(s, 0, f)) && (!weights || bench_put_weights(s, f));
}

static bool value(bench_subject *s, double *sum, double *noise, failure *f) {
    float *y;
    int64_t count;
    if (!bench_subject_run(s, false, NULL, f) || !bench_read(s, s->output_slot, "the output", &y, &count, f)) {
        return false;
    }
    double squares = 0;
    *sum = 0;
    for (int64_t e = 0; e < count; ++e) {
        const double term = (double)s->grad_y.values[e] * y[e];
        *sum += term;
        squares += term * term;
    }
    const double unit = s->c->dtype == CLATTN_F32 ? 1e-6 : s->c->dtype == CLATTN_F16 ? 5e-4 : 4e-3;
    *noise = unit * sqrt(squares) / step;
    free(y);
    return true;
}

/* sum(gradient * u), and the size that such a sum has when signs fall at random. */
static bool predict(motion *m, float **gradients, double *slope, double *spread, failure *f) {
    double squares = 0;
    *slope = 0;
    for (size_t t = 0; t < m->count; ++t) {
        for (int64_t i = 0; i < m->movers[t].array->count; ++i) {
            const double term = gradients[t][i] * m->movers[t].difference[i];
            *slope += term;
            squares += term * term;
        }
    }
    *spread = sqrt(squares);
    return isfinite(*slope) || fail_with(f, "%s with n %" PRId64 ": a gradient is not finite; no time is given for it",
                                         m->s->c->family->name, m->s->c->n);
}

static bool agree(motion *m, float **gradients, failure *f) {
    double plus, minus, noise, slope, spread;
    if (!move(m, 1, f) || !value(m->s, &plus, &noise, f) || !move(m, -1, f) || !value(m->s, &minus, &noise, f) ||
        !move(m, 0, f) || !predict(m, gradients, &slope, &spread, f)) {
        return false;
    }
    const double measured = (plus - minus) / (2 * step), allowed = 0.02 * spread + 6 * noise;
    return fabs(measured - slope) <= allowed ||
           fail_with(f,
                     "%s with n %" PRId64
                     ": along the %s the gradients give a slope of %g, the forward pass %g, and %g "
                     "apart is allowed; no time is given for it",
                     m->s->c->family->name, m->s->c->n, m->input ? "input" : "weights", slope, measured, allowed);
}

static bool along(bench_subject *s, bool input, failure *f) {
    motion m = {.s = s, .input = input};
    float *gradients[BENCH_WEIGHTS + 1] = {NULL};
    int64_t count;
    bool done = gather(&m, f);
    for (size_t t = 0; t < m.count && done; ++t) {
        done = bench_read(s, m.movers[t].slot, m.movers[t].array->name, &gradients[t], &count, f);
    }
    done = done && agree(&m, gradients, f);
    for (size_t t = 0; t < m.count; ++t) {
        free(gradients[t]);
        free(m.movers[t].before);
        free(m.movers[t].difference);
    }
    return done;
}

bool bench_check_gradients(bench_subject *s, failure *f) { return along(s, true, f) && along(s, false, f); }
