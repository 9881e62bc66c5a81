/* The plain mathematics of the check, in float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/bench.h"

double *bench_doubles(size_t count) {
    double *values = calloc(count > 0 ? count : 1, sizeof *values);
    if (!values) {
        fprintf(stderr, "clattn: no memory for %zu numbers of the check\n", count);
        exit(EXIT_FAILURE);
    }
    return values;
}

/* Four sums, so that the additions do not wait for each other. */
double bench_dot(const double *a, const double *b, int64_t count) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int lane = 0; lane < 4; ++lane) {
            sum[lane] += a[i + lane] * b[i + lane];
        }
    }
    for (; i < count; ++i) {
        sum[0] += a[i] * b[i];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double bench_sigmoid(double t) { return 1 / (1 + exp(-t)); }

/* y_r += x_r w for four outputs at once: each number of x is loaded once for them. w [in, 4], y [4]. */
static void add_four(const double *x, const double *w, int64_t in, double *y) {
    double sum[4] = {y[0], y[1], y[2], y[3]};
    for (int64_t c = 0; c < in; ++c) {
        for (int lane = 0; lane < 4; ++lane) {
            sum[lane] += x[c] * w[4 * c + lane];
        }
    }
    for (int lane = 0; lane < 4; ++lane) {
        y[lane] = sum[lane];
    }
}

void bench_linear(const bench_subject *s, const bench_part *part, const double *x, int64_t rows, int64_t out,
                  double *y) {
    const bench_array *weight = bench_weight(s, part->weight), *bias = part->bias ? bench_weight(s, part->bias) : NULL;
    const int64_t first = part->section * out, in = s->c->d;
    double *panel = bench_doubles((size_t)in * 4);
    for (int64_t o = 0; o < out; o += 4) {
        for (int64_t e = 0; e < 4 * in; ++e) {
            panel[e] = o + e % 4 < out ? weight->values[(first + o + e % 4) * in + e / 4] : 0;
        }
        for (int64_t r = 0; r < rows; ++r) {
            double sums[4];
            for (int lane = 0; lane < 4; ++lane) {
                sums[lane] = bias && o + lane < out ? bias->values[first + o + lane] : 0;
            }
            add_four(x + r * in, panel, in, sums);
            for (int64_t lane = 0; lane < 4 && o + lane < out; ++lane) {
                y[r * out + o + lane] = sums[lane];
            }
        }
    }
    free(panel);
}

void bench_softmax(double *scores, int64_t count) {
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < count; ++j) {
        most = fmax(most, scores[j]);
    }
    for (int64_t j = 0; j < count; ++j) {
        scores[j] = isinf(scores[j]) ? 0 : exp(scores[j] - most);
        sum += scores[j];
    }
    for (int64_t j = 0; j < count && sum > 0; ++j) {
        scores[j] /= sum;
    }
}

void bench_scores(const bench_view *view, int64_t h, double scale, int64_t from, int64_t to, double *scores) {
    const bench_case *c = view->subject->c;
    const int64_t d = c->d, columns = d / c->heads;
    for (int64_t j = 0; j < c->n; ++j) {
        bool seen = j >= from && j <= to;
        scores[j] = seen ? bench_dot(view->q + h * columns, view->k + j * d + h * columns, columns) * scale : -INFINITY;
    }
}

void bench_average(const bench_view *view, int64_t h, const double *p, double *o) {
    const bench_case *c = view->subject->c;
    const int64_t d = c->d, columns = d / c->heads;
    for (int64_t j = 0; j < c->n; ++j) {
        for (int64_t e = h * columns; e < (h + 1) * columns && p[j] != 0; ++e) {
            o[e] += p[j] * view->v[j * d + e];
        }
    }
}
