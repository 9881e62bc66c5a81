// What the attention-free kernels share: channels as vectors, softmax states of a channel.
//
// Nothing of this family mixes channels (but gated-matrix), so a work-item owns a *strip* of NV vectors of VW
// neighbouring channels, and a block of TB tokens or less:
//
//                 strip 0      strip 1      ...                  grid axis 0: strips of all groups
//   block 0    [ NV*VW chan. | NV*VW chan. | ...                 grid axis 1: blocks of tokens
//   block 1    [             |             |                     grid axis 2: batch
//
// A group is a run of `width` channels with stride 1: one head, or all heads where they lie side by side.
// A strip stays inside its group; its last vectors may be cut (fewer lanes than VW, or none). Arrays of the
// library's own are padded to `pitch` = groups * strips * NV * VW channels, so their vectors are always whole.
// No local memory, no barriers: one work-item a group on a CPU, neighbouring strips side by side on a GPU.
//
// Defines: VW 1|4|8|16, NV 1..8, TB 1..1024 tokens a block, LENGTHS 0|1, TYPE_X (q, k, v) and TYPE_Y 0|1|2.
#ifndef CLATTN_AFT_H
#define CLATTN_AFT_H

#include "port.h"
#include "types.h"

#if !defined(NV) || !defined(TB) || !defined(LENGTHS) || !defined(TYPE_X) || !defined(TYPE_Y) || !defined(WG)
#error "NV, TB, LENGTHS, TYPE_X, TYPE_Y, WG: see aft.h"
#endif

#define UNROLL _Pragma("unroll")
#define STRIP (NV * VW)
#define EACH_VECTOR UNROLL for (int v = 0; v < NV; v++)

// Where this work-item's channels are: vector v starts at channel c + v*VW of its group, and at slot + v*VW
// of a padded array; it has lanes(v) channels.
typedef struct strip {
    int group, c, width;
    long slot;
} strip;

inline strip strip_here(const int width, const int strips) {
    const int id = (int)get_global_id(0);
    strip s;
    s.group = id / strips;
    s.c = (id - s.group * strips) * STRIP;
    s.width = width;
    s.slot = (long)id * STRIP;
    return s;
}

inline int strip_lanes(const strip s, const int v) { return clamp(s.width - s.c - v * VW, 0, VW); }

// VW neighbours, the first `lanes` of them in memory, the others 0.
inline V load_lanes(__global const STORAGE(TYPE_X) * p, const long i, const int lanes) {
#if VW == 1
    return lanes > 0 ? LOAD(TYPE_X, p, i) : 0.0f;
#else
    if (lanes == VW) return VLOAD(TYPE_X, p, i);
    float t[VW];
    for (int l = 0; l < VW; l++) t[l] = l < lanes ? LOAD(TYPE_X, p, i + l) : 0.0f;
    return CAT(vload, VW)(0, t);
#endif
}

inline void store_lanes(__global STORAGE(TYPE_Y) * p, const long i, const int lanes, const V x) {
#if VW == 1
    if (lanes > 0) STORE(TYPE_Y, p, i, x);
#else
    if (lanes == VW) {
        VSTORE(TYPE_Y, p, i, x);
        return;
    }
    float t[VW];
    CAT(vstore, VW)(x, 0, t);
    for (int l = 0; l < lanes; l++) STORE(TYPE_Y, p, i + l, t[l]);
#endif
}

// Tokens of batch b that are not padding.
inline long tokens_of(__global const int *lengths, const long offset, const long b, const long n) {
#if LENGTHS
    return clamp((long)lengths[offset + b], 0L, n);
#else
    return n;
#endif
}

// e^x for x <= 0 or barely above; 0 far below, -infinity included.
inline V decay(const V x) {
    return EXP2(fmax(x * LOG2E, (V)(-150.0f)));
}

// sigmoid(x) for any x: the exponential never overflows.
inline V sigmoid(const V x) {
    const V e = decay(-fabs(x));
    return select(e, (V)(1.0f), (VI)(x >= 0.0f)) / (1.0f + e);
}

