// The taps of mode conv, as aft's backward kernels read them: w_ij inside a band, NOTHING outside; mode simple has no band.
//
// Query i sees keys i - reach .. i + ahead in its band; w_ij at j - i + reach.
//
// Defines: see aft_backward.h.
#ifndef CLATTN_AFT_BACKWARD_TAPS_H
#define CLATTN_AFT_BACKWARD_TAPS_H

#include "aft_backward.h"

typedef struct conv_taps {
    __global const float *w;
    long reach, ahead;
} conv_taps;

#define TAPS_PARAMETERS                                                                                                \
    __global const float *w_base, const long w_offset, const long w_group, const long reach, const long ahead

inline conv_taps taps_at(__global const float *w, const long reach, const long ahead) {
    conv_taps x = {w, reach, ahead};
    return x;
}

#define TAPS(group) taps_at(w_base + (w_offset + (group) * w_group), reach, ahead)

inline bool in_band(const conv_taps w, const long i, const long j) { return j >= i - w.reach && j <= i + w.ahead; }

// w_ij inside the band.
inline float tap_of(const conv_taps w, const long i, const long j) { return w.w[j - i + w.reach]; }

// to[r] = w_ij, j = begin + r, r = 0 .. TB-1; NOTHING outside the band and from `stop` on.
inline void taps_row(float *to, const conv_taps w, const long i, const long begin, const long stop) {
    for (int r = 0; r < TB; r++) {
        const long j = begin + r;
        to[r] = j < stop && in_band(w, i, j) ? tap_of(w, i, j) : NOTHING;
    }
}

#endif
