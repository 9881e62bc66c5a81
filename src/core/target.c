/* The table of tile shapes, and the choice from it. */
#include "core/target.h"

#include <inttypes.h>

/* Rows of a kind are asked in order: the first whose vectors the device has and whose work-groups and local memory fit
 * is taken. Measured on PoCL 3.1 (CPU rows). GPU rows: see docs/devices.md. Each kind ends with a row that fits any
 * device. */
static const struct {
    clattn__device_kind kind;
    uint32_t vector_width; /* smallest native width that this row serves */
    clattn__tile gemm, attention;
} shapes[] = {
    /*                    wg  vw tm tnv pw  bm  bn   kb      wg  vw tm tnv pw  bm  bn  kb */
    {CLATTN__CPU, 16, {1, 16, 8, 2, 32, 64, 192, 256}, {1, 16, 8, 2, 32, 8, 512, 0}},
    {CLATTN__CPU, 8, {1, 8, 6, 2, 16, 24, 512, 512}, {1, 8, 6, 2, 16, 12, 256, 0}},
    {CLATTN__CPU, 1, {1, 4, 4, 2, 8, 32, 64, 256}, {1, 4, 4, 2, 8, 8, 128, 0}},
    {CLATTN__GPU, 1, {128, 4, 4, 1, 32, 32, 64, 32}, {128, 4, 4, 1, 32, 32, 32, 0}},
    {CLATTN__GPU, 1, {64, 4, 4, 1, 32, 32, 64, 32}, {64, 4, 4, 1, 32, 16, 32, 0}},
    {CLATTN__GPU, 1, {16, 4, 4, 1, 32, 16, 32, 32}, {16, 4, 4, 1, 32, 8, 32, 0}},
    {CLATTN__GPU, 1, {1, 4, 4, 2, 8, 32, 64, 256}, {1, 4, 4, 2, 8, 8, 128, 0}},
    {CLATTN__OTHER_DEVICE, 1, {64, 4, 4, 1, 32, 32, 64, 32}, {64, 4, 4, 1, 32, 32, 32, 0}},
    {CLATTN__OTHER_DEVICE, 1, {1, 4, 4, 2, 8, 32, 64, 256}, {1, 4, 4, 2, 8, 8, 128, 0}},
};

/* Local memory that a shape may take: stage_rows of gemm.cl; attention.h at the largest head size, with a second block
 * of scores (assa). */
static uint64_t gemm_bytes(const clattn__tile *t) {
    return t->wg == 1 ? 0 : sizeof(float) * (uint64_t)t->bm * (uint64_t)t->kb;
}

static uint64_t attention_bytes(const clattn__tile *t) {
    enum { LARGEST_HEAD = 256, STATE = 7 };
    return t->wg == 1 ? 0 : sizeof(float) * (uint64_t)t->bm * (uint64_t)(LARGEST_HEAD + 2 * (t->bn + 1) + STATE);
}

static clattn_status fits(const clattn__tile *t, uint64_t bytes, const clattn__caps *caps, const char *whose,
                          const char *shape, clattn__error *error) {
    const uint64_t groups =
        caps->max_work_group < caps->max_work_item[0] ? caps->max_work_group : caps->max_work_item[0];
    if (t->wg > 1 && (uint64_t)t->wg > groups)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "%s: %s.wg is %d, the device allows work-groups of %" PRIu64,
                            whose, shape, t->wg, groups);
    if (bytes > caps->local_bytes)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "%s: %s needs up to %" PRIu64 " bytes of local memory, the device has %" PRIu64, whose,
                            shape, bytes, caps->local_bytes);
    return CLATTN_SUCCESS;
}

clattn_status clattn__target_fits(const clattn__target *target, const char *whose, clattn__error *error) {
    clattn_status status = fits(&target->gemm, gemm_bytes(&target->gemm), &target->caps, whose, "gemm", error);
    if (status == CLATTN_SUCCESS)
        status =
            fits(&target->attention, attention_bytes(&target->attention), &target->caps, whose, "attention", error);
    return status;
}

void clattn__target_choose(const clattn__caps *caps, clattn_gemm wanted, clattn__target *target) {
    target->caps = *caps;
    target->weight_type = CLATTN_F32;
    target->engine = wanted != CLATTN_GEMM_AUTO  ? wanted
                     : caps->kind == CLATTN__GPU ? CLATTN_GEMM_CLBLAST
                                                 : CLATTN_GEMM_TILE;
    for (size_t row = 0; row < sizeof shapes / sizeof *shapes; row++) {
        if (shapes[row].kind != caps->kind || shapes[row].vector_width > caps->vector_width_f32)
            continue;
        target->gemm = shapes[row].gemm;
        target->attention = shapes[row].attention;
        if (clattn__target_fits(target, "", NULL) == CLATTN_SUCCESS)
            return;
    }
}
