/* Are the gradients right? They must agree with the slope of the forward pass, whose output has been checked.
 *
 * L = sum(grad_y * y). Along a direction u, (L(t + e u) - L(t - e u)) / 2e against sum(gradient * u): once for the
 * inputs, once for all weights together.
 *
 * The gradients of a family that chooses keys are those of a constant choice. So what decides the choice moves along
 * itself alone: all scores grow together and keep their order. Two things could still change it. Rounding of what
 * moves: numbers of few bits times 1 +- e are exact in storage. Rounding of the scores, where two of them are nearly
 * equal: such a token's output jumps, which its second difference y(t + e u) - 2 y(t) + y(t - e u) shows; its grad_y
 * becomes 0, and with it the token's part in the slope and in the gradients. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

enum { STREAM_DIRECTION = 130 };
enum { KEPT_BITS = 3 };                       /* of numbers that move along themselves */
static const double jump = 8, most_jump = 0.25; /* times the median of all tokens; their share */

enum { PLUS, STILL, MINUS, PLACES };

/* A tensor that moves: its numbers, its gradient's slot, and what it was before. */
typedef struct mover {
    bench_array *array;
    size_t slot;
    float *before;
    double size;        /* what its numbers typically are */
    double *difference; /* (plus - minus) / 2e, as stored */
} mover;

typedef struct motion {
    bench_subject *s;
    mover movers[BENCH_WEIGHTS + BENCH_INPUTS];
    size_t count;
    bool input;          /* the first are the inputs */
    double step;         /* e, a power of two */
    float *y[PLACES];    /* the outputs there */
    float *whole_grad_y; /* grad_y before tokens were left out */
} motion;

static bool scales(const bench_case *c, const char *name) { return c->family->scales && c->family->scales(c, name); }

/* Tables and embeddings have a size of their own; all others move by a share of what they typically are. */
static double size_of(const bench_array *a) {
    double sum = 0;
    for (int64_t i = 0; i < a->count; ++i) {
        sum += (double)a->values[i] * a->values[i];
    }
    return a->count > 0 ? sqrt(sum / (double)a->count) : 0;
}

