// aft, backwards, modes full and local: dK and dV, as products of tiles. See include/aft_backward.h and
// include/aft_backward_full.h.
//
//   aft_backward_queries  query block, vector: panel and least
//   aft_backward_full     BM keys, vectors: dK, dV from
//
//        E [BN, BM] = e^(w_ij - a_i)       panel [BN, 2 VW] = e^(m - M_i) P_i | e^(m - M_i) P_i o_i
//           j                                 c
//        i  +--------+                     i  +-----+
//           | shared |  transposed  x         |     |  = sums of the block, in units of e^(k_j - t) f
//           +--------+                        +-----+
//
// BAND 1 (local): a block of keys meets the blocks of queries that its band touches; of all others it takes the sums of
// aft_backward_scan.cl: `before`, of earlier blocks (not causal), and `after`, of a block and later ones.
//
// Gradients at padding are 0, and what is there is never read.
// Local memory (WG > 1): BM * BN floats. Private: (2 BM + 1) CV vectors, and E when WG is 1.
// Defines: see include/aft.h (NV is 1), include/aft_full.h.
#include "aft_backward.h"
#include "aft_backward_full.h"

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_queries(QUERIES_PARAMETERS, __global const float *peaks, const long peaks_offset, __global float *panels,
                     const long panels_offset, __global float *least, const long least_offset,
                     __global const int *lengths, const long lengths_offset, const long n, const int width,
                     const int strips, const int vectors) {
    if (get_global_id(0) >= vectors) return;
    const strip s = strip_here(width, strips);
    const int lanes = strip_lanes(s, 0);
    const long block = get_group_id(1), b = get_group_id(2), place = b * get_num_groups(1) + block;
    const long begin = block * BN, end = min(begin + BN, tokens_of(lengths, lengths_offset, b, n));
    const queries q = QUERIES(b, s.group, s.c);
    __global const float *a = peaks + peaks_offset + b * n;
    V k = (V)(-NOTHING), c = (V)(0.0f);
    for (long i = begin; i < end; i++) {
        const trace own = trace_of(q, 0, lanes, i);
        const V rest = own.c - a[i];
        const VI below = (VI)((own.k - k) + (rest - c) < 0.0f);
        k = select(k, own.k, below);
        c = select(c, rest, below);
    }
    __global float *to = least + least_offset + (place * 2 * vectors + get_global_id(0)) * VW;
    RAW_STORE(k, to);
    RAW_STORE(c, to + (long)vectors * VW);
    to = panels + panels_offset + place * vectors * BN * TN + PANEL(vectors, get_global_id(0));
    for (long i = begin; i < begin + BN; i++, to += PANEL_STEP(vectors)) {
        V p = (V)(0.0f), d = (V)(0.0f);
        if (i < end) {
            const trace own = trace_of(q, 0, lanes, i);
            p = weight_of((k - own.k) + (c - (own.c - a[i]))) * own.p;
            d = p * own.o;
        }
        RAW_STORE(p, to);
        RAW_STORE(d, to + VW);
    }
}

// Query i's row of E, keys begin..end-1 visible.
inline void fill_keys(SHARED float *e, const bias w, const float a, const long i, const long begin, const long end) {
    for (int j = 0; j < BM; j += VW) {
        const V x = begin + j < end ? weights_at(w, i, begin + j, end) : (V)(NOTHING);
        RAW_STORE(decay(x - a), e + j);
    }
}

// c += a[0..count)[0..TM) transposed b[0..count)[0..TN).
inline void tile_fma_columns(V c[TM][TNV], SHARED const float *a, __global const float *b, const long ldb,
                             const int count) {
    for (int k = 0; k < count; k++) {
        V bk[TNV];
        UNROLL for (int j = 0; j < TNV; j++) { bk[j] = RAW_LOAD(b + k * ldb + j * VW); }
        UNROLL for (int i = 0; i < TM; i++) {
            const V aik = (V)(a[k * BM + i]);
            UNROLL for (int j = 0; j < TNV; j++) { c[i][j] = fma(aik, bk[j], c[i][j]); }
        }
    }
}

// Query blocks that lie beyond the limit, for one key: sums of A P and of A P o.
inline void add_beyond(V sums[TNV], const queries q, const bias w, __global const float *least, const V top, const V key,
                       const long j, const range near, const int lanes, const long place, const int vectors,
                       const int vector) {
    for (long begin = near.begin; begin < near.end; begin += BN) {
        if (!beyond_limit(rise_of(top, least, place + begin / BN, vectors, vector))) continue;
        for (long i = CAUSAL ? max(begin, j) : begin; i < min(begin + BN, near.end); i++) {
            const trace own = trace_of(q, 0, lanes, i);
            const V share = share_at(own, key, weight_at(w, i, j)) * own.p;
            sums[0] += share;
            sums[1] = fma(share, own.o, sums[1]);
        }
    }
}

