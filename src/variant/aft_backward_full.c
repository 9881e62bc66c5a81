/* aft, backwards, modes full and local: dK, dV and the gradients of w or its factors, cl/aft_backward_full.cl and
 * cl/aft_backward_full_bias.cl. */
#include "variant/aft_backward_stages.h"

/* Tiles of BM rows, blocks of d.tb = BN; packed queries, and what they are packed with. */
typedef struct full {
    const clattn__aft_pass *p;
    clattn__aft_division d;
    int tm, bm, cv, kv;
    clattn__operand panels, least, columns, tops;
} full;

static bool wanted(const clattn__aft_table *to) { return clattn__given(to->at); }

static bool is_local(const clattn__aft_pass *p) { return p->aft->mode == CLATTN_AFT_LOCAL; }

/* A band's blocks of queries are small: few more than it touches. */
static full make(const clattn__aft_pass *p) {
    enum { FEW_UNITS = 16, DEPTH = 256 };
    const clattn__target *target = p->target;
    clattn__aft_division d = clattn__aft_pass_divide(p, 1, 1);
    full f = {.p = p, .tm = 8, .bm = 8, .cv = 1, .kv = d.wg, .columns = clattn__none(), .tops = clattn__none()};
    if (d.wg == 1) {
        const int most = target->caps.compute_units > FEW_UNITS ? 16 : 64;
        f.tm = target->attention.tm;
        f.bm = 8 * f.tm;
        f.cv = d.count > most ? most : d.count > 0 ? (int)d.count : 1;
        f.kv = DEPTH / (2 * d.vw);
    }
    d.tb = d.wg > 1 ? 64 : is_local(p) ? 2 * f.bm : 4 * f.bm;
    d.blocks = clattn__ceil_div(p->aft->length, d.tb);
    f.d = d;
    f.panels = clattn__plan_scratch(p->plan, p->aft->batch * d.blocks * d.tb * 2 * d.pitch);
    f.least = clattn__plan_scratch(p->plan, p->aft->batch * d.blocks * 2 * d.pitch);
    return f;
}

static clattn__stage *start(const full *f, const char *file, const char *kernel) {
    clattn__plan *plan = f->p->plan;
    clattn__stage *stage = clattn__aft_start(plan, f->p->aft, &f->d, file, kernel);
    clattn__stage_define(plan, stage, "CAUSAL", f->p->aft->causal);
    clattn__stage_define(plan, stage, "FACTORS", f->p->aft->rank > 0);
    clattn__stage_define(plan, stage, "BAND", is_local(f->p));
    clattn__stage_define(plan, stage, "TM", f->tm);
    clattn__stage_define(plan, stage, "TNV", 2);
    clattn__stage_define(plan, stage, "PW", 2 * f->d.vw);
    clattn__stage_define(plan, stage, "BM", f->bm);
    clattn__stage_define(plan, stage, "BN", f->d.tb);
    clattn__stage_define(plan, stage, "CV", f->cv);
    return stage;
}

/* PACKED_PARAMETERS of aft_backward_full.h. */
static void packed_args(const full *f, clattn__stage *stage) {
    clattn__stage_operand(f->p->plan, stage, f->panels);
    clattn__stage_operand(f->p->plan, stage, f->least);
    clattn__stage_operand(f->p->plan, stage, clattn__aft_peaks(f->p->aft));
}

/* lengths, n, width, strips, vectors. */
static void extents(const full *f, clattn__stage *stage) {
    clattn__stage_operand(f->p->plan, stage, f->p->aft->lengths);
    clattn__stage_long(f->p->plan, stage, f->p->aft->length);
    clattn__stage_int(f->p->plan, stage, (int32_t)f->d.width);
    clattn__stage_int(f->p->plan, stage, (int32_t)f->d.strips);
    clattn__stage_int(f->p->plan, stage, (int32_t)f->d.count);
}

static void add_queries(const full *f) {
    clattn__stage *stage = start(f, "aft_backward_full", "aft_backward_queries");
    clattn__aft_pass_queries(f->p, stage);
    clattn__stage_operand(f->p->plan, stage, clattn__aft_peaks(f->p->aft));
    clattn__stage_operand(f->p->plan, stage, f->panels);
    clattn__stage_operand(f->p->plan, stage, f->least);
    extents(f, stage);
    clattn__aft_range(stage, &f->d, f->d.blocks, f->p->aft->batch);
}

static void add_keys(const full *f) {
    const clattn__aft *aft = f->p->aft;
    const clattn__aft_scans far =
        is_local(f->p) ? clattn__aft_backward_scans(f->p, &f->d) : (clattn__aft_scans){clattn__none(), clattn__none()};
    clattn__stage *stage = start(f, "aft_backward_full", "aft_backward_full");
    clattn__aft_view_args(f->p->plan, stage, &aft->k);
    clattn__aft_view_args(f->p->plan, stage, &aft->v);
    clattn__aft_view_args(f->p->plan, stage, &f->p->grad->k);
    clattn__aft_view_args(f->p->plan, stage, &f->p->grad->v);
    clattn__aft_pass_queries(f->p, stage);
    packed_args(f, stage);
    clattn__aft_bias_args(f->p->plan, stage, f->p->aft);
    clattn__stage_operand(f->p->plan, stage, far.before);
    clattn__stage_operand(f->p->plan, stage, far.after);
    extents(f, stage);
    clattn__stage_long(f->p->plan, stage, f->d.blocks);
    clattn__stage_range(stage, clattn__ceil_div(f->d.count, (int64_t)f->d.wg * f->cv),
                        clattn__ceil_div(aft->length, f->bm), aft->batch, f->d.wg);
    stage->local_bytes = f->d.wg > 1 ? (size_t)f->bm * (size_t)f->d.tb * sizeof(float) : 0;
}

