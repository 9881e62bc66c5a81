/* aft: gated modes by one symmetric product, cl/aft_gram.cl and aft_gram_channels.cl. */
#include "variant/aft_gram.h"

#include "core/tile.h"

enum { TOKENS = 128, LEAST_PART = 256 };

bool clattn__aft_gram_possible(const clattn__target *target) { return target->attention.wg == 1; }

clattn__aft_division clattn__aft_gram_divide(const clattn__aft *aft, const clattn__target *target) {
    return clattn__aft_divide(aft, target, false, 4, 64);
}

clattn__aft clattn__aft_gram_rows(const clattn__aft *aft, clattn__operand weights, clattn__operand values) {
    const int64_t d = aft->heads * aft->head_size;
    clattn__aft rows = *aft;
    rows.length = d + 1;
    rows.lengths = clattn__none();
    rows.k = (clattn__aft_view){weights, 0, d, aft->head_size};
    rows.v = (clattn__aft_view){values, (d + 1) * d, d, aft->head_size};
    return rows;
}

/* ---- G ---- */

/* Micro-tiles whose columns are whole rows of tiles, so that blocks on the diagonal are square.
 * Four work-items a compute unit: parts of the tokens first, then panels of each part. */
typedef struct share {
    int tm, tnv;
    int64_t tn, panels, parts, part_tokens, groups;
} share;

static share divide(const clattn__target *target, const clattn__aft *aft) {
    const bool wide = target->attention.vw == 16;
    const int64_t size = aft->heads * aft->head_size + 1;
    const int64_t wanted = clattn__ceil_div(4 * (int64_t)target->caps.compute_units, aft->batch);
    const int64_t most = clattn__ceil_div(aft->length, LEAST_PART);
    const int64_t parts = wanted < most ? wanted : most;
    share s = {.tm = wide ? 8 : 4, .tnv = wide ? 2 : 3};
    s.tn = (int64_t)s.tnv * target->attention.vw;
    s.panels = clattn__ceil_div(size, s.tn);
    s.part_tokens = clattn__ceil_div(clattn__ceil_div(aft->length, parts), TOKENS) * TOKENS;
    s.parts = clattn__ceil_div(aft->length, s.part_tokens);
    s.groups = clattn__ceil_div(wanted, s.parts);
    s.groups = s.groups < s.panels ? s.groups : s.panels;
    return s;
}

static clattn__stage *start(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft, const share *s,
                            clattn_type x_type, const char *kernel) {
    clattn__stage *stage = clattn__plan_kernel(plan, "aft_gram", kernel);
    clattn__stage_define(plan, stage, "WG", 1);
    clattn__stage_define(plan, stage, "VW", target->attention.vw);
    clattn__stage_define(plan, stage, "TM", s->tm);
    clattn__stage_define(plan, stage, "TNV", s->tnv);
    clattn__stage_define(plan, stage, "PW", s->tn);
    clattn__stage_define(plan, stage, "BN", TOKENS);
    clattn__stage_define(plan, stage, "TYPE_X", x_type);
    clattn__stage_define(plan, stage, "LENGTHS", clattn__given(aft->lengths));
    return stage;
}

void clattn__aft_gram(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft, clattn__operand x,
                      clattn_type x_type, clattn__operand to) {
    const share s = divide(target, aft);
    const int64_t d = aft->heads * aft->head_size, columns = s.panels * s.tn;
    const uint64_t mark = plan->workspace_used;
    const clattn__operand packed = clattn__plan_scratch(plan, aft->batch * s.parts * s.groups * columns * TOKENS);
    const clattn__operand sums =
        clattn__plan_scratch(plan, aft->batch * s.parts * s.panels * (s.panels + 1) / 2 * s.tn * s.tn);

    clattn__stage *stage = start(plan, target, aft, &s, x_type, "aft_gram");
    clattn__stage_operand(plan, stage, x);
    clattn__stage_long(plan, stage, aft->length * d);
    clattn__stage_long(plan, stage, d);
    clattn__stage_operand(plan, stage, packed);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, aft->lengths);
    clattn__stage_long(plan, stage, aft->length);
    clattn__stage_long(plan, stage, d);
    clattn__stage_long(plan, stage, columns);
    clattn__stage_long(plan, stage, s.part_tokens);
    clattn__stage_range(stage, s.groups, s.parts, aft->batch, 1);

    stage = start(plan, target, aft, &s, x_type, "aft_gram_sum");
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, d + 1);
    clattn__stage_long(plan, stage, s.parts);
    clattn__stage_range(stage, s.panels, s.panels, aft->batch, 1);
    clattn__plan_release(plan, mark);
}

/* ---- channels ---- */

static clattn__stage *start_channels(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                     clattn_type x_type, clattn_type type, bool scale, const char *kernel) {
    clattn__aft typed = *aft;
    typed.x_type = x_type;
    clattn__stage *stage = clattn__aft_start(plan, &typed, d, "aft_gram_channels", kernel);
    clattn__stage_define(plan, stage, "POSITION", clattn__given(aft->position));
    clattn__stage_define(plan, stage, "SCALE", scale);
    clattn__stage_define(plan, stage, "TYPE_G", type);
    return stage;
}

static void channels(clattn__plan *plan, clattn__stage *stage, const clattn__aft_channels *c) {
    clattn__stage_operand(plan, stage, c->at);
    clattn__stage_long(plan, stage, c->batch);
}

