/* A test of the cjar core as one line of a table: random tensors, device against reference. */
#ifndef CLATTN_TESTS_CJAR_CASE_H
#define CLATTN_TESTS_CJAR_CASE_H

#include <clattn/cjar.h>

#include "harness/strided.h"
#include "reference/reference.h"

/* Zeros are the defaults.
 * memory        rows of memory_k and memory_v
 * links         pairs drawn over the whole table, n·n at most; hub: every query links to this key too (−1 = none)
 * repeated      each link is listed twice: what a hand-made list may hold
 * memory_gap    elements behind each row of the memory
 * nan           rows of q, k, v that are padding are NaN */
typedef struct cjar_case {
    int B, H, n, D;
    int left, right;
    bool causal, multiply, repeated, nan;
    int memory, memory_gap, links, hub;
    const int *lengths;
    spread qkv, o;
    double deviation, tolerance;
    float scale;
    clattn_type type;
    uint64_t seed;
} cjar_case;

/* Inputs and answers; owned. memory_k, memory_v: [memory, H, D]. */
typedef struct cjar_data {
    double *q, *k, *v, *memory_k, *memory_v, *o;
    long *link_rows; /* NULL without links */
    int *link_keys;
    size_t count;
    ref_attention ref;
    ref_cjar extra;
} cjar_data;

void cjar_data_make(const cjar_case *given, cjar_data *data);
void cjar_data_free(cjar_data *data);

/* After a change of the inputs. */
void cjar_expect(cjar_data *data);

clattn_cjar_problem cjar_problem(const cjar_case *given, const cjar_data *data);

/* Run on the device: o [B, H, n, D], for free(). */
double *cjar_run(const fixture *f, const cjar_case *given, const cjar_data *data);

void check_cjar_case(const fixture *f, const cjar_case *given);

#endif
