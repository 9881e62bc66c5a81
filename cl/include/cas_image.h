// Images of pixels, channels innermost, and depthwise 3x3 convolutions of them.
//
// A group owns a *strip*: up to TX pixels of one image row. Lanes are channels. A depthwise 3x3 convolution slides a
// window of 3 columns along the strip, so that each pixel is loaded once for each of the three rows:
//
//     left  mid  right        next pixel: left = mid, mid = right, load right
//      o     o     o   y-1
//      o     x     o   y      pixels outside the image are 0 and never read
//      o     o     o   y+1
//
// Defines: WG, VW, D (a multiple of VW), TX 1..64 pixels of a strip.
#ifndef CLATTN_CAS_IMAGE_H
#define CLATTN_CAS_IMAGE_H

#include "cas.h"

#if !defined(D) || !defined(TX)
#error "D, TX: see cas_image.h"
#endif

typedef struct strip {
    int y, x, count;       // first pixel, pixels
    int height, width;     // the image
} strip;

inline strip strip_at(const long index, const int height, const int width) {
    const int across = (width + TX - 1) / TX;
    strip s;
    s.y = (int)(index / across);
    s.x = (int)(index % across) * TX;
    s.count = min(TX, width - s.x);
    s.height = height;
    s.width = width;
    return s;
}

inline strip my_strip(const int height, const int width) { return strip_at(get_group_id(0), height, width); }

inline bool inside(const strip s, const int y, const int x) {
    return y >= 0 && y < s.height && x >= 0 && x < s.width;
}

// Channels ch.. of the pixels (y - 1..y + 1, x) of one plane.
inline void plane_column(V c[3], __global const float *t, const strip s, const int x, const int ch) {
    UNROLL for (int r = 0; r < 3; r++) {
        const int y = s.y + r - 1;
        c[r] = (V)(0.0f);
        if (inside(s, y, x))
            c[r] = RAW_LOAD(t + ((long)y * s.width + x) * D + ch);
    }
}

inline V convolve(const V w[9], const V bias, const V left[3], const V mid[3], const V right[3]) {
    V sum = bias;
    UNROLL for (int r = 0; r < 3; r++) {
        sum = fma(w[3 * r], left[r], sum);
        sum = fma(w[3 * r + 1], mid[r], sum);
        sum = fma(w[3 * r + 2], right[r], sum);
    }
    return sum;
}

inline void load_taps(V w[9], __global const float *taps, const int ch) {
    UNROLL for (int i = 0; i < 9; i++) { w[i] = RAW_LOAD(taps + (long)i * D + ch); }
}

inline void shift(V left[3], V mid[3], const V right[3]) {
    UNROLL for (int r = 0; r < 3; r++) {
        left[r] = mid[r];
        mid[r] = right[r];
    }
}

// The two gated planes of one image: planes, spatial gates by pixel, channel gates.
typedef struct mixed {
    __global const float *q, *k, *gq, *gk;
    V cq, ck;
} mixed;

// q, of one image of `all` pixels of all images; its gates.
inline mixed mixed_at_image(__global const float *q, __global const float *gates, const long all) {
    mixed m;
    m.q = q;
    m.k = q + all * D;
    m.gq = gates;
    m.gk = gates + all;
    return m;
}

inline void mixed_channels(mixed *m, __global const float *channels, const long batch, const int ch) {
    m->cq = RAW_LOAD(channels + ch);
    m->ck = RAW_LOAD(channels + batch * D + ch);
}

inline V mixed_pixel(const mixed m, const long at, const int ch) {
    const V q = RAW_LOAD(m.q + at * D + ch) * (m.cq * m.gq[at]);
    return fma(RAW_LOAD(m.k + at * D + ch), m.ck * m.gk[at], q);
}

inline void mixed_column(V c[3], const mixed m, const strip s, const int x, const int ch) {
    UNROLL for (int r = 0; r < 3; r++) {
        const int y = s.y + r - 1;
        c[r] = (V)(0.0f);
        if (inside(s, y, x))
            c[r] = mixed_pixel(m, (long)y * s.width + x, ch);
    }
}

#endif
