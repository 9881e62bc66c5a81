// What the kernels of aft's modes full and local share: panels of packed channels, and w: a table, u v^T, or a band.
//
// Include aft.h before. Defines: those of tile.h with TNV 2; BM a multiple of TM and VW, BN a multiple of VW, CV vectors of a
// work-item; CAUSAL, FACTORS, BAND 0|1 (FACTORS and BAND are not both 1).
#ifndef CLATTN_AFT_FULL_H
#define CLATTN_AFT_FULL_H

#include "tile.h"

#if !defined(CAUSAL) || !defined(FACTORS) || !defined(BAND) || !defined(BM) || !defined(BN) || !defined(CV)
#error "CAUSAL, FACTORS, BAND, BM, BN, CV: see aft_full.h"
#endif
#if FACTORS && BAND
#error "a band is a table: FACTORS and BAND are not both 1"
#endif
#if TNV != 2 || NV != 1
#error "TNV is 2: a panel has two vectors for one of channels; NV is 1"
#endif

// A CPU walks one panel; neighbouring GPU work-items read neighbouring panels' equal rows.
#if WG == 1
#define PANEL_STEP(vectors) ((long)TN)
#define PANEL(vectors, vector) ((vector) * (long)(BN * TN))
#else
#define PANEL_STEP(vectors) ((vectors) * (long)TN)
#define PANEL(vectors, vector) ((vector) * (long)TN)
#endif

// w: the table [T, T], or the left factor u with the right factor as rows. BAND 1: w_ij is 0 where |i - j| > reach, and only
// the others are read.
typedef struct bias {
    __global const float *w, *rows;
    long row, columns, rank, reach;
} bias;

#define FULL_BIAS_PARAMETERS                                                                                           \
    __global const float *w_base, const long w_offset, const long w_row, __global const float *rows,                   \
        const long rows_offset, const long columns, const long rank, const long reach

#define FULL_BIAS {w_base + w_offset, rows + rows_offset, w_row, columns, rank, reach}

inline bool in_band(const bias w, const long i, const long j) { return j >= i - w.reach && j <= i + w.reach; }

inline float weight_at(const bias w, const long i, const long j) {
#if FACTORS
    float sum = 0.0f;
    for (long r = 0; r < w.rank; r++) sum = fma(w.w[i * w.row + r], w.rows[r * w.columns + j], sum);
    return sum;
#elif BAND
    return in_band(w, i, j) ? w.w[i * w.row + j] : 0.0f;
#else
    return w.w[i * w.row + j];
#endif
}

// VW neighbours of row i; those at and past `end` are not read (FACTORS: rows are padded) and are NOTHING.
inline V weights_at(const bias w, const long i, const long j, const long end) {
#if FACTORS
    V sum = (V)(0.0f);
    for (long r = 0; r < w.rank; r++) sum = fma((V)(w.w[i * w.row + r]), RAW_LOAD(w.rows + r * w.columns + j), sum);
    if (j + VW <= end) return sum;
#else
    const bool whole = j + VW <= end;
    if (BAND && whole && (j > i + w.reach || j + VW - 1 < i - w.reach)) return (V)(0.0f);
    if (whole && (!BAND || (in_band(w, i, j) && in_band(w, i, j + VW - 1)))) return RAW_LOAD(w.w + i * w.row + j);
#endif
    float t[VW];
    for (int l = 0; l < VW; l++) t[l] = j + l < end ? weight_at(w, i, j + l) : NOTHING;
    return RAW_LOAD(t);
}

// The keys near a block of queries, or the queries near a block of keys: those of whole blocks of BN that the band touches,
// or all. Beyond them w is 0. A causal caller moves the end that it cannot see past.
typedef struct range {
    long begin, end;
} range;

inline range near_of(const bias w, const long first, const long last, const long seen) {
#if BAND
    range r = {max(first - w.reach, 0L) / BN * BN, min(ROUND_UP(last + w.reach, BN), seen)};
#else
    range r = {0, seen};
#endif
    return r;
}

#endif