static clattn__stage *start_bias(const full *f, const char *kernel, bool own) {
    clattn__stage *stage = start(f, "aft_backward_full_bias", kernel);
    clattn__stage_define(f->p->plan, stage, "KV", f->kv);
    clattn__stage_define(f->p->plan, stage, "OWN", own);
    clattn__stage_define(f->p->plan, stage, "TYPE_G", f->p->grad->type);
    return stage;
}

static void add_columns(full *f) {
    const clattn__aft *aft = f->p->aft;
    const int64_t blocks = aft->batch * f->d.blocks;
    f->columns = clattn__plan_scratch(f->p->plan, blocks * f->d.tb * 2 * f->d.pitch);
    f->tops = clattn__plan_scratch(f->p->plan, blocks * f->d.pitch);
    clattn__stage *stage = start_bias(f, "aft_backward_columns", false);
    clattn__aft_view_args(f->p->plan, stage, &aft->k);
    clattn__aft_view_args(f->p->plan, stage, &aft->v);
    clattn__stage_operand(f->p->plan, stage, f->columns);
    clattn__stage_operand(f->p->plan, stage, f->tops);
    extents(f, stage);
    clattn__aft_range(stage, &f->d, f->d.blocks, aft->batch);
}

/* CORE_PARAMETERS. */
static void core(const full *f, clattn__stage *stage) {
    clattn__aft_view_args(f->p->plan, stage, &f->p->aft->k);
    clattn__aft_view_args(f->p->plan, stage, &f->p->aft->v);
    clattn__aft_pass_queries(f->p, stage);
    packed_args(f, stage);
    clattn__stage_operand(f->p->plan, stage, f->columns);
    clattn__stage_operand(f->p->plan, stage, f->tops);
    clattn__aft_bias_args(f->p->plan, stage, f->p->aft);
    extents(f, stage);
    clattn__stage_long(f->p->plan, stage, f->d.blocks);
    clattn__stage_int(f->p->plan, stage, (int32_t)f->p->aft->batch);
}

static void table_args(const full *f, clattn__stage *stage, const clattn__aft_table *to) {
    clattn__stage_operand(f->p->plan, stage, to->at);
    clattn__stage_long(f->p->plan, stage, to->row);
    clattn__stage_long(f->p->plan, stage, to->rows);
    clattn__stage_int(f->p->plan, stage, f->p->grad->accumulate);
}

static size_t staged_bytes(const full *f) {
    return f->d.wg > 1 ? (size_t)(f->bm * f->kv * 2 * f->d.vw) * sizeof(float) : 0;
}

static void add_weights(const full *f, const clattn__aft_table *to) {
    if (!wanted(to))
        return;
    clattn__stage *stage = start_bias(f, "aft_backward_weights", false);
    core(f, stage);
    table_args(f, stage, to);
    clattn__stage_range(stage, clattn__ceil_div(to->rows, f->d.tb), clattn__ceil_div(to->rows, f->bm), 1, f->d.wg);
    stage->local_bytes = staged_bytes(f);
}

/* own: the right factor, whose rows are keys'. */
static void add_factor(const full *f, const clattn__aft_table *to, bool own) {
    if (!wanted(to))
        return;
    const clattn__aft_gradients *grad = f->p->grad;
    const int64_t count = own ? f->d.tb : f->bm, groups = clattn__ceil_div(to->rows, count);
    const uint64_t mark = f->p->plan->workspace_used;
    clattn__stage *stage = start_bias(f, "aft_backward_factors", own);
    core(f, stage);
    clattn__stage_operand(f->p->plan, stage, grad->left_rows.at);
    clattn__stage_long(f->p->plan, stage, grad->left_rows.row);
    clattn__stage_operand(f->p->plan, stage, grad->right_columns.at);
    clattn__stage_long(f->p->plan, stage, grad->right_columns.row);
    clattn__stage_long(f->p->plan, stage, grad->rank);
    clattn__stage_operand(f->p->plan, stage, clattn__plan_scratch(f->p->plan, groups * count * grad->rank));
    table_args(f, stage, to);
    clattn__stage_range(stage, groups, 1, 1, f->d.wg);
    stage->local_bytes = staged_bytes(f) + (f->d.wg > 1 ? (size_t)(f->bm * f->d.tb) * sizeof(float) : 0);
    clattn__plan_release(f->p->plan, mark);
}

void clattn__aft_backward_full(const clattn__aft_pass *p) {
    const clattn__aft_gradients *grad = p->grad;
    const uint64_t mark = p->plan->workspace_used;
    full f = make(p);
    add_queries(&f);
    add_keys(&f);
    if (wanted(&grad->w) || wanted(&grad->left) || wanted(&grad->right)) {
        add_columns(&f);
        add_weights(&f, &grad->w);
        add_factor(&f, &grad->left, false);
        add_factor(&f, &grad->right, true);
    }
    clattn__plan_release(p->plan, mark);
}
