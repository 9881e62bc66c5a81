/* A layer's test as one line of a table: random weights and input, device against reference. */
#ifndef CLATTN_TESTS_LAYER_CASE_H
#define CLATTN_TESTS_LAYER_CASE_H

#include "harness/run.h"

/* Zeros are the defaults.
 * settings     "mode=topk k=8 causal"
 * lengths      [B] or NULL
 * padding_nan  what x holds past the lengths is NaN
 * spread       deviation of x, default 1
 * kernel       taps of cas and of aft conv, default 3 and 5
 * memory       rows of cjar, default 4, −1 = none; memory_kv: keys and values have their own
 * table        T of aft's w, default n; rank: factors u, v instead
 * reparam      conv.gamma and conv.beta are there
 * links        pairs drawn, cjar
 * weight_type  storage of the weights, whose numbers are exact in it
 * tolerance    default storage_tolerance(type) */
typedef struct layer_case {
    const char *variant, *settings;
    int B, n, d, H;
    const int *lengths;
    bool padding_nan;
    double spread;
    int kernel, memory, table, rank, links;
    bool memory_kv, reparam;
    clattn_type type, weight_type;
    uint64_t seed;
    double tolerance;
} layer_case;

/* The fields that every case has: {LAYER("dense", "causal", 2, 37, 24, 3), .spread = 30}. */
#define LAYER(variant_, settings_, B_, n_, d_, H_)                                                                     \
    .variant = variant_, .settings = settings_, .B = B_, .n = n_, .d = d_, .H = H_

/* What a case is made of; owned. */
typedef struct layer_data {
    settings settings;
    ref_weight weights[40];
    size_t weight_count;
    double *x;
    long *link_rows; /* NULL without links */
    int *link_keys;
    ref_links links;
} layer_data;

void layer_data_make(const layer_case *c, layer_data *data);
void layer_data_free(layer_data *data);

/* The run that a case and its data describe; borrows both. */
layer_run layer_run_of(const layer_case *c, const layer_data *data);

/* Run it on the device and compare. */
void check_layer_case(const fixture *f, const layer_case *c);

/* The layer of the case's stored weights is that of the same numbers in float32, bit by bit; so with one number of each
 * weight in turn NaN or infinite. */
void check_weight_storage(const fixture *f, const layer_case *c);

#endif
