// What stands beside the keys, as the backward kernels of aft read it: w_ij inside a band, NOTHING outside.
//
// Query i sees keys i - reach .. i + ahead in its band. FACTORS 0: w_ij at i*row + (j - i + reach), a whole table being a
// band too; 1: u_i . f_j with u's rows of `row` floats and f transposed, [rank, columns], columns padded to vectors.
//
// Defines: see aft_backward.h; TB a multiple of VW (vectors of f are read at multiples of VW), FACTORS 0|1.
#ifndef CLATTN_AFT_BACKWARD_BIAS_H
#define CLATTN_AFT_BACKWARD_BIAS_H

#include "aft_backward.h"

#if !defined(FACTORS)
#error "FACTORS: see aft_backward_bias.h"
#endif

typedef struct bias {
    __global const float *w, *f;
    long row, rank, columns, reach, ahead;
} bias;

#define BIAS_PARAMETERS                                                                                                \
    __global const float *w_base, const long w_offset, const long w_row, const long w_group,                           \
        __global const float *f_base, const long f_offset, const long rank, const long columns, const long reach,      \
        const long ahead

inline bias bias_at(__global const float *w, __global const float *f, const long row, const long rank,
                    const long columns, const long reach, const long ahead) {
    bias x = {w, f, row, rank, columns, reach, ahead};
    return x;
}

#define BIAS(group)                                                                                                    \
    bias_at(w_base + (w_offset + (group) * w_group), f_base + f_offset, w_row, rank, columns, reach, ahead)

inline bool in_band(const bias w, const long i, const long j) { return j >= i - w.reach && j <= i + w.ahead; }

// w_ij inside the band.
inline float bias_of(const bias w, const long i, const long j) {
#if FACTORS
    float sum = 0.0f;
    for (long e = 0; e < w.rank; e++) sum = fma(w.w[i * w.row + e], w.f[e * w.columns + j], sum);
    return sum;
#else
    return w.w[i * w.row + (j - i + w.reach)];
#endif
}

// to[r] = w_ij, j = begin + r, r = 0 .. TB-1; NOTHING outside the band and from `stop` on.
inline void bias_row(float *to, const bias w, const long i, const long begin, const long stop) {
#if FACTORS
    for (int r = 0; r < TB && begin + r < stop; r += VW) {
        V sum = (V)(0.0f);
        for (long e = 0; e < w.rank; e++)
            sum = fma((V)(w.w[i * w.row + e]), RAW_LOAD(w.f + e * w.columns + begin + r), sum);
#if VW == 1
        to[r] = sum;
#else
        CAT(vstore, VW)(sum, 0, to + r);
#endif
    }
    for (int r = 0; r < TB; r++) {
        const long j = begin + r;
        if (j >= stop || !in_band(w, i, j)) to[r] = NOTHING;
    }
#else
    for (int r = 0; r < TB; r++) {
        const long j = begin + r;
        to[r] = j < stop && in_band(w, i, j) ? bias_of(w, i, j) : NOTHING;
    }
#endif
}

#endif
