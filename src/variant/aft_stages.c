/* aft: the core's stages, cl/aft.cl, aft_scan.cl, aft_matrix.cl and aft_full.cl. */
#include "variant/aft_gram.h"

static clattn__aft_division divide(const clattn__aft *aft, const clattn__target *target, int vectors, int64_t tb) {
    return clattn__aft_divide(aft, target, clattn__aft_by_head(aft), vectors, tb);
}

static bool has_traces(const clattn__aft *aft) { return clattn__given(aft->traces); }

/* TRACES_PARAMETERS of cl/include/aft.h. */
static void trace_args(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft) {
    const clattn__aft_view traces = clattn__aft_traces(aft);
    clattn__aft_view_args(plan, stage, &traces);
    clattn__stage_long(plan, stage, aft->heads * aft->head_size);
}

/* ---- gated ---- */

static clattn__stage *start_gated(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                  const char *kernel) {
    clattn__stage *stage = clattn__aft_start(plan, aft, d, "aft", kernel);
    clattn__stage_define(plan, stage, "CAUSAL", aft->causal);
    clattn__stage_define(plan, stage, "TOTAL", !aft->causal);
    clattn__stage_define(plan, stage, "POSITION", clattn__given(aft->position));
    return stage;
}

void clattn__aft_total_rows(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                            clattn__operand sums, int64_t rows) {
    clattn__stage *stage = start_gated(plan, aft, d, "aft_total");
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_long(plan, stage, d->blocks);
    clattn__stage_int(plan, stage, (int32_t)(d->count * rows));
    clattn__stage_long(plan, stage, d->pitch * rows);
    clattn__stage_range(stage, clattn__ceil_div(d->count * rows, d->wg), 1, aft->batch, d->wg);
}

/* y = gate * sums: one row of sums a batch, or a running sum from each block's. */
static void add_gate(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d, clattn__operand sums,
                     int64_t sums_batch) {
    clattn__stage *stage = start_gated(plan, aft, d, "aft_gate");
    clattn__aft_view_args(plan, stage, &aft->q);
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__aft_view_args(plan, stage, &aft->y);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, aft->position);
    clattn__aft_extents(plan, stage, aft, d);
    clattn__stage_long(plan, stage, sums_batch);
    clattn__stage_int(plan, stage, (int32_t)aft->head_size);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
}

static void add_gated(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft) {
    const clattn__aft_division d = divide(aft, target, 4, 64);
    const clattn__operand sums = clattn__plan_scratch(plan, aft->batch * d.blocks * d.pitch);
    clattn__stage *stage = start_gated(plan, aft, &d, "aft_sum");
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__stage_operand(plan, stage, sums);
    clattn__aft_extents(plan, stage, aft, &d);
    clattn__aft_range(stage, &d, d.blocks, aft->batch);
    clattn__aft_total_rows(plan, aft, &d, sums, 1);
    add_gate(plan, aft, &d, sums, d.blocks * d.pitch);
}

void clattn__aft_gate(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                      const clattn__aft_channels *sums) {
    const clattn__aft_division d = clattn__aft_gram_divide(aft, target);
    add_gate(plan, aft, &d, sums->at, sums->batch);
}

/* ---- gated-matrix ---- */

static clattn__stage *start_matrix(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                   const char *kernel) {
    clattn__stage *stage = clattn__aft_start(plan, aft, d, "aft_matrix", kernel);
    clattn__stage_define(plan, stage, "CAUSAL", aft->causal);
    clattn__stage_define(plan, stage, "POSITION", clattn__given(aft->position));
    clattn__stage_define(plan, stage, "DH", aft->head_size);
    return stage;
}

static void matrix_extents(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft,
                           const clattn__aft_division *d) {
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_int(plan, stage, (int32_t)d->strips);
    clattn__stage_int(plan, stage, (int32_t)d->count);
    clattn__stage_long(plan, stage, d->pitch);
}

/* Prefixes where causal, else the total in the first of a sequence's blocks. */
static clattn__operand add_outer(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d) {
    const clattn__operand states = clattn__plan_scratch(plan, aft->batch * d->blocks * aft->head_size * d->pitch);
    clattn__stage *stage = start_matrix(plan, aft, d, "aft_outer");
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__stage_operand(plan, stage, states);
    matrix_extents(plan, stage, aft, d);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
    clattn__aft_total_rows(plan, aft, d, states, aft->head_size);
    return states;
}

