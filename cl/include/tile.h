// The tile engine: C += A B on micro-tiles of TM rows and TNV vectors.
//
//          b[k]   TN = TNV*VW floats, consecutive          A is read element by element and broadcast;
//        +----------------+                                B is read as whole vectors, from panels of PW
//  a[i,k]| c[i][0..TNV-1] |  TM rows                       columns or from rows padded to TN.
//        +----------------+
//
// A matrix packed in panels of PW columns holds element (k, j) at ((j/PW)*K + k)*PW + j%PW.
//
// WG = 1 is a CPU device: SHARED memory is private memory, SYNC nothing. WG > 1 is a GPU: SHARED is local
// memory, SYNC a barrier, and work-item `lid` takes micro-tiles lid, lid + WG, …
//
// Defines: WG 1..1024, VW 1|4|8|16, TM 1..16, TNV 1..4, PW a multiple of TN.
#ifndef CLATTN_TILE_H
#define CLATTN_TILE_H

#include "types.h"

#if !defined(WG) || !defined(TM) || !defined(TNV) || !defined(PW)
#error "WG, TM, TNV, PW: see tile.h"
#endif

#define TN (TNV * VW)

#if WG == 1
#define SHARED __private
#define SYNC
#define SYNC_GLOBAL
// A panel stays in the first cache while all row tiles pass over it.
#define TILE_ROW(t, row_tiles, column_tiles) ((t) % (row_tiles))
#define TILE_COLUMN(t, row_tiles, column_tiles) ((t) / (row_tiles))
#else
#define SHARED __local
#define SYNC barrier(CLK_LOCAL_MEM_FENCE)
#define SYNC_GLOBAL barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
// Neighbouring work-items read neighbouring vectors.
#define TILE_ROW(t, row_tiles, column_tiles) ((t) / (column_tiles))
#define TILE_COLUMN(t, row_tiles, column_tiles) ((t) % (column_tiles))
#endif
#define ALIGNED __attribute__((aligned(64)))
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define ROUND_UP(a, b) (CEIL_DIV(a, b) * (b))

#define UNROLL _Pragma("unroll")
#if WG == 1
#define UNROLL_GPU // the tiles of a CPU's block live in its caches
#else
#define UNROLL_GPU UNROLL // those of a GPU's work-item in registers
#endif

inline void tile_zero(V c[TM][TNV]) {
    UNROLL for (int i = 0; i < TM; i++) {
        UNROLL for (int j = 0; j < TNV; j++) { c[i][j] = (V)(0.0f); }
    }
}

inline void tile_copy(V to[TM][TNV], V from[TM][TNV]) {
    UNROLL for (int i = 0; i < TM; i++) {
        UNROLL for (int j = 0; j < TNV; j++) { to[i][j] = from[i][j]; }
    }
}

// c += a[0..TM)[0..count) b[0..count)[0..TN). Element (i, k) of a lies at i*row + k*step, a row of b at k*ldb. The micro-tile
// is held in registers.
inline void tile_fma_steps(V acc[TM][TNV], SHARED const float *a, const int row, const int step,
                           __global const float *b, const long ldb, const int count) {
    V c[TM][TNV];
    tile_copy(c, acc);
    for (int k = 0; k < count; k++) {
        V bk[TNV];
        UNROLL for (int j = 0; j < TNV; j++) { bk[j] = RAW_LOAD(b + k * ldb + j * VW); }
        UNROLL for (int i = 0; i < TM; i++) {
            const V aik = (V)(a[i * row + k * step]);
            UNROLL for (int j = 0; j < TNV; j++) { c[i][j] = fma(aik, bk[j], c[i][j]); }
        }
    }
    tile_copy(acc, c);
}

// The same for rows of a, lda floats apart.
inline void tile_fma(V acc[TM][TNV], SHARED const float *a, const int lda, __global const float *b, const long ldb,
                     const int count) {
    tile_fma_steps(acc, a, lda, 1, b, ldb, count);
}

// As tile_fma_steps, but a weight of exactly 0 takes no part: what its row of b holds, NaN included, is ignored.
inline void tile_fma_visible(V c[TM][TNV], SHARED const float *a, const int row, const int step,
                             __global const float *b, const long ldb, const int count) {
    for (int k = 0; k < count; k++) {
        V bk[TNV];
        UNROLL for (int j = 0; j < TNV; j++) { bk[j] = RAW_LOAD(b + k * ldb + j * VW); }
        UNROLL for (int i = 0; i < TM; i++) {
            const float aik = a[i * row + k * step];
            UNROLL for (int j = 0; j < TNV; j++) {
                c[i][j] = aik == 0.0f ? c[i][j] : fma((V)(aik), bk[j], c[i][j]);
            }
        }
    }
}

#if defined(KEPT)
// Element (depth k, output j) of a linear layer's weight in its engine's form: KEPT 1 [outputs, depth], 0 panels.
inline long weight_at(const long k, const long j, const long depth) {
    return KEPT ? j * depth + k : (j / PW * depth + k) * PW + j % PW;
}
#endif

// Lane numbers, and a choice by lane (condition: a VI, true where all bits are set; an int when VW is 1).
#if VW == 16
#define LANES ((VI)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#elif VW == 8
#define LANES ((VI)(0, 1, 2, 3, 4, 5, 6, 7))
#elif VW == 4
#define LANES ((VI)(0, 1, 2, 3))
#else
#define LANES 0
#endif
#define SELECT(no, yes, condition) ((condition) ? (yes) : (no))

inline float vmax(V x) {
#if VW == 16
    const float8 a = fmax(x.lo, x.hi);
#elif VW == 8
    const float8 a = x;
#endif
#if VW >= 8
    const float4 b = fmax(a.lo, a.hi);
#elif VW == 4
    const float4 b = x;
#endif
#if VW >= 4
    const float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
#else
    return x;
#endif
}

inline float vsum(V x) {
#if VW == 16
    const float8 a = x.lo + x.hi;
#elif VW == 8
    const float8 a = x;
#endif
#if VW >= 8
    const float4 b = a.lo + a.hi;
#elif VW == 4
    const float4 b = x;
#endif
#if VW >= 4
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
#else
    return x;
#endif
}

#endif
