/* What a plan is made for: a device's facts, the matrix engine, and the tile shapes. Pure data. */
#ifndef CLATTN_CORE_TARGET_H
#define CLATTN_CORE_TARGET_H

#include <clattn/device.h>

#include "base/caps.h"

/* Shape of a tile kernel, in the words of cl/include/tile.h:
 * wg   work-items of a group (1 = CPU: no barriers, shared memory is private memory)
 * vw   floats in a vector          tm   rows of a micro-tile
 * tnv  vectors across a micro-tile (tn = tnv * vw floats: the width of a packed panel)
 * bm   rows of a group's block     bn   columns of a group's block, a multiple of tn */
typedef struct clattn__tile {
    int wg, vw, tm, tnv, bm, bn;
} clattn__tile;

typedef struct clattn__target {
    clattn__caps caps;
    clattn_gemm engine;      /* CLBLAST or TILE, never AUTO */
    clattn__tile gemm;       /* linear layers; bn = columns of a work-group */
    clattn__tile attention;  /* cores that multiply tiles; same vw and tnv as gemm, so one panel width */
} clattn__target;

/* Choose engine and shapes for a device from the table in target.c. */
void clattn__target_choose(const clattn__caps *caps, clattn_gemm wanted, clattn__target *target);

/* Floats across one packed panel. */
static inline int64_t clattn__panel_width(const clattn__target *target) {
    return (int64_t)target->attention.vw * target->attention.tnv;
}

#endif
