// aft, modes simple and conv: y_i = sigmoid(q_i) * softmax_j(k_j + w_ij) v_j, w_ij = 0 outside a band.
//
//        j:  0 ........ i-BEFORE ....... i ....... i+after ........ n       query i of a block
//            [   left   )[            band           ](   right   ]
//
// Left and right of the band the weights are those of k alone: running softmax states, scanned by blocks, so no
// term is ever subtracted. The band is added term by term. O(n * (band + 3)) exponentials a channel.
//
// Mode local takes the states of blocks from here; its band is aft_full.cl's.
//
//   aft_states  block, strip: states[b][block] = state of the block's tokens
//   aft_prefix  strip: before[b][block] = state of earlier blocks; after[b][block] = state of this and later blocks
//               (SUFFIX 1); AVERAGE 1 instead: before[b][0] = the average of v over all tokens (mode simple)
//   aft_average    block, strip: y
//
// Scores are compared as traces (k, w): (k - k') + (w - w') keeps w's digits beside a large k.
// Padding is never read; its rows of y are 0. q and y may be the same memory.
// Local memory: none; aft_average keeps TB states in private memory when AHEAD is 1.
// Defines: see include/aft.h; GATE, SHARED_KEY (one key a group: conv), SUFFIX, AVERAGE, AHEAD (tokens right of the band are
// visible), TRACES (see include/aft.h) 0|1.
#include "aft.h"

#if !defined(GATE) || !defined(SHARED_KEY) || !defined(SUFFIX) || !defined(AVERAGE) || !defined(AHEAD) || !defined(TRACES)
#error "GATE, SHARED_KEY, SUFFIX, AVERAGE, AHEAD, TRACES: see aft_scan.cl"
#endif

// Keys and values of one batch and strip.
typedef struct source {
    __global const STORAGE(TYPE_X) * k, *x;
    long ki, k_row, xi, x_row;
} source;

inline V key_of(const source t, const strip s, const int v, const long j) {
#if SHARED_KEY
    return (V)(LOAD(TYPE_X, t.k, t.ki + j * t.k_row));
#else
    return load_lanes(t.k, t.ki + j * t.k_row + v * VW, strip_lanes(s, v));
#endif
}

inline V value_of(const source t, const strip s, const int v, const long j) {
    return load_lanes(t.x, t.xi + j * t.x_row + v * VW, strip_lanes(s, v));
}