// The sum of a vector's queries outside `near`; `place` is the sequence's first block.
inline query far_of(const range near, __global const float *before, __global const float *after, const long place,
                    const int vectors, const int vector, const long seen) {
    query far = query_none();
#if BAND
    const long pitch = (long)vectors * VW;
#if !CAUSAL
    if (near.begin > 0) far = query_load(before, (place + near.begin / BN) * 4 * pitch + vector * VW, pitch);
#endif
    if (near.end < seen)
        far = query_merge(far, query_load(after, (place + near.end / BN) * 4 * pitch + vector * VW, pitch));
#endif
    return far;
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_full(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
                  const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
                  const long x_row, const long x_group, __global STORAGE(TYPE_X) * dk, const long dk_offset,
                  const long dk_batch, const long dk_row, const long dk_group, __global STORAGE(TYPE_X) * dx,
                  const long dx_offset, const long dx_batch, const long dx_row, const long dx_group,
                  QUERIES_PARAMETERS, PACKED_PARAMETERS, FULL_BIAS_PARAMETERS, __global const float *before,
                  const long before_offset, __global const float *after, const long after_offset,
                  __global const int *lengths, const long lengths_offset, const long n, const int width,
                  const int strips, const int vectors, const long blocks) {
    const int lid = (int)get_local_id(0), first_vector = (int)get_group_id(0) * WG * CV;
    const long j0 = (long)get_group_id(1) * BM, b = get_group_id(2), last = min(j0 + BM, n);
    const long seen = tokens_of(lengths, lengths_offset, b, n), stop = min(last, seen), first_place = b * blocks;
    const bias w = FULL_BIAS;
    __global const float *a = peaks + peaks_offset + b * n, *low = least + least_offset;
    range near = near_of(w, j0, last, seen);
    if (CAUSAL) near.begin = j0 / BN * BN;
    SHARED float e[BN * BM] ALIGNED;
    V top[CV], acc[CV][BM][TNV];
    for (int u = 0; u < CV; u++) {
        const int vector = first_vector + u * WG + lid, group = vector / strips, c = (vector - group * strips) * VW;
        top[u] = (V)(NOTHING);
        for (int r = 0; r < BM; r += TM) tile_zero(acc[u] + r);
        if (vector >= vectors) break;
        const long ki = k_offset + b * k_batch + group * k_group + c;
        for (long j = j0; j < stop; j++) top[u] = fmax(top[u], load_lanes(k, ki + j * k_row, min(width - c, VW)));
    }
    for (long begin = near.begin; j0 < stop && begin < near.end; begin += BN) {
        const int count = (int)min((long)BN, near.end - begin);
        for (int i = lid; i < count; i += WG)
            fill_keys(e + i * BM, w, a[begin + i], begin + i, j0, CAUSAL ? min(begin + i + 1, stop) : stop);
        SYNC;
        const long place = first_place + begin / BN;
        for (int u = 0; u < CV; u++) {
            const int vector = first_vector + u * WG + lid;
            if (vector >= vectors) break;
            const V rise = rise_of(top[u], low, place, vectors, vector);
            if (beyond_limit(rise)) continue;
            const V f = decay(rise);
            __global const float *panel = panels + panels_offset + place * vectors * BN * TN + PANEL(vectors, vector);
            for (int r = 0; r < BM; r += TM) {
                const int skip = CAUSAL ? (int)clamp(j0 + r - begin, 0L, (long)count) : 0;
                V sums[TM][TNV];
                tile_zero(sums);
                tile_fma_columns(sums, e + skip * BM + r, panel + skip * PANEL_STEP(vectors), PANEL_STEP(vectors),
                                 count - skip);
                UNROLL for (int i = 0; i < TM; i++) {
                    UNROLL for (int h = 0; h < TNV; h++) {
                        acc[u][r + i][h] = fma(sums[i][h], f, acc[u][r + i][h]);
                    }
                }
            }
        }
        SYNC;
    }
    for (int u = 0; u < CV; u++) {
        const int vector = first_vector + u * WG + lid;
        if (vector >= vectors) break;
        const int group = vector / strips, c = (vector - group * strips) * VW, lanes = min(width - c, VW);
        const long ki = k_offset + b * k_batch + group * k_group + c, xi = x_offset + b * x_batch + group * x_group + c;
        const long dki = dk_offset + b * dk_batch + group * dk_group + c;
        const long dxi = dx_offset + b * dx_batch + group * dx_group + c;
        const queries q = QUERIES(b, group, c);
        const query far = far_of(near, before + before_offset, after + after_offset, first_place, vectors, vector, seen);
        for (long j = j0; j < last; j++) {
            V sums[TNV] = {(V)(0.0f), (V)(0.0f)}, value = (V)(0.0f);
            if (j < stop) {
                const V key = load_lanes(k, ki + j * k_row, lanes), weight = decay(key - top[u]);
                value = load_lanes(x, xi + j * x_row, lanes);
                for (int h = 0; h < TNV; h++) sums[h] = acc[u][j - j0][h] * weight;
                add_beyond(sums, q, w, low, top[u], key, j, near, lanes, first_place, vectors, vector);
                add_queries(sums, sums + 1, far, key);
            }
            store_x(dx, dxi + j * dx_row, lanes, sums[0]);
            store_x(dk, dki + j * dk_row, lanes, value * sums[0] - sums[1]);
        }
    }
}
