/* A test of the assa cores as one line of a table: random tensors, with gaps between rows. */
#ifndef CLATTN_TESTS_ASSA_CASE_H
#define CLATTN_TESTS_ASSA_CASE_H

#include <clattn/assa.h>

#include "harness/core_job.h"
#include "harness/rng.h"
#include "reference/reference.h"

/* Zeros are the defaults: KV heads as many as heads, N = M, DV = D, f32, no window.
 * spread  deviation of q and k; 0 = 1
 * listed  indices and scores are asked for; no_lse: lse is not
 * nan     rows of q, k, v that are padding are NaN
 * before  every element of the gradients of mix and table before backward, accumulated to; 0 = overwrite */
typedef struct assa_case {
    int B, H, HKV, M, N, D, DV, k;
    bool all, adaptive, listed, no_lse, nan;
    clattn_causal causal;
    const int *query_lengths, *key_lengths;
    fill fill;
    double spread, before;
    float scale;
    clattn_type type;
    int window, rows, columns, shift;
    uint64_t seed;
} assa_case;

typedef struct assa_data {
    assa_case c; /* defaults filled in */
    double *q, *k, *v, *mix, *table;
    double *o, *scores, *lse; /* answers; NULL where not asked for */
    double *indices;
} assa_data;

/* The same problem for the reference, but for windows. */
ref_attention assa_attention(const assa_data *d);

static inline size_t assa_queries(const assa_case *c) { return (size_t)c->B * c->H * c->M; }
static inline size_t assa_keys(const assa_case *c) { return (size_t)c->B * c->HKV * c->N; }

/* Inputs of a case; and what it holds, released. */
void assa_data_make(const assa_case *given, assa_data *d);
void assa_data_free(assa_data *d);

/* The problem, without memory; with gradients where it trains. */
clattn_assa_problem assa_problem(const assa_case *c, bool train);

/* Plan it and put its inputs (grad_o: NULL where it does not train) on the device. */
core_job assa_job(const fixture *f, const assa_data *d, const double *grad_o);

/* Run the core on the device; its answers go into d. */
void assa_run(const fixture *f, assa_data *d);

#endif
