/* aft, backwards, mode gated-matrix: cl/aft_backward_matrix.cl. */
#include "variant/aft_backward_stages.h"

/* One of the three products. left, right: what M sums; by: what it multiplies; side: g, k or nothing. */
typedef struct product {
    int kind;
    clattn_type type; /* of left and right */
    clattn__aft_view left, right, by, side, to;
    clattn__operand parts;
} product;

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft *aft, const clattn__aft_division *d,
                            const char *file, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(p->plan, aft, d, file, kernel);
    clattn__stage_define(p->plan, stage, "CAUSAL", aft->causal);
    clattn__stage_define(p->plan, stage, "POSITION", clattn__given(aft->position));
    clattn__stage_define(p->plan, stage, "DH", aft->head_size);
    return stage;
}

/* lengths, n, strips, strip count, pitch. */
static void extents(const clattn__aft_pass *p, clattn__stage *stage, const clattn__aft_division *d) {
    clattn__stage_operand(p->plan, stage, p->aft->lengths);
    clattn__stage_long(p->plan, stage, p->aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d->strips);
    clattn__stage_int(p->plan, stage, (int32_t)d->count);
    clattn__stage_long(p->plan, stage, d->pitch);
}

/* M of each block, by the forward pass's kernel. */
static void add_outer(const clattn__aft_pass *p, const clattn__aft_division *d, const product *m,
                      clattn__operand states) {
    clattn__aft typed = *p->aft;
    typed.x_type = m->type;
    clattn__stage *stage = start(p, &typed, d, "aft_matrix", "aft_outer");
    clattn__aft_view_args(p->plan, stage, &m->left);
    clattn__aft_view_args(p->plan, stage, &m->right);
    clattn__stage_operand(p->plan, stage, states);
    extents(p, stage, d);
    clattn__aft_range(stage, d, d->blocks, p->aft->batch);
}

static void add_product(const clattn__aft_pass *p, const clattn__aft_division *d, const product *m,
                        clattn__operand states) {
    add_outer(p, d, m, states);
    if (m->kind == 0)
        clattn__aft_total_rows(p->plan, p->aft, d, states, p->aft->head_size);
    else
        clattn__aft_backward_later(p, d, states, p->aft->head_size);
    clattn__stage *stage = start(p, p->aft, d, "aft_backward_matrix", "aft_backward_matrix");
    clattn__stage_define(p->plan, stage, "KIND", m->kind);
    clattn__aft_view_args(p->plan, stage, &m->left);
    clattn__aft_view_args(p->plan, stage, &m->right);
    clattn__aft_view_args(p->plan, stage, &m->by);
    clattn__aft_view_args(p->plan, stage, &m->side);
    clattn__aft_view_args(p->plan, stage, &m->to);
    clattn__stage_operand(p->plan, stage, states);
    clattn__stage_operand(p->plan, stage, m->parts);
    clattn__stage_operand(p->plan, stage, p->aft->position);
    extents(p, stage, d);
    clattn__aft_range(stage, d, d->blocks, p->aft->batch);
}

void clattn__aft_backward_matrix(const clattn__aft_pass *p) {
    const clattn__aft_division d = clattn__aft_pass_divide(p, 2, 256);
    const clattn__aft *aft = p->aft;
    const clattn__operand states = clattn__plan_scratch(p->plan, aft->batch * d.blocks * aft->head_size * d.pitch);
    const clattn__operand parts = clattn__aft_backward_parts(p, &d);
    const clattn__aft_view gate = p->terms, nothing = {clattn__none(), 0, 0, 0};
    clattn__aft_view dy = p->terms;
    dy.at.offset += p->second;
    const product products[] = {{0, aft->x_type, aft->v, aft->k, dy, gate, p->grad->q, clattn__none()},
                                {1, CLATTN_F32, gate, dy, aft->k, nothing, p->grad->v, clattn__none()},
                                {2, CLATTN_F32, dy, gate, aft->v, aft->k, p->grad->k, parts}};
    for (int i = 0; i < 3; i++)
        add_product(p, &d, &products[i], states);
    clattn__aft_backward_position(p, &d, parts);
}
