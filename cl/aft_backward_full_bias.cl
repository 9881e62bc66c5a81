// aft, backwards, modes full and local: dw, of a table or through factors, as products of tiles. See
// include/aft_backward.h, include/aft_backward_full.h.
//
//   dw_ij = sum over sequences and channels of A_ij P_i (V_j - o_i)
//
//   aft_backward_columns  key block, vector: top, and its part of the right operand
//   aft_backward_weights  BM rows, BN columns of dw
//   aft_backward_factors  OWN 0: BM rows of du = dw f; 1: BN rows of df = dw^T u: dw exists a block at a time. sums: the
//                         rows' own, in floats
//
// A block of dw is, for each sequence, e^(w_ij - a_i) times
//
//        queries [BM, 2 d]                        columns [2 d, BN]
//        f e^(m - M_i) P_i | the same times o_i   x   e^(k_j - t) v_j | -e^(k_j - t), by vectors of channels
//
// Vectors of channels beyond the limit are added term by term. What padding holds is never read; dw is 0
// where no average looks, and outside the band (BAND 1).
// columns: panels of TN keys, [B][key block][BN / TN][vectors][2 VW][TN]; tops [B][key block][vectors].
// Local memory (WG > 1): BM * KV * TN floats, and BM * BN (factors). Private: 2 TILES_EACH micro-tiles, and these where WG is 1.
// Defines: see include/aft.h (NV is 1), include/aft_full.h; BN a multiple of TN; KV vectors of channels at a time; OWN
// 0|1; TYPE_G 0|1|2 type of the gradient.
#include "aft_backward.h"
#include "aft_backward_full.h"

#if !defined(KV) || !defined(OWN) || !defined(TYPE_G)
#error "KV, OWN, TYPE_G: see aft_backward_full_bias.cl"
#endif

#define ROW_TILES (BM / TM)
#define COLUMN_TILES (BN / TN)
#define TILES (ROW_TILES * COLUMN_TILES)
#define TILES_EACH CEIL_DIV(TILES, WG)
#define KB (KV * TN)
#define EACH_TILE                                                                                                      \
    UNROLL_GPU for (int tile = 0; tile < TILES_EACH; tile++)                                                           \
        if (tile * WG + lid < TILES)
#define TILE_I (TILE_ROW(tile * WG + lid, ROW_TILES, COLUMN_TILES) * TM)
#define TILE_J (TILE_COLUMN(tile * WG + lid, ROW_TILES, COLUMN_TILES) * TN)

LANES_LOAD(load_g, TYPE_G)
LANES_STORE(store_g, TYPE_G)

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_columns(__global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row,
                     const long k_group, __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch,
                     const long x_row, const long x_group, __global float *panels, const long panels_offset,
                     __global float *tops, const long tops_offset, __global const int *lengths,
                     const long lengths_offset, const long n, const int width, const int strips, const int vectors) {
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
    __global float *to = panels + panels_offset + (place * COLUMN_TILES * vectors + get_global_id(0)) * TN * TN;
    for (int j = 0; j < BN; j++) {
        float t[TN];
        V e = (V)(0.0f), ex = (V)(0.0f);
        if (begin + j < end) {
            e = decay(load_lanes(k, ki + (begin + j) * k_row, lanes) - top);
            ex = e * load_lanes(x, xi + (begin + j) * x_row, lanes);
        }
        RAW_STORE(ex, t);
        RAW_STORE(-e, t + VW);
        for (int l = 0; l < TN; l++) to[j / TN * (long)vectors * TN * TN + l * TN + j % TN] = t[l];
    }
}

// KV vectors of channels of the queries' rows, times f.
inline void stage_queries(SHARED float *to, __global const float *panels, __global const float *least,
                          __global const float *tops, const long place, const int row, const int first,
                          const int vectors, const int lid) {
    for (int u = lid; u < min(KV, vectors - first); u += WG) {
        const V rise = rise_of(RAW_LOAD(tops + (first + u) * VW), least, place, vectors, first + u);
        const V f = beyond_limit(rise) ? (V)(0.0f) : decay(rise);
        __global const float *from = panels + place * vectors * BN * TN + PANEL(vectors, first + u);
        for (int i = 0; i < BM; i++) {
            UNROLL for (int h = 0; h < TNV; h++) {
                RAW_STORE(f * RAW_LOAD(from + (row + i) * PANEL_STEP(vectors) + h * VW), to + i * KB + u * TN + h * VW);
            }
        }
    }
}