static bool add(motion *m, bench_array *array, size_t slot, failure *f) {
    mover *v = &m->movers[m->count];
    *v = (mover){.array = array, .slot = slot, .size = size_of(array)};
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

/* The inputs, with the biases that must grow as it does; or every weight. */
static bool gather(motion *m, failure *f) {
    bench_subject *s = m->s;
    for (size_t i = 0; m->input && i < s->input_count; ++i) {
        if (!add(m, &s->inputs[i], s->input_grad_slots[i], f)) {
            return false;
        }
    }
    for (size_t i = 0; i < s->weight_count; ++i) {
        bench_array *w = &s->weights[i];
        bool wanted = w->trainable && (!m->input || (scales(s->c, w->name) && ends_bias(w->name)));
        if (wanted && !add(m, w, s->weight_grad_slots[i], f)) {
            return false;
        }
    }
    return true;
}

/* Three significant bits: times 1 +- 2^-5 exact in bf16, times 1 +- 2^-7 in f16. */
static double few_bits(double x) {
    int exponent;
    const double fraction = frexp(x, &exponent);
    return ldexp(round(ldexp(fraction, KEPT_BITS)), exponent - KEPT_BITS);
}

static bool upload(motion *m, failure *f) {
    const bool weights = m->count > (m->input ? m->s->input_count : 0);
    return (!m->input || bench_put_inputs(m->s, f)) && (!weights || bench_put_weights(m->s, f));
}

static bool put_back(motion *m, failure *f) {
    for (size_t t = 0; t < m->count; ++t) {
        memcpy(m->movers[t].array->values, m->movers[t].before, (size_t)m->movers[t].array->count * sizeof(float));
    }
    return upload(m, f);
}

/* Put the tensors at t + sign e u, keep what the storage made of it, and run. */
static bool run_at(motion *m, int place, failure *f) {
    const double sign = STILL - place;
    bench_subject *s = m->s;
    int64_t count;
    for (size_t t = 0; t < m->count; ++t) {
        mover *v = &m->movers[t];
        bench_array *a = v->array;
        const bool along = scales(s->c, a->name);
        for (int64_t i = 0; i < a->count; ++i) {
            const double from = along ? few_bits(v->before[i]) : v->before[i];
            const double u = along ? from : v->size * bench_number(s->c->seed, STREAM_DIRECTION + t, (uint64_t)i);
            a->values[i] = bench_round((float)(from + sign * m->step * u), a->type);
            v->difference[i] += sign * a->values[i] / (2 * m->step);
        }
    }
    return upload(m, f) && bench_subject_run(s, false, NULL, f) &&
           bench_read(s, s->output_slot, "the output", &m->y[place], &count, f);
}

/* ---- tokens whose choice changes ---- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The second difference of a token's output, as a share of the output. */
static double bend(const motion *m, int64_t token) {
    const int64_t d = m->s->c->d;
    double second = 0, size = 0;
    for (int64_t e = token * d; e < (token + 1) * d; ++e) {
        const double x = (double)m->y[PLUS][e] - 2 * (double)m->y[STILL][e] + m->y[MINUS][e];
        second += x * x;
        size += (double)m->y[STILL][e] * m->y[STILL][e];
    }
    return size > 0 ? sqrt(second / size) : 0;
}

/* Leave out tokens that bend far more than most. */
static bool leave_out(motion *m, failure *f) {
    const bench_case *c = m->s->c;
    const int64_t tokens = c->batch * c->n;
    double *bends = bench_doubles((size_t)tokens), *sorted = bench_doubles((size_t)tokens);
    int64_t left = 0;
    for (int64_t i = 0; i < tokens; ++i) {
        bends[i] = sorted[i] = bend(m, i);
    }
    qsort(sorted, (size_t)tokens, sizeof *sorted, ascending);
    for (int64_t i = 0; i < tokens; ++i) {
        if (bends[i] > jump * sorted[tokens / 2]) {
            memset(m->s->grad_y.values + i * c->d, 0, (size_t)c->d * sizeof(float));
            ++left;
        }
    }
    free(bends);
    free(sorted);
    return (double)left <= most_jump * (double)tokens ||
           fail_with(f,
                     "%s with n %" PRId64 ": the outputs of %" PRId64 " of %" PRId64 " tokens jump along a direction "
                     "that keeps what they choose; no time is given for it",
                     c->family->name, c->n, left, tokens);
}

/* The gradients at t. */
static bool differentiate(motion *m, float **gradients, failure *f) {
    bool done = (!m->s->c->family->scales || leave_out(m, f)) && bench_put_grad_y(m->s, f) &&
                bench_subject_run(m->s, true, NULL, f);
    int64_t count;
    for (size_t t = 0; t < m->count && done; ++t) {
        done = bench_read(m->s, m->movers[t].slot, m->movers[t].array->name, &gradients[t], &count, f);
    }
    return done;
}

/* ---- the comparison ---- */

/* (L(t + e u) - L(t - e u)) / 2e, and what rounding of y makes of it. */
static void measure(const motion *m, double *slope, double *noise) {
    const bench_array *g = &m->s->grad_y;
    const clattn_type type = m->s->c->dtype;
    const double unit = type == CLATTN_F32 ? 1e-6 : type == CLATTN_F16 ? 5e-4 : 4e-3;
    double sum = 0, squares = 0;
    for (int64_t e = 0; e < g->count; ++e) {
        const double term = (double)g->values[e] * m->y[MINUS][e];
        sum += (double)g->values[e] * m->y[PLUS][e] - term;
        squares += term * term;
    }
    *slope = sum / (2 * m->step);
    *noise = unit * sqrt(squares) / m->step;
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
    double measured, noise, slope, spread;
    if (!run_at(m, PLUS, f) || !run_at(m, MINUS, f) || !run_at(m, STILL, f) || !differentiate(m, gradients, f) ||
        !predict(m, gradients, &slope, &spread, f)) {
        return false;
    }
    measure(m, &measured, &noise);
    const double allowed = 0.005 * spread + 2 * noise;
    return fabs(measured - slope) <= allowed ||
           fail_with(f,
                     "%s with n %" PRId64
                     ": along the %s the gradients give a slope of %g, the forward pass %g, and %g "
                     "apart is allowed; no time is given for it",
                     m->s->c->family->name, m->s->c->n, m->input ? "inputs" : "weights", slope, measured, allowed);
}

static void release(motion *m, float **gradients) {
    for (size_t t = 0; t < m->count; ++t) {
        free(gradients[t]);
        free(m->movers[t].before);
        free(m->movers[t].difference);
    }
    for (int place = 0; place < PLACES; ++place) {
        free(m->y[place]);
    }
    free(m->whole_grad_y);
}

/* As small as rounding of y lets it be: a relu may bend on the way. */
static double step_of(clattn_type type) { return type == CLATTN_BF16 ? 0x1p-5 : type == CLATTN_F16 ? 0x1p-7 : 0x1p-8; }

/* All is as it was afterwards, on the device too. */
static bool along(bench_subject *s, bool input, failure *f) {
    motion m = {.s = s, .input = input, .step = step_of(s->c->dtype)};
    float *gradients[BENCH_WEIGHTS + BENCH_INPUTS] = {NULL};
    const size_t bytes = (size_t)s->grad_y.count * sizeof(float);
    m.whole_grad_y = malloc(bytes);
    bool done = m.whole_grad_y ? gather(&m, f) : fail_with(f, "no memory to keep %s", s->grad_y.name);
    if (done) {
        memcpy(m.whole_grad_y, s->grad_y.values, bytes);
        done = agree(&m, gradients, f);
        memcpy(s->grad_y.values, m.whole_grad_y, bytes);
        done = done && put_back(&m, f) && bench_put_grad_y(s, f);
    }
    release(&m, gradients);
    return done;
}

bool bench_check_gradients(bench_subject *s, failure *f) {
    return along(s, true, f) && (s->weight_count == 0 || along(s, false, f));
}
