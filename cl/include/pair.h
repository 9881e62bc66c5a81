// Rows of two tensors taken by pairs: what assa_backward_pairs.cl is made of, one work-item a row.
//
// Defines: those of tile.h; D, DV head sizes; TYPE_Q storage of q, k, v and dO; TYPE_O storage of their gradients.
#ifndef CLATTN_PAIR_H
#define CLATTN_PAIR_H

#include "port.h"
#include "tile.h"

#if !defined(D) || !defined(DV) || !defined(TYPE_Q) || !defined(TYPE_O)
#error "D, DV, TYPE_Q, TYPE_O: see pair.h"
#endif

// A head's rows.
typedef struct row_view {
    __global const STORAGE(TYPE_Q) *at;
    long stride;
} row_view;

#define VIEW_PARAMETERS(x)                                                                                             \
    __global const STORAGE(TYPE_Q) *x, const long x##_offset, const long x##_batch, const long x##_head,               \
        const long x##_row
#define VIEW(x, b, h) ((row_view){x + x##_offset + (b) * x##_batch + (h) * x##_head, x##_row})
#define GRADIENT_PARAMETERS(x)                                                                                         \
    __global STORAGE(TYPE_O) *x, const long x##_offset, const long x##_batch, const long x##_head, const long x##_row
#define ROW_OF(x, b, h, i) (x##_offset + (b) * x##_batch + (h) * x##_head + (i) * x##_row)

inline float row_dot(const row_view a, const long i, const row_view b, const long j, const int size) {
    const long ai = i * a.stride, bj = j * b.stride;
    V sum = (V)(0.0f);
    int c = 0;
    for (; c + VW <= size; c += VW)
        sum = fma(VLOAD(TYPE_Q, a.at, ai + c), VLOAD(TYPE_Q, b.at, bj + c), sum);
    float total = vsum(sum);
    for (; c < size; c++)
        total = fma(LOAD(TYPE_Q, a.at, ai + c), LOAD(TYPE_Q, b.at, bj + c), total);
    return total;
}

// acc += factor * row i; acc holds size floats rounded up to VW.
inline void row_add(float *acc, const float factor, const row_view x, const long i, const int size) {
    const long at = i * x.stride;
    int c = 0;
    for (; c + VW <= size; c += VW)
        RAW_STORE(fma((V)(factor), VLOAD(TYPE_Q, x.at, at + c), RAW_LOAD(acc + c)), acc + c);
    for (; c < size; c++)
        acc[c] = fma(factor, LOAD(TYPE_Q, x.at, at + c), acc[c]);
}

inline void row_clear(float *acc, const int size) {
    for (int c = 0; c < size; c++)
        acc[c] = 0.0f;
}

inline void row_store(__global STORAGE(TYPE_O) *to, const long at, const float *acc, const int size) {
    for (int c = 0; c < size; c++)
        STORE(TYPE_O, to, at + c, acc[c]);
}

#endif