// What a vector of channels adds to TN elements of dw from (i, j) on, those before `end`.
inline void add_terms(V sums[TNV], const trace own, __global const STORAGE(TYPE_X) * k, const long k_row,
                      __global const STORAGE(TYPE_X) * x, const long x_row, const int lanes, const bias w, const long i,
                      const long j, const long end) {
    float t[TN];
    for (int o = 0; o < TN; o++) {
        t[o] = 0.0f;
        if (j + o < end && (!BAND || in_band(w, i, j + o))) {
            const V share = share_at(own, load_lanes(k, (j + o) * k_row, lanes), weight_at(w, i, j + o));
            t[o] = sum_of(share * (own.p * (load_lanes(x, (j + o) * x_row, lanes) - own.o)));
        }
    }
    UNROLL for (int h = 0; h < TNV; h++) { sums[h] += RAW_LOAD(t + h * VW); }
}

#define CORE_PARAMETERS                                                                                                \
    __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row, const long k_group, \
        __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch, const long x_row,                 \
        const long x_group, QUERIES_PARAMETERS, PACKED_PARAMETERS, __global const float *right,                        \
        const long right_offset, __global const float *tops, const long tops_offset, FULL_BIAS_PARAMETERS,             \
        __global const int *lengths, const long lengths_offset, const long n, const int width, const int strips,       \
        const int vectors, const long blocks, const int batch
#define CORE                                                                                                           \
    k, k_offset, k_batch, k_row, k_group, x, x_offset, x_batch, x_row, x_group, terms, terms_offset, terms_batch,      \
        terms_row, terms_group, traces, traces_offset, traces_batch, traces_row, traces_group, second, panels,         \
        panels_offset, least, least_offset, peaks, peaks_offset, right, right_offset, tops, tops_offset, w_base,       \
        w_offset, w_row, rows, rows_offset, columns, rank, reach, lengths, lengths_offset, n, width, strips, vectors,  \
        blocks, batch

// Lanes of row i from j on that lie outside the band.
inline VI outside(const bias w, const long i, const long j) {
#if BAND
    const int first = (int)clamp(i - w.reach - j, 0L, (long)VW), last = (int)clamp(i + w.reach - j, -1L, (long)VW);
    return (VI)(LANES < first) | (VI)(LANES > last);
#else
    return (VI)(0);
#endif
}

// Keys that query i sees. None where it sees one: its v - o is 0, which a product of tiles rounds.
inline long keys_of(const long i, const long seen) {
    const long count = i >= seen ? 0 : CAUSAL ? i + 1 : seen;
    return count > 1 ? count : 0;
}

