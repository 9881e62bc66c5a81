/* aft's core in the library's own words, shared by the public problem and the layer. */
#ifndef CLATTN_VARIANT_AFT_H
#define CLATTN_VARIANT_AFT_H

#include <clattn/aft.h>

#include "core/plan.h"
#include "core/target.h"

enum {
    CLATTN__AFT_MAX_HEAD = 256, /* GATED_MATRIX keeps a head's matrix in private memory */
    CLATTN__AFT_TRACES = 3      /* floats of a query and channel that averages leave for backward */
};

/* Element (b, i, h, c) of a tensor is at `at` + b*batch + i*row + h*head + c. */
typedef struct clattn__aft_view {
    clattn__operand at;
    int64_t batch, row, head;
} clattn__aft_view;

/* gate_ready  q has been through the sigmoid
 * lengths, position  slot NONE without them
 * bias        what stands beside the keys, by mode:
 *   FULL    w, or the left factor; bias_row floats from row to row
 *   LOCAL   w_ij at i*bias_row + j, read where |i - j| <= reach; factors come multiplied, so rank is 0
 *   CONV    element (h, j - i + reach) at h*bias_head
 * traces      slot NONE, or where averages leave (K, C, o) for backward: [batch, length, 3, heads * head_size], see
 *             cl/include/aft.h
 * factor      FULL with rank > 0: the right factor transposed, rows of `columns` floats (a multiple of 64) */
typedef struct clattn__aft {
    int mode;
    bool causal, gate_ready;
    int64_t batch, length, heads, head_size;
    clattn_type x_type, y_type;
    clattn__aft_view q, k, v, y;
    clattn__operand lengths, position;
    clattn__operand bias, factor, traces;
    int64_t bias_row, bias_head, reach;
    int64_t rank, columns;
} clattn__aft;

/* Append the core's stages. */
void clattn__aft_core(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft);

/* Stages that prepare weights (cl/aft_load.cl). */
typedef struct clattn__aft_rows {
    clattn__operand at;
    int64_t row; /* floats from row to row */
} clattn__aft_rows;

void clattn__aft_copy(clattn__plan *plan, const clattn__target *target, clattn__operand from, clattn__operand to,
                      int64_t count);
/* to [count, 2 reach + 1]: w_ij with j = i - reach + column; w [count, count], or factors of rank > 0. */
void clattn__aft_bias(clattn__plan *plan, const clattn__target *target, clattn__aft_rows w, clattn__aft_rows factor,
                      clattn__operand to, int64_t count, int64_t rank, int64_t reach);
/* to [rank, columns] from factor [count, rank]. */
void clattn__aft_transpose(clattn__plan *plan, const clattn__target *target, clattn__aft_rows factor,
                           clattn__operand to, int64_t count, int64_t rank, int64_t columns);
/* gamma.slot NONE: no re-parametrisation. */
void clattn__aft_taps(clattn__plan *plan, const clattn__target *target, clattn__operand taps, clattn__operand gamma,
                      clattn__operand beta, clattn__operand to, int64_t heads, int64_t count);

/* to[c*row + k*step] = weight [out, in], and bias as column k = in. */
void clattn__aft_augment(clattn__plan *plan, const clattn__target *target, clattn__operand weight,
                         clattn__operand bias, clattn__operand to, int64_t in, int64_t out, int64_t row, int64_t step);

/* LOCAL: w_ij as clattn__aft_bias leaves it. */
static inline void clattn__aft_use_band(clattn__aft *aft, clattn__operand band) {
    aft->bias = band;
    aft->bias.offset += aft->reach;
    aft->bias_row = 2 * aft->reach;
}

/* Floats of the traces of `rows` tokens; FULL and LOCAL leave one more of each. */
static inline int64_t clattn__aft_trace_floats(int mode, int64_t rows, int64_t channels) {
    return rows * (CLATTN__AFT_TRACES * channels + (mode == CLATTN_AFT_FULL || mode == CLATTN_AFT_LOCAL));
}

/* Columns of a transposed factor: whole vectors of any device. */
static inline int64_t clattn__aft_columns(int64_t length) { return (length + 63) / 64 * 64; }

/* How far LOCAL's band reaches to either side, never past what exists. */
static inline int64_t clattn__aft_reach(int64_t local, int64_t length) {
    const int64_t most = length > 0 ? length - 1 : 0;
    return local - 1 < most ? local - 1 : most;
}

#endif
