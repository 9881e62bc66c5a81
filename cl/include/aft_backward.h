// What the backward kernels of aft share. With g = sigmoid(q), y = g o, and A the weights of an average:
//
//   P_i = dY_i g_i         dV_j = sum_i A_ij P_i
//   dQ_i = P_i o_i (1 - g_i)     dK_j = V_j dV_j - sum_i A_ij P_i o_i
//                          dw_ij = sum of A_ij P_i (V_j - o_i) over sequences and channels
//
// A_ij = e^((k_j - K_i) + (w_ij - C_i)): forward leaves (K, C), whose sum is the logarithm of the sum of exponentials; as
// two numbers, w keeps its digits beside a large k. It leaves o too: where one key is seen, V_j - o_i is 0,
// exactly so where o was made term by term.
//
// Terms (P) are [B, n, channels] (gated-matrix: g and dY, [B, n, 2, channels]); traces (K, C, o) [B, n, 3, channels]: see
// aft.h.
//
// Defines: see aft.h. TYPE_X also stores dQ, dK, dV; TYPE_Y is y and dY.
#ifndef CLATTN_AFT_BACKWARD_H
#define CLATTN_AFT_BACKWARD_H

#include "aft.h"

#pragma OPENCL FP_CONTRACT OFF // differences of equal products are 0

#if VW == 1
#define LANES_LOAD(name, type)                                                                                         \
    inline V name(__global const STORAGE(type) * p, const long i, const int lanes) {                                   \
        return lanes > 0 ? LOAD(type, p, i) : 0.0f;                                                                    \
    }
#define LANES_STORE(name, type)                                                                                        \
    inline void name(__global STORAGE(type) * p, const long i, const int lanes, const V x) {                           \
        if (lanes > 0) STORE(type, p, i, x);                                                                           \
    }
#else
#define LANES_LOAD(name, type)                                                                                         \
    inline V name(__global const STORAGE(type) * p, const long i, const int lanes) {                                   \
        if (lanes == VW) return VLOAD(type, p, i);                                                                     \
        float t[VW];                                                                                                   \
        for (int l = 0; l < VW; l++) t[l] = l < lanes ? LOAD(type, p, i + l) : 0.0f;                                   \
        return CAT(vload, VW)(0, t);                                                                                   \
    }
#define LANES_STORE(name, type)                                                                                        \
    inline void name(__global STORAGE(type) * p, const long i, const int lanes, const V x) {                           \
        if (lanes == VW) {                                                                                             \
            VSTORE(type, p, i, x);                                                                                     \
            return;                                                                                                    \
        }                                                                                                              \
        float t[VW];                                                                                                   \
        CAT(vstore, VW)(x, 0, t);                                                                                      \
        for (int l = 0; l < lanes; l++) STORE(type, p, i + l, t[l]);                                                   \
    }
#endif

LANES_LOAD(load_y, TYPE_Y)
LANES_LOAD(load_float, 0)
LANES_STORE(store_x, TYPE_X)
LANES_STORE(store_float, 0)

inline float sum_of(const V x) {
#if VW == 1
    return x;
#else
    float t[VW], sum = 0.0f;
    CAT(vstore, VW)(x, 0, t);
    for (int l = 0; l < VW; l++) sum += t[l];
    return sum;
#endif
}

// e^x of a logarithm that is 0 at most, but for rounding: lanes that do not exist hold anything, and must stay finite.
inline V weight_of(const V x) { return decay(fmin(x, (V)(0.0f))); }

// What is known of a query.
typedef struct trace {
    V k, c, o, p;
} trace;

// The sum of several queries' e^-(K + C) (P, P o), times e^(k + c) of the smallest k + c.
typedef struct query {
    V k, c, p, d;
} query;

inline query query_none(void) {
    query s;
    s.k = (V)(-NOTHING);
    s.c = s.p = s.d = (V)(0.0f);
    return s;
}

inline query query_merge(const query a, const query b) {
    const V rise = (a.k - b.k) + (a.c - b.c), e = decay(-fabs(rise));
    const VI above = (VI)(rise > 0.0f);
    const V keep = select((V)(1.0f), e, above), weight = select(e, (V)(1.0f), above);
    query s;
    s.k = select(a.k, b.k, above);
    s.c = select(a.c, b.c, above);
    s.p = fma(a.p, keep, weight * b.p);
    s.d = fma(a.d, keep, weight * b.d);
    return s;
}

// What the queries add to a key's sums of A P and A P o, where w is 0.
inline void add_queries(V *p, V *d, const query far, const V key) {
    const V e = weight_of((key - far.k) - far.c);
    *p = fma(e, far.p, *p);
    *d = fma(e, far.d, *d);
}

// Padded arrays of sums: k, c, p, d rows of `pitch` floats.
inline query query_load(__global const float *p, const long i, const long pitch) {
    query s;
    s.k = RAW_LOAD(p + i);
    s.c = RAW_LOAD(p + i + pitch);
    s.p = RAW_LOAD(p + i + 2 * pitch);
    s.d = RAW_LOAD(p + i + 3 * pitch);
    return s;
}

inline void query_store(__global float *p, const long i, const long pitch, const query s) {
    RAW_STORE(s.k, p + i);
    RAW_STORE(s.c, p + i + pitch);
    RAW_STORE(s.p, p + i + 2 * pitch);
    RAW_STORE(s.d, p + i + 3 * pitch);
}

// Where the queries of one batch and strip are.
typedef struct queries {
    __global const float *terms, *traces;
    long terms_row, traces_row, second;
} queries;

#define QUERIES_PARAMETERS                                                                                             \
    __global const float *terms, const long terms_offset, const long terms_batch, const long terms_row,                \
        const long terms_group, __global const float *traces, const long traces_offset, const long traces_batch,       \
        const long traces_row, const long traces_group, const long second

inline queries queries_at(__global const float *terms, const long terms_row, __global const float *traces,
                          const long traces_row, const long second) {
    queries q = {terms, traces, terms_row, traces_row, second};
    return q;
}

#define QUERIES(b, group, c)                                                                                           \
    queries_at(terms + (terms_offset + (b) * terms_batch + (group) * terms_group + (c)), terms_row,                    \
               traces + (traces_offset + (b) * traces_batch + (group) * traces_group + (c)), traces_row, second)

inline trace trace_of(const queries q, const int v, const int lanes, const long i) {
    const long at = i * q.traces_row + v * VW;
    trace t;
    t.k = load_float(q.traces, at, lanes);
    t.c = load_float(q.traces, at + q.second, lanes);
    t.o = load_float(q.traces, at + 2 * q.second, lanes);
    t.p = load_float(q.terms, i * q.terms_row + v * VW, lanes);
    return t;
}

inline query query_of(const queries q, const int v, const int lanes, const long i) {
    const trace t = trace_of(q, v, lanes, i);
    query s = {t.k, t.c, t.p, t.p * t.o};
    return s;
}

#endif
