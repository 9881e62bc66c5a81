/* A tile shape as defines of a stage. */
#ifndef CLATTN_CORE_TILE_H
#define CLATTN_CORE_TILE_H

#include "core/plan.h"
#include "core/target.h"

/* WG, VW, TM, TNV, PW, BM, BN. */
static inline void clattn__tile_defines(clattn__plan *plan, clattn__stage *stage, const clattn__tile *tile) {
    clattn__stage_define(plan, stage, "WG", tile->wg);
    clattn__stage_define(plan, stage, "VW", tile->vw);
    clattn__stage_define(plan, stage, "TM", tile->tm);
    clattn__stage_define(plan, stage, "TNV", tile->tnv);
    clattn__stage_define(plan, stage, "PW", tile->pw);
    clattn__stage_define(plan, stage, "BM", tile->bm);
    clattn__stage_define(plan, stage, "BN", tile->bn);
}

/* The least number of columns that are whole panels, and whole micro-tiles where they are rows. */
static inline int clattn__tile_both_ways(const clattn__tile *tile) {
    int columns = tile->pw;
    while (columns % tile->tm != 0)
        columns += tile->pw;
    return columns;
}

#endif
