// aft, backwards, modes simple and conv: dK and dV; of local, the sums over queries far away. See include/aft_backward.h.
//
//        i:  0 ........ j-ahead ....... j ....... j+reach ........ n       key j of a block
//            [   left   )[            band           ](   right   ]
//
// The mirror image of aft_scan.cl: left and right of its band key j stands in the averages of queries with w_ij = 0, whose
// sum is e^(k_j) sum_i e^-(K_i + C_i) (P_i, P_i o_i): running sums over queries, scanned by blocks, scaled to the largest
// term; no term is ever subtracted. The band is added term by term.
//
//   aft_backward_states  block, strip: states[b][block] = sum of the block's queries
//   aft_backward_prefix  strip: states[b][block] = sum of this and later blocks; AHEAD 1: before[b][block] = of earlier ones
//   aft_backward_average    block (keys), strip: dK, dV; SHARED_KEY 1: parts[b][j][strip] = the strip's share of dK
//   aft_backward_keys    token, head: dK from the parts
//
// Gradients at padding are 0; what is there is never read.
// Local memory: none; aft_backward_average keeps (3 NV + 8 / VW) TB vectors in private memory.
// Defines: see include/aft.h; TB a multiple of VW and 4; SHARED_KEY, AHEAD 0|1.
#include "aft_backward_taps.h"

#if !defined(SHARED_KEY) || !defined(AHEAD)
#error "SHARED_KEY, AHEAD: see aft_backward_scan.cl"
#endif

#define CHUNK 8 // queries whose w are at hand
#define KEYS 4  // keys that share what is read of a query

