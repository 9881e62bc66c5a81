/* The table of tile shapes, and the choice from it. */
#include "core/target.h"

/* Measured on PoCL 3.1 (CPU rows). GPU rows: chosen so that registers and local memory fit every
 * target of the design; see docs/devices.md. */
static const struct {
    clattn__device_kind kind;
    uint32_t vector_width; /* smallest native width that this row serves */
    clattn__tile gemm, attention;
} shapes[] = {
    /*                    wg  vw tm tnv pw  bm  bn   kb      wg  vw tm tnv pw  bm  bn  kb */
    {CLATTN__CPU, 16, {1, 16, 8, 2, 32, 64, 192, 256}, {1, 16, 8, 2, 32, 8, 512, 0}},
    {CLATTN__CPU, 8, {1, 8, 6, 2, 16, 48, 192, 256}, {1, 8, 6, 2, 16, 12, 256, 0}},
    {CLATTN__CPU, 1, {1, 4, 4, 2, 8, 32, 64, 256}, {1, 4, 4, 2, 8, 8, 128, 0}},
    {CLATTN__GPU, 1, {64, 4, 4, 1, 32, 32, 64, 32}, {64, 4, 4, 1, 32, 32, 32, 0}},
    {CLATTN__OTHER_DEVICE, 1, {64, 4, 4, 1, 32, 32, 64, 32}, {64, 4, 4, 1, 32, 32, 32, 0}},
};

void clattn__target_choose(const clattn__caps *caps, clattn_gemm wanted, clattn__target *target) {
    target->caps = *caps;
    target->engine = wanted != CLATTN_GEMM_AUTO     ? wanted
                     : caps->kind == CLATTN__GPU    ? CLATTN_GEMM_CLBLAST
                                                    : CLATTN_GEMM_TILE;
    size_t row = 0;
    while (shapes[row].kind != caps->kind || shapes[row].vector_width > caps->vector_width_f32)
        row++; /* each kind has a row of width 1 */
    target->gemm = shapes[row].gemm;
    target->attention = shapes[row].attention;
}
