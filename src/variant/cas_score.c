/* Additive attention on x: filters, scores, and the mean of x under their softmax. */
#include <math.h>

#include "variant/cas.h"

enum { COLUMNS = 72, GROUP_HEADS = 32 };

/* ---- shape ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t round_up(int64_t a, int64_t b) { return clattn__ceil_div(a, b) * b; }

/* Heads of a work-group, evenly: no more than keep its columns in the first cache. */
static void choose_groups(clattn__cas_filters *f) {
    const int64_t limit = least(GROUP_HEADS, most(1, COLUMNS / f->kernel));
    f->groups = clattn__ceil_div(f->heads, limit);
    f->group_heads = clattn__ceil_div(f->heads, f->groups);
}

/* Columns as panels of 1..4 vectors: the widest that leaves the fewest empty. */
static void choose_columns(clattn__cas_filters *f) {
    static const int rows[] = {8, 6, 4, 3}; /* micro-tiles that fill 16 registers */
    const int64_t vectors = clattn__ceil_div(f->group_heads * f->kernel, f->vw);
    f->tnv = 1;
    for (int wide = 2; wide <= 4; wide++)
        if (round_up(vectors, wide) <= round_up(vectors, f->tnv))
            f->tnv = wide;
    f->tm = rows[f->tnv - 1];
    f->panels = clattn__ceil_div(vectors, f->tnv);
}

/* Tiles of the weighted sum: up to 4 heads and, of the channels, vectors that divide d. */
static void choose_sums(clattn__cas_filters *f) {
    f->ah = (int)least(4, f->group_heads);
    while (f->vw == 1 && f->group_heads % f->ah)
        f->ah--; /* lanes of heads are not padded here */
    const int64_t vectors = f->model_size / f->vw;
    f->anv = f->ah <= 2 ? 4 : 2;
    while (vectors % f->anv)
        f->anv /= 2;
}

clattn__cas_filters clattn__cas_filters_make(const clattn__target *target, const clattn_cas_layer_desc *desc) {
    clattn__cas_filters f = {.model_size = desc->model_size,
                             .heads = desc->heads,
                             .kernel = (int)desc->kernel,
                             .causal = desc->causal,
                             .wg = clattn__cas_group(target),
                             .vw = clattn__cas_vector(target, desc->model_size)};
    f.bt = f.wg == 1 ? 64 : 32;
    choose_groups(&f);
    choose_columns(&f);
    choose_sums(&f);
    return f;
}

static int64_t panel_floats(const clattn__cas_filters *f) { return f->model_size * f->tnv * f->vw; }

uint64_t clattn__cas_filters_bytes(const clattn__cas_filters *f) {
    return sizeof(float) * (uint64_t)(f->groups * f->panels * panel_floats(f));
}

void clattn__cas_fold(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *f,
                      clattn__operand weight, clattn__operand resident) {
    clattn__stage *stage = clattn__cas_loading(plan, target, "cas_fold");
    const int64_t tn = f->tnv * f->vw;
    clattn__stage_operand(plan, stage, weight);
    clattn__stage_operand(plan, stage, resident);
    clattn__stage_long(plan, stage, f->model_size);
    clattn__stage_long(plan, stage, f->kernel);
    clattn__stage_long(plan, stage, f->heads);
    clattn__stage_long(plan, stage, f->group_heads);
    clattn__stage_long(plan, stage, tn);
    clattn__stage_float(plan, stage, (float)(1 / sqrt((double)(f->model_size / f->heads))));
    clattn__stage_range(stage, f->panels * tn, f->groups, 1, f->wg);
}

/* ---- stages ---- */

/* Floats of shared memory, by the formulas of cas_score.h and cas.cl. */
static int64_t shared_floats(const clattn__cas_filters *f, bool sums) {
    const int64_t heads = round_up(f->group_heads, f->vw), tn = f->tnv * f->vw;
    const int64_t reach = round_up((f->kernel - 1) * f->group_heads + heads, f->vw);
    const int64_t columns = round_up(f->bt + f->kernel - 1, f->tm) * most(reach, f->panels * tn);
    return columns + (sums ? (f->bt + 3) * heads : 0);
}

static clattn__stage *append(clattn__plan *plan, const clattn__cas_filters *f, const clattn__cas_input *input,
                             const char *file, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    clattn__stage_define(plan, stage, "WG", f->wg);
    clattn__stage_define(plan, stage, "VW", f->vw);
    clattn__stage_define(plan, stage, "TM", f->tm);
    clattn__stage_define(plan, stage, "TNV", f->tnv);
    clattn__stage_define(plan, stage, "PW", f->tnv * f->vw);
    clattn__stage_define(plan, stage, "D", f->model_size);
    clattn__stage_define(plan, stage, "HEADS", f->heads);
    clattn__stage_define(plan, stage, "HG", f->group_heads);
    clattn__stage_define(plan, stage, "KERNEL", f->kernel);
    clattn__stage_define(plan, stage, "LEFT", f->causal ? f->kernel - 1 : f->kernel / 2);
    clattn__stage_define(plan, stage, "BT", f->bt);
    clattn__stage_define(plan, stage, "TYPE_X", input->type);
    clattn__stage_operand(plan, stage, input->x);
    clattn__stage_operand(plan, stage, input->filters);
    clattn__stage_operand(plan, stage, input->lengths);
    return stage;
}

void clattn__cas_scores(clattn__plan *plan, const clattn__cas_filters *f, const clattn__cas_input *input,
                        clattn__operand scores) {
    clattn__stage *stage = append(plan, f, input, "cas_scores", "cas_scores");
    clattn__stage_operand(plan, stage, scores);
    clattn__stage_long(plan, stage, input->length);
    stage->local_bytes = f->wg == 1 ? 0 : sizeof(float) * (size_t)shared_floats(f, false);
    clattn__stage_range(stage, clattn__ceil_div(input->length, f->bt), f->groups, input->batch, f->wg);
}

void clattn__cas_pool(clattn__plan *plan, const clattn__target *target, const clattn__cas_filters *f,
                      const clattn__cas_input *input, const clattn__cas_means *to) {
    const int64_t span = clattn__cas_span(target, input->batch * f->groups, input->length, f->bt);
    const int64_t parts = clattn__ceil_div(input->length, span), rows = input->batch * f->heads;
    const clattn__cas_parts sums = clattn__cas_parts_make(plan, rows, parts, f->model_size);
    clattn__stage *stage = append(plan, f, input, "cas", "cas_partial");
    clattn__stage_define(plan, stage, "AH", f->ah);
    clattn__stage_define(plan, stage, "ANV", f->anv);
    clattn__stage_operand(plan, stage, sums.sums);
    clattn__stage_operand(plan, stage, sums.peaks);
    clattn__stage_long(plan, stage, input->length);
    clattn__stage_long(plan, stage, span);
    stage->local_bytes = f->wg == 1 ? 0 : sizeof(float) * (size_t)shared_floats(f, true);
    clattn__stage_range(stage, parts, f->groups, input->batch, f->wg);
    clattn__cas_merge(plan, target, input->batch, f->heads, &sums, to);
}
