// aft, modes full and local: y_i = sigmoid(q_i) * sum_j e^(k_j + w_ij) v_j / sum_j e^(k_j + w_ij), as products of tiles.
//
// For a block of keys, top = the block's largest k of each channel; a_i = the row's largest visible w so far:
//
//        E [BM, BN] = e^(w_ij - a_i)          panel [BN, 2 VW] = e^(k_j - top) | e^(k_j - top) v_j
//        i  +------------+                          one panel a vector of channels, packed by aft_pack
//           |   shared   |  x panels  =  sum | mean of the block, in units of e^(a_i + top)
//           +------------+
//
// E is made once for a work-group's WG*CV vectors of channels. Sums of all blocks are kept in units of e^(a_i + t), t = the
// channel's largest top so far: when a_i or t rises, what is there is scaled, by one number a row and one a channel.
// a_i + t may lie far above every k_j + w_ij: then all products underflow. A sum below TINY is found out at the
// end and that row and vector is done again, exactly, term by term (`exact`).
//
//   aft_pack  key block, vector: panel and tops
//   (factors: the right one comes transposed, by aft_transpose of aft_load.cl, so that w_i. is made of whole vectors)
//   aft_full  query block, vectors: y; TRACES 1: traces, and peaks [B, n]: each row's a_i
//
// BAND 1 (local): w_ij = 0 where |i - j| > reach. A block of queries meets the blocks of keys that its band touches; of all
// others it takes the softmax states of k alone (aft_scan.cl): `before`, of earlier blocks, and `after`, of a block and later ones.
//
// Padding is never read; its rows of y are 0; a future key's NaN stays out of earlier rows. q and y may share memory.
// Local memory (WG > 1): BM * (BN + 2) floats. Private: (2 BM + 1) CV vectors, and E when WG is 1.
// Defines: see include/aft.h (NV is 1, TB the rows of a key block = BN); tile.h with TNV 2; include/aft_full.h; GATE,
// TRACES 0|1.
#include "aft.h"
#include "aft_full.h"

#if !defined(GATE) || !defined(TRACES)
#error "GATE, TRACES: see aft_full.cl"
#endif

#define TINY 1e-25f

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_pack(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
         const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
         const long x_row, const long x_group, __global float *panels, const long panels_offset, __global float *tops,
         const long tops_offset, __global const int *lengths, const long lengths_offset, const long n,
         const int width, const int strips, const int vectors) {
    if (get_global_id(0) >= vectors) return;
    const strip s = strip_here(width, strips);
    const int lanes = strip_lanes(s, 0);
    const long block = get_group_id(1), b = get_group_id(2), place = b * get_num_groups(1) + block;
    const long begin = block * BN, end = min(begin + BN, tokens_of(lengths, lengths_offset, b, n));
    const long ki = k_offset + b * k_batch + s.group * k_group + s.c;
    const long xi = x_offset + b * x_batch + s.group * x_group + s.c;
    V top = (V)(NOTHING);
    for (long j = begin; j < end; j++) top = fmax(top, load_lanes(k, ki + j * k_row, lanes));
    RAW_STORE(top, tops + tops_offset + place * vectors * VW + s.slot);
    __global float *to = panels + panels_offset + place * vectors * BN * TN + PANEL(vectors, get_global_id(0));
    for (long j = begin; j < begin + BN; j++, to += PANEL_STEP(vectors)) {
        V e = (V)(0.0f), ex = (V)(0.0f);
        if (j < end) {
            e = decay(load_lanes(k, ki + j * k_row, lanes) - top);
            ex = e * load_lanes(x, xi + j * x_row, lanes);
        }
        RAW_STORE(e, to);
        RAW_STORE(ex, to + VW);
    }
}

