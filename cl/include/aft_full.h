// What the kernels of aft's mode full share: panels of packed channels, and w, a table or u v^T.
//
// Include aft.h before. Defines: those of tile.h with TNV 2; BM a multiple of TM and VW, BN a multiple of VW, CV vectors of a
// work-item; CAUSAL, FACTORS 0|1.
#ifndef CLATTN_AFT_FULL_H
#define CLATTN_AFT_FULL_H

#include "tile.h"

#if !defined(CAUSAL) || !defined(FACTORS) || !defined(BM) || !defined(BN) || !defined(CV)
#error "CAUSAL, FACTORS, BM, BN, CV: see aft_full.h"
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

// w: the table [T, T], or the left factor u with the right factor as rows.
typedef struct bias {
    __global const float *w, *rows;
    long row, columns, rank;
} bias;

inline float weight_at(const bias w, const long i, const long j) {
#if FACTORS
    float sum = 0.0f;
    for (long r = 0; r < w.rank; r++) sum = fma(w.w[i * w.row + r], w.rows[r * w.columns + j], sum);
    return sum;
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
    if (j + VW <= end) return RAW_LOAD(w.w + i * w.row + j);
#endif
    float t[VW];
    for (int l = 0; l < VW; l++) t[l] = j + l < end ? weight_at(w, i, j + l) : NOTHING;
    return RAW_LOAD(t);
}

#endif