// The block of dw from (i0, j0) on.
inline void make_block(V total[TILES_EACH][TM][TNV], SHARED float *xs, const long i0, const long j0, const int lid,
                       CORE_PARAMETERS) {
    const bias w = FULL_BIAS;
    V acc[TILES_EACH][TM][TNV];
    EACH_TILE tile_zero(total[tile]);
    if (BAND && (j0 > i0 + BM - 1 + w.reach || j0 + BN - 1 < i0 - w.reach)) return;
    for (int b = 0; b < batch; b++) {
        const long seen = tokens_of(lengths, lengths_offset, b, n), keys = CAUSAL ? min(i0 + BM, seen) : seen;
        if (i0 >= seen || j0 >= keys || vectors == 0) continue;
        const long place = b * blocks + i0 / BN, column_place = b * blocks + j0 / BN;
        __global const float *a = peaks + peaks_offset + b * n, *low = least + least_offset;
        __global const float *top = tops + tops_offset + column_place * vectors * VW;
        EACH_TILE tile_zero(acc[tile]);
        for (int first = 0; first < vectors; first += KV) {
            SYNC;
            stage_queries(xs, panels + panels_offset, low, top, place, (int)(i0 % BN), first, vectors, lid);
            SYNC;
            EACH_TILE {
                if (j0 + TILE_J < (CAUSAL ? min(i0 + TILE_I + TM, seen) : seen))
                    tile_fma(acc[tile], xs + TILE_I * KB, KB,
                             right + right_offset + ((column_place * COLUMN_TILES + TILE_J / TN) * vectors + first) * TN * TN,
                             TN, min(KV, vectors - first) * TN);
            }
        }
        EACH_TILE {
            for (int r = 0; r < TM; r++) {
                const long i = i0 + TILE_I + r, end = keys_of(i, seen);
                for (int h = 0; h < TNV; h++) {
                    const long j = j0 + TILE_J + h * VW;
                    if (j >= end) continue;
                    const V weight = weights_at(w, i, j, end);
                    const VI hidden = (VI)(weight == NOTHING) | outside(w, i, j);
                    total[tile][r][h] += select(decay(weight - a[i]) * acc[tile][r][h], (V)(0.0f), hidden);
                }
            }
        }
        for (int vector = 0; vector < vectors; vector++) {
            if (!beyond_limit(rise_of(RAW_LOAD(top + vector * VW), low, place, vectors, vector))) continue;
            const int group = vector / strips, c = (vector - group * strips) * VW, lanes = min(width - c, VW);
            const queries q = QUERIES(b, group, c);
            EACH_TILE {
                for (int r = 0; r < TM && i0 + TILE_I + r < seen; r++) {
                    const long i = i0 + TILE_I + r;
                    add_terms(total[tile][r], trace_of(q, 0, lanes, i), k + (k_offset + b * k_batch + group * k_group + c),
                              k_row, x + (x_offset + b * x_batch + group * x_group + c), x_row, lanes, w, i,
                              j0 + TILE_J, keys_of(i, seen));
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_weights(CORE_PARAMETERS, __global STORAGE(TYPE_G) * to, const long to_offset, const long to_row,
                     const long size, const int add) {
    const int lid = (int)get_local_id(0);
    const long j0 = (long)get_group_id(0) * BN, i0 = (long)get_group_id(1) * BM;
    SHARED float xs[BM * KB] ALIGNED;
    V total[TILES_EACH][TM][TNV];
    make_block(total, xs, i0, j0, lid, CORE);
    EACH_TILE {
        for (int r = 0; r < TM && i0 + TILE_I + r < size; r++) {
            for (int h = 0; h < TNV; h++) {
                const long j = j0 + TILE_J + h * VW, at = to_offset + (i0 + TILE_I + r) * to_row + j;
                const int lanes = (int)clamp(size - j, 0L, (long)VW);
                store_g(to, at, lanes, add ? total[tile][r][h] + load_g(to, at, lanes) : total[tile][r][h]);
            }
        }
    }
}

// w = u f^T: u rows of u_row floats, f transposed to rows of f_row.
typedef struct factors {
    __global const float *u, *f;
    long u_row, f_row, rank;
} factors;

// sums[i][e] += dw[i] . f[e], or sums[e][j] += sum_i dw[i][j] u[i][e].
inline void add_product(__global float *sums, SHARED const float *dw, const factors of, const long i0, const long j0,
                        const long n, const int lid) {
#if OWN
    for (long item = lid; item < of.rank * (BN / VW); item += WG) {
        const long e = item / (BN / VW), j = item % (BN / VW) * VW;
        V sum = RAW_LOAD(sums + e * BN + j);
        for (int i = 0; i < (int)min((long)BM, n - i0); i++)
            sum = fma((V)(of.u[(i0 + i) * of.u_row + e]), RAW_LOAD(dw + i * BN + j), sum);
        RAW_STORE(sum, sums + e * BN + j);
    }
#else
    for (long item = lid; item < of.rank * BM; item += WG) {
        const long e = item / BM, i = item % BM;
        V sum = (V)(0.0f);
        for (int j = 0; j < (int)min((long)BN, n - j0); j += VW) {
            // rows of f past n are for longer sequences, and hold anything
            const VI past = (VI)(LANES >= (int)min(n - j0 - j, (long)VW));
            sum = fma(RAW_LOAD(dw + i * BN + j), select(RAW_LOAD(of.f + e * of.f_row + j0 + j), (V)(0.0f), past), sum);
        }
        sums[i * of.rank + e] += sum_of(sum);
    }
#endif
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_factors(CORE_PARAMETERS, __global const float *u, const long u_offset, const long u_row,
                     __global const float *f, const long f_offset, const long f_row, const long f_rank,
                     __global float *sums, const long sums_offset, __global STORAGE(TYPE_G) * to, const long to_offset,
                     const long to_row, const long size, const int add) {
    const int lid = (int)get_local_id(0), count = OWN ? BN : BM;
    const long first = (long)get_group_id(0) * count;
    const factors of = {u + u_offset, f + f_offset, u_row, f_row, f_rank};
    const bias w = FULL_BIAS;
    __global float *own = sums + sums_offset + first * f_rank;
    SHARED float xs[BM * KB] ALIGNED, dw[BM * BN] ALIGNED;
    V total[TILES_EACH][TM][TNV];
    for (long o = lid; o < count * f_rank; o += WG) own[o] = 0.0f;
    SYNC_GLOBAL;
    range near = near_of(w, first, first + count, n);
    if (OWN && CAUSAL) near.begin = first / BM * BM;
    if (!OWN && CAUSAL) near.end = min(first + BM, n);
    for (long other = near.begin; first < n && other < near.end; other += OWN ? BM : BN) {
        make_block(total, xs, OWN ? other : first, OWN ? first : other, lid, CORE);
        EACH_TILE {
            for (int r = 0; r < TM; r++) {
                for (int h = 0; h < TNV; h++) RAW_STORE(total[tile][r][h], dw + (TILE_I + r) * BN + TILE_J + h * VW);
            }
        }
        SYNC;
        add_product(own, dw, of, OWN ? other : first, OWN ? first : other, n, lid);
        SYNC_GLOBAL;
    }
    for (long o = lid; o < count * f_rank; o += WG) {
        const long i = o / f_rank, e = o - i * f_rank, at = to_offset + (first + i) * to_row + e;
        const float sum = own[OWN ? e * BN + i : o];
        if (first + i < size) STORE(TYPE_G, to, at, add ? sum + LOAD(TYPE_G, to, at) : sum);
    }
}