inline query sum_queries(const queries q, const int v, const int lanes, const long first, const long last) {
    query run = query_none();
    for (long i = first; i < last; i++) run = query_merge(run, query_of(q, v, lanes, i));
    return run;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_states(QUERIES_PARAMETERS, __global float *states, const long states_offset, __global const int *lengths,
                    const long lengths_offset, const long n, const int width, const int strips, const int strip_count,
                    const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, tokens_of(lengths, lengths_offset, b, n));
    const queries q = QUERIES(b, s.group, s.c);
    const long to = states_offset + (b * get_num_groups(1) + block) * 4 * pitch + s.slot;
    EACH_VECTOR query_store(states, to + v * VW, pitch, sum_queries(q, v, strip_lanes(s, v), block * TB, end));
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_prefix(__global float *states, const long states_offset, __global float *before, const long before_offset,
                    const long blocks, const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const long here = (long)get_group_id(2) * blocks * 4 * pitch + (long)get_global_id(0) * STRIP;
    EACH_VECTOR {
        query run = query_none();
#if AHEAD
        for (long block = 0; block < blocks; block++) {
            const long at = here + block * 4 * pitch + v * VW;
            query_store(before, before_offset + at, pitch, run);
            run = query_merge(run, query_load(states, states_offset + at, pitch));
        }
        run = query_none();
#endif
        for (long block = blocks - 1; block >= 0; block--) {
            const long at = states_offset + here + block * 4 * pitch + v * VW;
            run = query_merge(run, query_load(states, at, pitch));
            query_store(states, at, pitch, run);
        }
    }
}

// The sum of all queries before `last`: earlier blocks, and the queries of its own block.
inline query left_of(const queries q, const int v, const int lanes, const long last, __global const float *before,
                     const long pitch) {
    if (last <= 0) return query_none();
    const long block = (last - 1) / TB;
    return query_merge(query_load(before, block * 4 * pitch + v * VW, pitch),
                       sum_queries(q, v, lanes, block * TB, last));
}

// The sum of all queries from `first` on.
inline query right_of(const queries q, const int v, const int lanes, const long first, const long seen,
                      __global const float *after, const long pitch, const long blocks) {
    if (first >= seen) return query_none();
    const long block = (first + TB - 1) / TB;
    const query own = sum_queries(q, v, lanes, first, min(block * TB, seen));
    return block < blocks ? query_merge(own, query_load(after, block * 4 * pitch + v * VW, pitch)) : own;
}

// Keys and values of one batch and strip.
typedef struct source {
    __global const STORAGE(TYPE_X) * k, *x;
    long ki, k_row, xi, x_row;
} source;

inline V key_of(const source t, const int v, const int lanes, const long j) {
#if SHARED_KEY
    return (V)(LOAD(TYPE_X, t.k, t.ki + j * t.k_row));
#else
    return load_lanes(t.k, t.ki + j * t.k_row + v * VW, lanes);
#endif
}

// Queries first..last-1 (CHUNK of them or less, w of row i - begin) into the sums of KEYS keys.
inline void add_near(V *p, V *d, const V *key, const queries q, const int v, const int lanes, const long first,
                     const long last, const float *w) {
    V sum_p[KEYS], sum_d[KEYS], k[KEYS];
    UNROLL for (int r = 0; r < KEYS; r++) {
        sum_p[r] = p[r];
        sum_d[r] = d[r];
        k[r] = key[r];
    }
    for (long i = first; i < last; i++, w += TB) {
        const trace own = trace_of(q, v, lanes, i);
        UNROLL for (int r = 0; r < KEYS; r++) {
            // (A P) o, not A (P o): then V (A P) - (A P) o is 0 where o is V
            const V share = weight_of((k[r] - own.k) + (w[r] - own.c)) * own.p;
            sum_p[r] += share;
            sum_d[r] = fma(share, own.o, sum_d[r]);
        }
    }
    UNROLL for (int r = 0; r < KEYS; r++) {
        p[r] = sum_p[r];
        d[r] = sum_d[r];
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_average(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
                  const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
                  const long x_row, const long x_group, __global STORAGE(TYPE_X) * dk, const long dk_offset,
                  const long dk_batch, const long dk_row, const long dk_group, __global STORAGE(TYPE_X) * dx,
                  const long dx_offset, const long dx_batch, const long dx_row, const long dx_group,
                  QUERIES_PARAMETERS, __global const float *before, const long before_offset,
                  __global const float *after, const long after_offset, __global float *parts,
                  const long parts_offset, TAPS_PARAMETERS, __global const int *lengths, const long lengths_offset,
                  const long n, const int width, const int strips, const int strip_count, const long pitch) {
    if (get_global_id(0) >= strip_count) return;
    const strip s = strip_here(width, strips);
    const long block = get_group_id(1), blocks = get_num_groups(1), b = get_group_id(2);
    const long seen = tokens_of(lengths, lengths_offset, b, n);
    const long begin = block * TB, end = min(begin + TB, n), stop = max(min(end, seen), begin);
    const queries q = QUERIES(b, s.group, s.c);
    const conv_taps w = TAPS(s.group);
    const source t = {k, x, k_offset + b * k_batch + s.group * k_group + (SHARED_KEY ? 0 : s.c), k_row,
                      x_offset + b * x_batch + s.group * x_group + s.c, x_row};
    const long states = b * blocks * 4 * pitch + s.slot;
    V p[NV][TB], d[NV][TB], key[NV][TB];
    for (int v = 0; v < NV; v++) {
        const int lanes = strip_lanes(s, v);
        for (int r = 0; r < TB; r++) {
            p[v][r] = d[v][r] = (V)(0.0f);
            key[v][r] = begin + r < stop ? key_of(t, v, lanes, begin + r) : (V)(0.0f);
        }
#if AHEAD
        query left = left_of(q, v, lanes, min(begin - w.ahead, seen), before + before_offset + states, pitch);
        for (long j = begin; j < stop; j++) {
            add_queries(&p[v][j - begin], &d[v][j - begin], left, key[v][j - begin]);
            if (j >= w.ahead) left = query_merge(left, query_of(q, v, lanes, j - w.ahead));
        }
#endif
        query right = right_of(q, v, lanes, stop + w.reach, seen, after + after_offset + states, pitch, blocks);
        for (long j = stop - 1; j >= begin; j--) {
            add_queries(&p[v][j - begin], &d[v][j - begin], right, key[v][j - begin]);
            if (j + w.reach < seen) right = query_merge(right, query_of(q, v, lanes, j + w.reach));
        }
    }
    const long last = w.reach < 0 ? 0 : min(stop + w.reach, seen);
    for (long i0 = max(begin - w.ahead, 0L); i0 < last; i0 += CHUNK) {
        float near[CHUNK * TB];
        const int count = (int)min((long)CHUNK, last - i0);
        for (int i = 0; i < count; i++) taps_row(near + i * TB, w, i0 + i, begin, stop);
        for (int v = 0; v < NV; v++) {
            for (int r = 0; r < TB && begin + r < stop; r += KEYS) {
                const long first = max(i0, begin + r - w.ahead), past = min(i0 + count, begin + r + KEYS + w.reach);
                if (first < past)
                    add_near(p[v] + r, d[v] + r, key[v] + r, q, v, strip_lanes(s, v), first, past,
                             near + (first - i0) * TB + r);
            }
        }
    }
    const long dki = dk_offset + b * dk_batch + s.group * dk_group + s.c;
    const long dxi = dx_offset + b * dx_batch + s.group * dx_group + s.c;
    for (long j = begin; j < end; j++) {
        float share = 0.0f;
        for (int v = 0; v < NV; v++) {
            const int lanes = strip_lanes(s, v);
            V value = (V)(0.0f);
            if (j < stop) value = load_lanes(x, t.xi + j * x_row + v * VW, lanes);
            const V gradient = value * p[v][j - begin] - d[v][j - begin];
            store_x(dx, dxi + j * dx_row + v * VW, lanes, p[v][j - begin]);
#if SHARED_KEY
            share += sum_of(gradient);
#else
            store_x(dk, dki + j * dk_row + v * VW, lanes, gradient);
#endif
        }
#if SHARED_KEY
        parts[parts_offset + (b * n + j) * strip_count + get_global_id(0)] = share;
#endif
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_keys(__global const float *parts, const long parts_offset, __global STORAGE(TYPE_X) * dk,
                  const long dk_offset, const long dk_batch, const long dk_row, const long dk_group, const long n,
                  const int strips, const int heads) {
    const long j = get_global_id(0), b = get_group_id(2);
    if (j >= n) return;
    for (int h = 0; h < heads; h++) {
        float sum = 0.0f;
        for (int s = 0; s < strips; s++) sum += parts[parts_offset + ((b * n + j) * heads + h) * strips + s];
        STORE(TYPE_X, dk, dk_offset + b * dk_batch + j * dk_row + h * dk_group, sum);
    }
}