// Row i of E, keys begin..end-1 visible; *a, the largest w so far, rises; returns what earlier sums of the row are worth.
inline float fill_row(SHARED float *e, SHARED float *a, const bias w, const long i, const long begin, const long end) {
    V top = (V)(NOTHING);
    for (int j = 0; j < BN; j += VW) {
        const V x = begin + j < end ? weights_at(w, i, begin + j, end) : (V)(NOTHING);
        RAW_STORE(x, e + j);
        top = fmax(top, x);
    }
    const float before = *a, now = fmax(before, vmax(top));
    const V origin = (V)(now == NOTHING ? 0.0f : now); // nothing seen yet: every e is 0
    for (int j = 0; j < BN; j += VW) RAW_STORE(decay(RAW_LOAD(e + j) - origin), e + j);
    *a = now;
    return exp(before - now);
}

// One row and vector, term by term after what is far, and its (K, C). Scores compare as traces:
// (k - k') + (w - w') keeps w's digits beside a large k.
typedef struct averaged {
    V mean, k, c;
} averaged;

inline averaged exact(const state far, __global const STORAGE(TYPE_X) * k, const long ki, const long k_row,
               __global const STORAGE(TYPE_X) * x, const long xi, const long x_row, const int lanes, const bias w,
               const long i, const long begin, const long end) {
    V k0 = far.top, w0 = (V)(0.0f), sum = far.sum, mean = far.mean;
    for (long j = begin; j < end; j++) {
        const V kj = load_lanes(k, ki + j * k_row, lanes), wj = (V)(weight_at(w, i, j));
        const V rise = (kj - k0) + (wj - w0), e = decay(-fabs(rise));
        const VI above = (VI)(rise > 0.0f);
        const V keep = select((V)(1.0f), e, above), weight = select(e, (V)(1.0f), above);
        sum = fma(sum, keep, weight);
        mean = fma(mean, keep, weight * load_lanes(x, xi + j * x_row, lanes));
        k0 = select(k0, kj, above);
        w0 = select(w0, wj, above);
    }
    averaged a = {ratio(mean, sum), k0, w0 + log(sum)};
    return a;
}

inline bool too_small(const V sum) {
#if VW == 1
    return !(sum >= TINY);
#else
    return any(!(sum >= TINY));
#endif
}

// The state of a vector's keys outside `near`; `place` is the sequence's first block.
inline state far_of(const range near, __global const float *before, __global const float *after, const long place,
                    const int vectors, const int vector, const long seen) {
    state far = state_empty();
#if BAND
    const long pitch = (long)vectors * VW;
    if (near.begin > 0) far = state_load(before, (place + near.begin / BN) * 3 * pitch + vector * VW, pitch);
#if !CAUSAL
    if (near.end < seen)
        far = state_merge(far, state_load(after, (place + near.end / BN) * 3 * pitch + vector * VW, pitch));
#endif
#endif
    return far;
}

