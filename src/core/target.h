/* What a plan is made for: a device's facts, the matrix engine, and the tile shapes. Pure data. */
#ifndef CLATTN_CORE_TARGET_H
#define CLATTN_CORE_TARGET_H

#include <clattn/device.h>

#include "base/caps.h"
#include "base/error.h"

/* Shape of a tile kernel, in the words of cl/include/tile.h:
 * wg   work-items of a group (1 = CPU: no barriers, shared memory is private memory)
 * vw   floats in a vector          tm   rows of a micro-tile
 * tnv  vectors across a micro-tile, tn = tnv * vw floats
 * pw   columns of a packed panel, a multiple of tn; the same for every kernel of a device
 * bm   rows of a group's block, a multiple of tm
 * bn   columns of a group's block, a multiple of pw
 * kb   depth of a staged block (gemm only) */
typedef struct clattn__tile {
    int wg, vw, tm, tnv, pw, bm, bn, kb;
} clattn__tile;

typedef struct clattn__target {
    clattn__caps caps;
    clattn_type weight_type; /* of what a load plan packs: f32 unless clattn_layer_load is given others */
    clattn_gemm engine;      /* CLBLAST or TILE, never AUTO */
    clattn__tile gemm;       /* linear layers */
    clattn__tile attention;  /* cores that multiply tiles */
} clattn__target;

/* Choose engine and shapes for a device from the table in target.c: the first row of its kind that fits it. */
void clattn__target_choose(const clattn__caps *caps, clattn_gemm wanted, clattn__target *target);

/* Do the shapes keep to the device's work-groups and local memory, at every head size? Errors: UNSUPPORTED with both
 * values, in a sentence that begins with `whose`. */
clattn_status clattn__target_fits(const clattn__target *target, const char *whose, clattn__error *error);

/* Columns of one packed panel. */
static inline int64_t clattn__panel_width(const clattn__target *target) { return target->gemm.pw; }

/* Floats of a value row as kernels want it packed: head_size rounded up to whole micro-tiles. */
static inline int64_t clattn__padded_row(const clattn__target *target, int64_t head_size) {
    const int64_t tn = (int64_t)target->attention.tnv * target->attention.vw;
    return (head_size + tn - 1) / tn * tn;
}

static inline int64_t clattn__ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
