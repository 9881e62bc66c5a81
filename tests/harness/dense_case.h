/* A test of the dense core as one line of a table: random tensors, device against reference. */
#ifndef CLATTN_TESTS_DENSE_CASE_H
#define CLATTN_TESTS_DENSE_CASE_H

#include <clattn/dense.h>

#include "harness/strided.h"
#include "reference/reference.h"

/* Axes along which a bias has numbers of its own; along the others its stride is 0. */
enum { BIAS_BATCH = 1, BIAS_HEAD = 2, BIAS_QUERY = 4, BIAS_KEY = 8, BIAS_FULL = 15 };

/* Zeros are the defaults.
 * HKV, DV       default H, D
 * windowed      left and right count, −1 = unlimited
 * bias          the axes above; hidden: share of its entries that are −inf
 * no_lse        lse is not asked for
 * q, kv, o      how memory is ordered
 * deviation     of q, default 1
 * tolerance     default storage_tolerance(type)
 * nan           rows of k and v that no query sees are NaN, and of q that are padding */
typedef struct dense_case {
    int B, H, M, N, D, HKV, DV;
    clattn_causal causal;
    bool windowed;
    int left, right;
    const int *query_lengths, *key_lengths;
    int bias;
    double hidden;
    bool no_lse, nan;
    spread q, kv, o;
    double deviation, tolerance;
    float scale;
    clattn_type type;
    uint64_t seed;
} dense_case;

/* Inputs and answers; owned. ref borrows them. Contiguous [B, H, n, D]. */
typedef struct dense_data {
    double *q, *k, *v, *bias, *o, *lse; /* bias, lse: NULL where there is none */
    size_t q_count, k_count, v_count, bias_count, o_count, lse_count;
    ref_attention ref;
} dense_data;

void dense_data_make(const dense_case *given, dense_data *data);
void dense_data_free(dense_data *data);

/* The problem that a case describes. */
clattn_dense_problem dense_problem(const dense_case *given);

/* Run on the device: o [B, H, M, DV] and lse [B, H, M] (NULL where there is none) are new arrays. */
void dense_run(const fixture *f, const dense_case *given, const dense_data *data, double **o, double **lse);

/* Run and compare with the reference. */
void check_dense_case(const fixture *f, const dense_case *given);

#endif