// Sums of a tile, with those of another key block.
inline void merge_tile(V sums[TM][TNV], V c[TM][TNV], SHARED const float *keep, const V old, const V now) {
    UNROLL for (int i = 0; i < TM; i++) {
        const V scale = old * keep[i];
        UNROLL for (int j = 0; j < TNV; j++) { sums[i][j] = fma(sums[i][j], scale, c[i][j] * now); }
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_full(__global const STORAGE(TYPE_X) * q, const long q_offset, const long q_batch, const long q_row,
         const long q_group, __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch,
         const long k_row, const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset,
         const long x_batch, const long x_row, const long x_group, __global STORAGE(TYPE_Y) * y, const long y_offset,
         const long y_batch, const long y_row, const long y_group, __global const float *panels,
         const long panels_offset, __global const float *tops, const long tops_offset, FULL_BIAS_PARAMETERS,
         __global const float *before, const long before_offset, __global const float *after, const long after_offset,
         __global const int *lengths, const long lengths_offset, const long n, const int width, const int strips,
         const int vectors, const long blocks, TRACES_PARAMETERS, __global float *peaks, const long peaks_offset) {
    const int lid = (int)get_local_id(0), first_vector = (int)get_group_id(0) * WG * CV;
    const long i0 = (long)get_group_id(1) * BM, b = get_group_id(2);
    const long seen = tokens_of(lengths, lengths_offset, b, n), last = min(i0 + BM, n);
    const bias weights = FULL_BIAS;
    const long visible = CAUSAL ? min(last, seen) : seen;
    const range near = near_of(weights, i0, last, visible);
    const long keys = i0 >= seen ? 0 : near.end;
    const bool is_far = near.begin > 0 || near.end < visible;
    SHARED float e[BM * BN] ALIGNED, a[BM], keep[BM];
    V t[CV], acc[CV][BM][TNV];
    for (int i = lid; i < BM; i += WG) a[i] = is_far ? 0.0f : NOTHING;
    for (int u = 0; u < CV; u++) {
        const int vector = min(first_vector + u * WG + lid, vectors - 1);
        const state far = far_of(near, before + before_offset, after + after_offset, b * blocks, vectors, vector, seen);
        t[u] = far.top;
        for (int i = 0; i < BM; i++) {
            acc[u][i][0] = far.sum;
            acc[u][i][1] = far.mean;
        }
    }
    for (long begin = near.begin; begin < keys; begin += BN) {
        for (int i = lid; i < BM; i += WG) {
            const long row = min(i0 + i, n - 1);
            keep[i] = fill_row(e + i * BN, a + i, weights, row, begin,
                               min(begin + BN, CAUSAL ? min(row + 1, seen) : seen));
        }
        SYNC;
        const int count = (int)min((long)BN, keys - begin);
        const long place = b * blocks + begin / BN;
        for (int u = 0; u < CV; u++) {
            const int vector = first_vector + u * WG + lid;
            if (vector >= vectors) break;
            const V top = RAW_LOAD(tops + tops_offset + (place * vectors + vector) * VW), earlier = t[u];
            __global const float *panel = panels + panels_offset + place * vectors * BN * TN + PANEL(vectors, vector);
            t[u] = fmax(earlier, top);
            const V old = decay(earlier - t[u]), now = decay(top - t[u]);
            for (int i = 0; i < BM; i += TM) {
                V c[TM][TNV];
                const int whole = CAUSAL ? (int)clamp(i0 + i + 1 - begin, 0L, (long)count) : count;
                tile_zero(c);
                tile_fma(c, e + i * BN, BN, panel, PANEL_STEP(vectors), whole);
#if CAUSAL
                if (whole < count)
                    tile_fma_visible(c, e + i * BN + whole, BN, 1, panel + whole * PANEL_STEP(vectors),
                                     PANEL_STEP(vectors), min(count - whole, TM - 1));
#endif
                merge_tile(acc[u] + i, c, keep + i, old, now);
            }
        }
        SYNC;
    }
#if TRACES
    for (long i = i0 + lid; get_group_id(0) == 0 && i < min(last, seen); i += WG)
        peaks[peaks_offset + b * n + i] = a[i - i0];
#endif
    for (int u = 0; u < CV; u++) {
        const int vector = first_vector + u * WG + lid;
        if (vector >= vectors) break;
        const int group = vector / strips, c = (vector - group * strips) * VW, lanes = min(width - c, VW);
        const long qi = q_offset + b * q_batch + group * q_group + c, yi = y_offset + b * y_batch + group * y_group + c;
        for (long i = i0; i < last; i++) {
            const V sum = acc[u][i - i0][0];
            V out = (V)(0.0f);
            if (i < seen) {
                averaged own = {acc[u][i - i0][1] / sum, t[u], a[i - i0] + log(sum)};
                if (too_small(sum)) {
                    const state far =
                        far_of(near, before + before_offset, after + after_offset, b * blocks, vectors, vector, seen);
                    own = exact(far, k, k_offset + b * k_batch + group * k_group + c, k_row, x,
                                x_offset + b * x_batch + group * x_group + c, x_row, lanes, weights, i, near.begin,
                                CAUSAL ? i + 1 : keys);
                }
#if TRACES
                trace_store(traces + (traces_offset + b * traces_batch + i * traces_row + group * traces_group + c),
                            second, lanes, own.k, own.c, own.mean);
#endif
                out = OPEN(load_lanes(q, qi + i * q_row, lanes)) * own.mean;
            }
            store_lanes(y, yi + i * y_row, lanes, out);
        }
    }
}