// The gate: GATE 0 = q is ready (the projection applied sigmoid), 1 = sigmoid(q).
#if GATE
#define OPEN(q) sigmoid(q)
#else
#define OPEN(q) (q)
#endif

// The heads' position weights, one lane a channel; 1 without them (POSITION 0).
#if defined(POSITION)
inline V position_of(__global const float *position, const long offset, const strip s, const int v,
                     const int head_size) {
#if POSITION
    float t[VW];
    const long c = (long)s.group * s.width + s.c + v * VW, lanes = strip_lanes(s, v);
    for (int l = 0; l < VW; l++) t[l] = l < lanes ? position[offset + (c + l) / head_size] : 0.0f;
#if VW == 1
    return t[0];
#else
    return CAT(vload, VW)(0, t);
#endif
#else
    return (V)(1.0f);
#endif
}
#endif

// A channel's softmax over some tokens: sum = sum_j e^(k_j - top), mean = sum_j e^(k_j - top) v_j, top >= all k_j.
// NOTHING stands for minus infinity: differences with it stay finite, so no NaN arises.
#define NOTHING -3.0e38f

typedef struct state {
    V top, sum, mean;
} state;

inline state state_empty(void) {
    state s;
    s.top = (V)(NOTHING);
    s.sum = s.mean = (V)(0.0f);
    return s;
}

inline state state_add(state s, const V k, const V x) {
    const V d = k - s.top;
    const V e = decay(-fabs(d));
    const VI rise = (VI)(d > 0.0f);
    const V keep = select((V)(1.0f), e, rise), weight = select(e, (V)(1.0f), rise);
    s.sum = fma(s.sum, keep, weight);
    s.mean = fma(s.mean, keep, weight * x);
    s.top = fmax(s.top, k);
    return s;
}

inline state state_merge(const state a, const state b) {
    state s;
    s.top = fmax(a.top, b.top);
    const V p = decay(a.top - s.top), q = decay(b.top - s.top);
    s.sum = a.sum * p + b.sum * q;
    s.mean = a.mean * p + b.mean * q;
    return s;
}

// mean / sum, 0 where nothing was seen.
inline V ratio(const V mean, const V sum) { return select((V)(0.0f), mean / sum, (VI)(sum != 0.0f)); }

// Padded arrays of states: top, sum, mean rows of `pitch` floats.
inline state state_load(__global const float *p, const long i, const long pitch) {
    state s;
    s.top = RAW_LOAD(p + i);
    s.sum = RAW_LOAD(p + i + pitch);
    s.mean = RAW_LOAD(p + i + 2 * pitch);
    return s;
}

inline void state_store(__global float *p, const long i, const long pitch, const state s) {
    RAW_STORE(s.top, p + i);
    RAW_STORE(s.sum, p + i + pitch);
    RAW_STORE(s.mean, p + i + 2 * pitch);
}

// What forward leaves of a query for backward: its average o, and (K, C), K + C = the logarithm of its sum of
// exponentials. [B, n, 3, channels]: rows K, C, o of a token `second` apart. TRACES 0|1.
#if defined(TRACES)
#define TRACES_PARAMETERS                                                                                              \
    __global float *traces, const long traces_offset, const long traces_batch, const long traces_row,                  \
        const long traces_group, const long second

inline void trace_store(__global float *to, const long second, const int lanes, const V k, const V c, const V o) {
#if VW > 1
    if (lanes == VW) {
        RAW_STORE(k, to);
        RAW_STORE(c, to + second);
        RAW_STORE(o, to + 2 * second);
        return;
    }
    float t[3 * VW];
    CAT(vstore, VW)(k, 0, t);
    CAT(vstore, VW)(c, 1, t);
    CAT(vstore, VW)(o, 2, t);
    for (int r = 0; r < 3; r++) {
        for (int l = 0; l < lanes; l++) to[r * second + l] = t[r * VW + l];
    }
#else
    if (lanes > 0) {
        to[0] = k;
        to[second] = c;
        to[2 * second] = o;
    }
#endif
}
#endif

#endif