/* Blocks of the rows of G. */
static int64_t blocks(const clattn__aft_division *d) { return clattn__ceil_div(d->width + 1, d->tb); }

void clattn__aft_form(clattn__plan *plan, const clattn__target *target, const clattn__aft *aft,
                      const clattn__aft_kept *kept) {
    const clattn__aft_division d = clattn__aft_gram_divide(aft, target);
    clattn__stage *stage = start_channels(plan, aft, &d, CLATTN_F32, CLATTN_F32, true, "aft_form");
    clattn__stage_operand(plan, stage, kept->weights);
    clattn__stage_operand(plan, stage, kept->values);
    channels(plan, stage, &kept->sums);
    clattn__stage_int(plan, stage, (int32_t)d.width);
    clattn__stage_int(plan, stage, (int32_t)d.strips);
    clattn__aft_range(stage, &d, 1, aft->batch);
}

/* ---- backward ---- */

void clattn__aft_gram_scale(const clattn__aft_pass *p, const clattn__aft_kept *kept, const clattn__aft_channels *later,
                            clattn__operand scaled) {
    clattn__aft_division d = clattn__aft_gram_divide(p->aft, p->target);
    const int64_t rows = blocks(&d);
    d.blocks = 1; /* parts: of all tokens */
    const clattn__operand parts = clattn__aft_backward_parts(p, &d);
    clattn__stage *stage =
        start_channels(p->plan, p->aft, &d, CLATTN_F32, p->grad->type, true, "aft_gram_scale");
    clattn__stage_operand(p->plan, stage, kept->weights);
    channels(p->plan, stage, later);
    clattn__stage_operand(p->plan, stage, kept->sums.at);
    clattn__stage_operand(p->plan, stage, scaled);
    clattn__stage_operand(p->plan, stage, parts);
    clattn__stage_operand(p->plan, stage, p->aft->position);
    clattn__stage_int(p->plan, stage, (int32_t)d.width);
    clattn__stage_int(p->plan, stage, (int32_t)d.strips);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->head_size);
    clattn__stage_long(p->plan, stage, d.pitch);
    clattn__aft_range(stage, &d, rows, p->aft->batch);
    clattn__aft_backward_position(p, &d, parts);
}

void clattn__aft_gram_weight(const clattn__aft_pass *p, clattn__operand products, const clattn__aft_channels *later,
                             clattn__operand dw, clattn__operand db) {
    const clattn__aft_division d = clattn__aft_gram_divide(p->aft, p->target);
    const clattn__aft_channels nothing = {clattn__none(), 0};
    clattn__stage *stage =
        start_channels(p->plan, p->aft, &d, CLATTN_F32, p->grad->type, later != NULL, "aft_gram_weight");
    clattn__stage_operand(p->plan, stage, products);
    channels(p->plan, stage, later ? later : &nothing);
    clattn__stage_operand(p->plan, stage, dw);
    clattn__stage_operand(p->plan, stage, db);
    clattn__stage_operand(p->plan, stage, p->aft->position);
    clattn__stage_int(p->plan, stage, (int32_t)d.width);
    clattn__stage_int(p->plan, stage, (int32_t)d.strips);
    clattn__stage_int(p->plan, stage, (int32_t)p->aft->head_size);
    clattn__stage_long(p->plan, stage, p->aft->batch);
    clattn__stage_int(p->plan, stage, p->grad->accumulate);
    clattn__aft_range(stage, &d, blocks(&d), 1);
}

void clattn__aft_gram_beside(const clattn__aft_pass *p, clattn__operand x, clattn_type x_type, clattn__operand to,
                             int64_t row) {
    const clattn__aft_division d = clattn__aft_gram_divide(p->aft, p->target);
    clattn__stage *stage = start_channels(p->plan, p->aft, &d, x_type, p->grad->type, true, "aft_gram_beside");
    clattn__stage_operand(p->plan, stage, x);
    clattn__stage_operand(p->plan, stage, to);
    clattn__stage_long(p->plan, stage, row);
    clattn__stage_operand(p->plan, stage, p->aft->lengths);
    clattn__stage_long(p->plan, stage, p->aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d.width);
    clattn__stage_int(p->plan, stage, (int32_t)d.strips);
    clattn__aft_range(stage, &d, d.blocks, p->aft->batch);
}

void clattn__aft_gram_mix(const clattn__aft_pass *p, clattn__operand wq, clattn__operand half, clattn__operand to,
                          int64_t to_batch) {
    const int64_t d = p->aft->heads * p->aft->head_size;
    clattn__stage *stage = clattn__plan_kernel(p->plan, "aft_gram_mix", "aft_gram_mix");
    clattn__tile_defines(p->plan, stage, &p->target->gemm);
    clattn__stage_define(p->plan, stage, "KEPT", p->target->engine == CLATTN_GEMM_CLBLAST);
    clattn__stage_operand(p->plan, stage, wq);
    clattn__stage_operand(p->plan, stage, half);
    clattn__stage_operand(p->plan, stage, to);
    clattn__stage_long(p->plan, stage, to_batch);
    clattn__stage_long(p->plan, stage, d);
    clattn__stage_range(stage, clattn__ceil_div(d, clattn__panel_width(p->target)), 1, p->aft->batch, 1);
}
