// What the backward kernels of aft's modes full and local share. With a_i the largest w that query i sees, and t, m of a
// channel chosen for a block of keys and a block of queries:
//
//   A_ij = e^(w_ij - a_i) e^(k_j - t) f e^(m - M_i)      M_i = K_i + (C_i - a_i), m the block's least, t its largest k
//                                                        f = e^(t - m)
//
// so sums over queries, over keys or over channels of A_ij times something are products of tiles. All factors but f are at
// most 1. f is large where keys lie far above what these queries' sums are made of, because their w is far below: beyond
// e^LIMIT that vector of channels is left out of the tile, and added term by term.
//
// m is two numbers, K and C - a of the least: beside a large k, w keeps its digits. Panels, least and tops are padded:
//
//   panels [B][query block] of BN rows: e^(m - M_i) P_i | the same times o_i          least [B][query block][2][vectors]
//
// Include aft_backward.h before. Defines: see aft_full.h; BN a multiple of BM.
#ifndef CLATTN_AFT_BACKWARD_FULL_H
#define CLATTN_AFT_BACKWARD_FULL_H

#include "aft_full.h"

#define LIMIT 57.0f

#define PACKED_PARAMETERS                                                                                              \
    __global const float *panels, const long panels_offset, __global const float *least, const long least_offset,      \
        __global const float *peaks, const long peaks_offset

// The logarithm of f: place is the query block's, counted over all sequences.
inline V rise_of(const V top, __global const float *least, const long place, const long vectors, const long vector) {
    __global const float *at = least + (place * 2 * vectors + vector) * VW;
    return (top - RAW_LOAD(at)) - RAW_LOAD(at + vectors * VW);
}

inline bool beyond_limit(const V rise) {
#if VW == 1
    return rise > LIMIT;
#else
    return any(rise > LIMIT);
#endif
}

// A_ij, term by term.
inline V share_at(const trace q, const V key, const float w) { return weight_of((key - q.k) + (w - q.c)); }

#endif