/* blocks: of the states. */
static void add_products(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                         clattn__operand states, int64_t blocks) {
    clattn__stage *stage = start_matrix(plan, aft, d, "aft_matrix");
    clattn__aft_view_args(plan, stage, &aft->q);
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__aft_view_args(plan, stage, &aft->y);
    clattn__stage_operand(plan, stage, states);
    clattn__stage_operand(plan, stage, aft->position);
    matrix_extents(plan, stage, aft, d);
    clattn__stage_long(plan, stage, blocks);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
}

static void add_matrix(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft) {
    const clattn__aft_division d = divide(aft, target, 2, 256);
    add_products(plan, aft, &d, add_outer(plan, aft, &d), d.blocks);
}

void clattn__aft_gram_matrix(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                             const clattn__aft_kept *kept) {
    const clattn__aft rows = clattn__aft_gram_rows(aft, kept->weights, kept->values);
    const clattn__aft_division d = divide(aft, target, 2, 256), of = divide(&rows, target, 2, 256);
    add_products(plan, aft, &d, add_outer(plan, &rows, &of), of.blocks);
}

/* ---- simple, conv; what is far away of local ---- */

/* The same for every query. (Where traces are wanted, each query writes its own.) */
static bool one_average(const clattn__aft *aft) {
    return aft->mode == CLATTN_AFT_SIMPLE && !aft->causal && !has_traces(aft);
}

static clattn__stage *start_scan(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                 const char *kernel) {
    const bool average = one_average(aft);
    clattn__stage *stage = clattn__aft_start(plan, aft, d, "aft_scan", kernel);
    clattn__stage_define(plan, stage, "SHARED_KEY", aft->mode == CLATTN_AFT_CONV);
    clattn__stage_define(plan, stage, "AVERAGE", average);
    clattn__stage_define(plan, stage, "SUFFIX", !aft->causal && !average);
    clattn__stage_define(plan, stage, "AHEAD", !aft->causal);
    clattn__stage_define(plan, stage, "TRACES", has_traces(aft));
    return stage;
}

/* Softmax states; one_average: the average alone, in the first of a sequence's `before`. */
static clattn__aft_scans add_scans(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d) {
    const int64_t count = aft->batch * d->blocks * 3 * d->pitch;
    const clattn__aft_scans far = {.before = clattn__plan_scratch(plan, count),
                                   .after = clattn__plan_scratch(plan, count)};
    clattn__stage *stage = start_scan(plan, aft, d, "aft_states");
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__stage_operand(plan, stage, far.after);
    clattn__aft_extents(plan, stage, aft, d);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
    stage = start_scan(plan, aft, d, "aft_prefix");
    clattn__stage_operand(plan, stage, far.after);
    clattn__stage_operand(plan, stage, far.before);
    clattn__stage_long(plan, stage, d->blocks);
    clattn__stage_int(plan, stage, (int32_t)d->count);
    clattn__stage_long(plan, stage, d->pitch);
    clattn__aft_range(stage, d, 1, aft->batch);
    return far;
}

static void add_average(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                        const clattn__aft_scans *far) {
    const bool simple = aft->mode == CLATTN_AFT_SIMPLE;
    clattn__stage *stage = start_scan(plan, aft, d, "aft_average");
    clattn__aft_view_args(plan, stage, &aft->q);
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__aft_view_args(plan, stage, &aft->y);
    clattn__stage_operand(plan, stage, far->before);
    clattn__stage_operand(plan, stage, aft->causal ? clattn__none() : far->after);
    clattn__stage_operand(plan, stage, aft->bias);
    clattn__stage_long(plan, stage, aft->bias_head);
    clattn__aft_extents(plan, stage, aft, d);
    /* simple: no band, the query itself belongs to the left */
    clattn__stage_long(plan, stage, simple ? -1 : aft->reach);
    clattn__stage_long(plan, stage, aft->causal ? 0 : aft->reach);
    trace_args(plan, stage, aft);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
}

static void add_scan(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft) {
    const clattn__aft_division d = divide(aft, target, 2, 32);
    const clattn__aft_scans far = add_scans(plan, aft, &d);
    if (one_average(aft))
        add_gate(plan, aft, &d, far.before, d.blocks * 3 * d.pitch);
    else
        add_average(plan, aft, &d, &far);
}

/* ---- full, local ---- */

/* BM rows and CV vectors are one work-group's accumulators; the more vectors, the fewer times the exponentials of a
 * block are made, and the fewer work-groups. A band's blocks of keys are small: few more than it touches. */
typedef struct full_tile {
    int tm, bm, bn, cv;
} full_tile;