// The state of tokens first..last-1: the largest key first, then one exponential each.
inline state state_of(const source t, const strip s, const int v, const long first, const long last) {
    state r = state_empty();
    for (long j = first; j < last; j++) r.top = fmax(r.top, key_of(t, s, v, j));
    for (long j = first; j < last; j++) {
        const V e = decay(key_of(t, s, v, j) - r.top);
        r.sum += e;
        r.mean = fma(e, value_of(t, s, v, j), r.mean);
    }
    return r;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_states(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
           const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
           const long x_row, const long x_group, __global float *states, const long states_offset,
           __global const int *lengths, const long lengths_offset, const long n, const int width, const int strips,
           const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, tokens_of(lengths, lengths_offset, b, n));
    const source t = {k, x, k_offset + b * k_batch + s.group * k_group + (SHARED_KEY ? 0 : s.c), k_row,
                      x_offset + b * x_batch + s.group * x_group + s.c, x_row};
    const long to = states_offset + (b * get_num_groups(1) + block) * 3 * pitch + s.slot;
    EACH_VECTOR state_store(states, to + v * VW, pitch, state_of(t, s, v, block * TB, end));
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_prefix(__global float *states, const long states_offset, __global float *before, const long before_offset,
           const long blocks, const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const long here = (long)get_group_id(2) * blocks * 3 * pitch + (long)get_global_id(0) * STRIP;
    EACH_VECTOR {
        state run = state_empty();
        for (long block = 0; block < blocks; block++) {
            const long at = here + block * 3 * pitch + v * VW;
            const state own = state_load(states, states_offset + at, pitch);
#if !AVERAGE
            state_store(before, before_offset + at, pitch, run);
#endif
            run = state_merge(run, own);
        }
#if AVERAGE
        RAW_STORE(ratio(run.mean, run.sum), before + before_offset + here + v * VW);
#endif
#if SUFFIX
        run = state_empty();
        for (long block = blocks - 1; block >= 0; block--) {
            const long at = states_offset + here + block * 3 * pitch + v * VW;
            run = state_merge(run, state_load(states, at, pitch));
            state_store(states, at, pitch, run);
        }
#endif
    }
}

// The state of all tokens before `last`: earlier blocks, and the tokens of its own block.
inline state left_of(const source t, const strip s, const int v, const long last, __global const float *before,
                     const long pitch) {
    if (last <= 0) return state_empty();
    const long block = (last - 1) / TB;
    return state_merge(state_load(before, block * 3 * pitch + v * VW, pitch), state_of(t, s, v, block * TB, last));
}

// The state of all tokens from `first` on.
inline state right_of(const source t, const strip s, const int v, const long first, const long seen,
                      __global const float *after, const long pitch, const long blocks) {
    if (first >= seen) return state_empty();
    const long block = (first + TB - 1) / TB;
    const state own = state_of(t, s, v, first, min(block * TB, seen));
    return block < blocks ? state_merge(own, state_load(after, block * 3 * pitch + v * VW, pitch)) : own;
}

// The average over left, band and right, and its (K, C). bias[j] is w_ij.
typedef struct averaged {
    V mean, k, c;
} averaged;

inline averaged average(const source t, const strip s, const int v, const state left, const state right, const long first,
                 const long last, __global const float *bias) {
    V k0 = fmax(left.top, right.top), w0 = (V)(0.0f);
    for (long j = first; j < last; j++) {
        const V k = key_of(t, s, v, j), w = (V)(bias[j]);
        const VI above = (VI)((k - k0) + (w - w0) > 0.0f);
        k0 = select(k0, k, above);
        w0 = select(w0, w, above);
    }
    const V p = decay((left.top - k0) - w0), q = decay((right.top - k0) - w0);
    V sum = left.sum * p + right.sum * q, mean = left.mean * p + right.mean * q;
    for (long j = first; j < last; j++) {
        const V e = decay((key_of(t, s, v, j) - k0) + (bias[j] - w0));
        sum += e;
        mean = fma(e, value_of(t, s, v, j), mean);
    }
    averaged a = {ratio(mean, sum), k0, w0};
#if TRACES
    a.c = w0 + log(sum);
#endif
    return a;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_average(__global const STORAGE(TYPE_X) * q, const long q_offset, const long q_batch, const long q_row,
         const long q_group, __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch,
         const long k_row, const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset,
         const long x_batch, const long x_row, const long x_group, __global STORAGE(TYPE_Y) * y, const long y_offset,
         const long y_batch, const long y_row, const long y_group, __global const float *before,
         const long before_offset, __global const float *after, const long after_offset, __global const float *bias,
         const long bias_offset, const long bias_group, __global const int *lengths,
         const long lengths_offset, const long n, const int width, const int strips, const int strip_count,
         const long pitch, const long reach, const long ahead, TRACES_PARAMETERS) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), blocks = get_num_groups(1), b = get_group_id(2);
    const long seen = tokens_of(lengths, lengths_offset, b, n);
    const long begin = block * TB, end = min(begin + TB, n), stop = min(end, seen);
    const long qi = q_offset + b * q_batch + s.group * q_group + s.c;
    const long yi = y_offset + b * y_batch + s.group * y_group + s.c;
    const source t = {k, x, k_offset + b * k_batch + s.group * k_group + (SHARED_KEY ? 0 : s.c), k_row,
                      x_offset + b * x_batch + s.group * x_group + s.c, x_row};
    const long states = b * blocks * 3 * pitch + s.slot;
    for (int v = 0; v < NV; v++) {
        const int lanes = strip_lanes(s, v);
        state right = state_empty();
#if AHEAD
        state rights[TB];
        right = right_of(t, s, v, stop + ahead, seen, after + after_offset + states, pitch, blocks);
        for (long i = stop - 1; i >= begin; i--) {
            rights[i - begin] = right;
            if (i + ahead < seen) right = state_add(right, key_of(t, s, v, i + ahead), value_of(t, s, v, i + ahead));
        }
#endif
        state left = left_of(t, s, v, min(begin - reach, seen), before + before_offset + states, pitch);
        for (long i = begin; i < stop; i++) {
#if AHEAD
            right = rights[i - begin];
#endif
            const long first = max(i - reach, 0L), last = min(i + ahead + 1, seen);
            __global const float *w = bias + (bias_offset + s.group * bias_group + reach - i);
            const averaged a = average(t, s, v, left, right, first, last, w);
#if TRACES
            trace_store(traces + (traces_offset + b * traces_batch + i * traces_row + s.group * traces_group + s.c +
                                  v * VW),
                        second, lanes, a.k, a.c, a.mean);
#endif
            if (i >= reach) left = state_add(left, key_of(t, s, v, i - reach), value_of(t, s, v, i - reach));
            store_lanes(y, yi + i * y_row + v * VW, lanes,
                        OPEN(load_lanes(q, qi + i * q_row + v * VW, lanes)) * a.mean);
        }
        for (long i = max(stop, begin); i < end; i++) store_lanes(y, yi + i * y_row + v * VW, lanes, (V)(0.0f));
    }
}