static full_tile tile_of(const clattn__target *target, const clattn__aft_division *d, bool local) {
    enum { FEW_UNITS = 16 };
    const int tm = target->attention.tm, most = target->caps.compute_units > FEW_UNITS ? 16 : 64;
    if (d->wg > 1)
        return (full_tile){8, 8, 64, 1};
    return (full_tile){tm, 8 * tm, local ? 32 : 256, d->count < most ? (int)d->count : most};
}

static clattn__stage *start_full(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                 const full_tile *t, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(plan, aft, d, "aft_full", kernel);
    clattn__stage_define(plan, stage, "CAUSAL", aft->causal);
    clattn__stage_define(plan, stage, "FACTORS", aft->rank > 0);
    clattn__stage_define(plan, stage, "BAND", aft->mode == CLATTN_AFT_LOCAL);
    clattn__stage_define(plan, stage, "TRACES", has_traces(aft));
    clattn__stage_define(plan, stage, "TM", t->tm);
    clattn__stage_define(plan, stage, "TNV", 2);
    clattn__stage_define(plan, stage, "PW", 2 * d->vw);
    clattn__stage_define(plan, stage, "BM", t->bm);
    clattn__stage_define(plan, stage, "BN", t->bn);
    clattn__stage_define(plan, stage, "CV", t->cv);
    return stage;
}

static void add_pack(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d, const full_tile *t,
                     clattn__operand panels, clattn__operand tops) {
    clattn__stage *stage = start_full(plan, aft, d, t, "aft_pack");
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__stage_operand(plan, stage, panels);
    clattn__stage_operand(plan, stage, tops);
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_int(plan, stage, (int32_t)d->width);
    clattn__stage_int(plan, stage, (int32_t)d->strips);
    clattn__stage_int(plan, stage, (int32_t)d->count);
    clattn__aft_range(stage, d, d->blocks, aft->batch);
}

static void add_full(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft) {
    const bool local = aft->mode == CLATTN_AFT_LOCAL;
    clattn__aft_division d = divide(aft, target, 1, 1);
    const full_tile t = tile_of(target, &d, local);
    d.tb = t.bn;
    d.blocks = clattn__ceil_div(aft->length, t.bn);
    const clattn__operand panels = clattn__plan_scratch(plan, aft->batch * d.blocks * t.bn * 2 * d.pitch);
    const clattn__operand tops = clattn__plan_scratch(plan, aft->batch * d.blocks * d.pitch);
    const clattn__aft_scans far = local ? add_scans(plan, aft, &d) : (clattn__aft_scans){clattn__none(), clattn__none()};
    add_pack(plan, aft, &d, &t, panels, tops);
    clattn__stage *stage = start_full(plan, aft, &d, &t, "aft_full");
    clattn__aft_view_args(plan, stage, &aft->q);
    clattn__aft_view_args(plan, stage, &aft->k);
    clattn__aft_view_args(plan, stage, &aft->v);
    clattn__aft_view_args(plan, stage, &aft->y);
    clattn__stage_operand(plan, stage, panels);
    clattn__stage_operand(plan, stage, tops);
    clattn__aft_bias_args(plan, stage, aft);
    clattn__stage_operand(plan, stage, far.before);
    clattn__stage_operand(plan, stage, far.after);
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_int(plan, stage, (int32_t)d.width);
    clattn__stage_int(plan, stage, (int32_t)d.strips);
    clattn__stage_int(plan, stage, (int32_t)d.count);
    clattn__stage_long(plan, stage, d.blocks);
    trace_args(plan, stage, aft);
    clattn__stage_operand(plan, stage, has_traces(aft) ? clattn__aft_peaks(aft) : clattn__none());
    clattn__stage_range(stage, clattn__ceil_div(d.count, (int64_t)d.wg * t.cv), clattn__ceil_div(aft->length, t.bm),
                        aft->batch, d.wg);
    stage->local_bytes = d.wg > 1 ? (size_t)t.bm * (size_t)(t.bn + 2) * sizeof(float) : 0;
}

void clattn__aft_core(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft) {
    if (aft->batch == 0 || aft->length == 0 || aft->heads == 0 || aft->head_size == 0)
        return;
    switch (aft->mode) {
    case CLATTN_AFT_GATED:
        add_gated(plan, target, aft);
        break;
    case CLATTN_AFT_GATED_MATRIX:
        add_matrix(plan, target, aft);
        break;
    case CLATTN_AFT_FULL:
    case CLATTN_AFT_LOCAL:
        add_full(plan, target, aft);
        break;
    default:
        add_scan(plan, target, aft);
        break;
    }
}
