/* aft, backwards, mode gated-matrix: cl/aft_backward_matrix.cl. */
#include "variant/aft_gram.h"

/* One of the three products. left, right: what M sums, over the tokens of `of`; by: what it multiplies, and where the
 * result goes, over those of `over`; side: g, k or nothing. */
typedef struct product {
    int kind;
    clattn_type type; /* of left and right */
    const clattn__aft *of, *over;
    clattn__aft_view left, right, by, side, to;
    clattn__operand parts;
} product;

static clattn__aft_division divide(const clattn__aft_pass *p, const clattn__aft *aft) {
    return clattn__aft_divide(aft, p->target, p->by_head, 2, 256);
}

static clattn__stage *start(const clattn__aft_pass *p, const clattn__aft *aft, const clattn__aft_division *d,
                            const char *file, const char *kernel) {
    clattn__stage *stage = clattn__aft_start(p->plan, aft, d, file, kernel);
    clattn__stage_define(p->plan, stage, "CAUSAL", aft->causal);
    clattn__stage_define(p->plan, stage, "POSITION", clattn__given(aft->position));
    clattn__stage_define(p->plan, stage, "DH", aft->head_size);
    return stage;
}

/* lengths, n, strips, strip count, pitch. */
static void extents(const clattn__aft_pass *p, clattn__stage *stage, const clattn__aft *aft,
                    const clattn__aft_division *d) {
    clattn__stage_operand(p->plan, stage, aft->lengths);
    clattn__stage_long(p->plan, stage, aft->length);
    clattn__stage_int(p->plan, stage, (int32_t)d->strips);
    clattn__stage_int(p->plan, stage, (int32_t)d->count);
    clattn__stage_long(p->plan, stage, d->pitch);
}

/* M of each block, by the forward pass's kernel; then prefixes, suffixes or the total. */
static void add_sums(const clattn__aft_pass *p, const product *m, clattn__operand states) {
    const clattn__aft_division d = divide(p, m->of);
    clattn__aft typed = *m->of;
    typed.x_type = m->type;
    clattn__stage *stage = start(p, &typed, &d, "aft_matrix", "aft_outer");
    clattn__aft_view_args(p->plan, stage, &m->left);
    clattn__aft_view_args(p->plan, stage, &m->right);
    clattn__stage_operand(p->plan, stage, states);
    extents(p, stage, m->of, &d);
    clattn__aft_range(stage, &d, d.blocks, p->aft->batch);
    if (m->kind == 0)
        clattn__aft_total_rows(p->plan, p->aft, &d, states, p->aft->head_size);
    else
        clattn__aft_backward_later(p, &d, states, p->aft->head_size);
}

static void add_product(const clattn__aft_pass *p, const product *m, clattn__operand states) {
    const clattn__aft_division d = divide(p, m->over);
    clattn__stage *stage = start(p, m->over, &d, "aft_backward_matrix", "aft_backward_matrix");
    clattn__stage_define(p->plan, stage, "KIND", m->kind);
    clattn__aft_view_args(p->plan, stage, &m->left);
    clattn__aft_view_args(p->plan, stage, &m->right);
    clattn__aft_view_args(p->plan, stage, &m->by);
    clattn__aft_view_args(p->plan, stage, &m->side);
    clattn__aft_view_args(p->plan, stage, &m->to);
    clattn__stage_operand(p->plan, stage, states);
    clattn__stage_operand(p->plan, stage, m->parts);
    clattn__stage_operand(p->plan, stage, p->aft->position);
    extents(p, stage, m->over, &d);
    clattn__stage_long(p->plan, stage, divide(p, m->of).blocks * p->aft->head_size * d.pitch);
    clattn__aft_range(stage, &d, d.blocks, p->aft->batch);
}

static clattn__operand reserve(const clattn__aft_pass *p, const clattn__aft *aft) {
    const clattn__aft_division d = divide(p, aft);
    return clattn__plan_scratch(p->plan, aft->batch * d.blocks * aft->head_size * d.pitch);
}

static clattn__aft_view dy_of(const clattn__aft_pass *p) {
    clattn__aft_view dy = p->terms;
    dy.at.offset += p->second;
    return dy;
}

static const clattn__aft_view nothing = {{CLATTN__SLOT_NONE, 0}, 0, 0, 0};

void clattn__aft_backward_matrix(const clattn__aft_pass *p) {
    const clattn__aft_division d = divide(p, p->aft);
    const clattn__aft *aft = p->aft;
    const clattn__operand states = reserve(p, aft), parts = clattn__aft_backward_parts(p, &d);
    const clattn__aft_view gate = p->terms, dy = dy_of(p);
    const product products[] = {
        {0, aft->x_type, aft, aft, aft->v, aft->k, dy, gate, p->grad->q, clattn__none()},
        {1, CLATTN_F32, aft, aft, gate, dy, aft->k, nothing, p->grad->v, clattn__none()},
        {2, CLATTN_F32, aft, aft, dy, gate, aft->v, aft->k, p->grad->k, parts}};
    for (int i = 0; i < 3; i++) {
        add_sums(p, &products[i], states);
        add_product(p, &products[i], states);
    }
    clattn__aft_backward_position(p, &d, parts);
}

/* The same sums, of the rows of G instead of keys and values: those that multiply them are the same for all sequences. */
void clattn__aft_gram_matrix_backward(const clattn__aft_pass *p, const clattn__aft_kept *kept, clattn__operand key,
                                      clattn__operand value, clattn__operand scaled) {
    const clattn__aft *aft = p->aft, rows = clattn__aft_gram_rows(aft, kept->weights, kept->values);
    const clattn__aft_division d = divide(p, &rows);
    const clattn__operand first = reserve(p, &rows), states = reserve(p, aft);
    const clattn__operand parts = clattn__aft_backward_parts(p, &d);
    const clattn__aft_view gate = p->terms, dy = dy_of(p), keys = {kept->keys, rows.v.batch, rows.v.row, rows.v.head};
    clattn__aft_view to_key = keys, to_value = keys, to_scaled = keys;
    to_key.at = key;
    to_value.at = value;
    to_scaled.at = scaled;
    const product query = {0, CLATTN_F32, &rows, aft, rows.v, rows.k, dy, gate, p->grad->q, clattn__none()};
    const product of_value = {1, CLATTN_F32, aft, &rows, gate, dy, keys, nothing, to_value, clattn__none()};
    const product of_x = {1, CLATTN_F32, aft, &rows, gate, dy, rows.k, nothing, to_scaled, clattn__none()};
    const product of_key = {2, CLATTN_F32, aft, &rows, dy, gate, rows.v, rows.k, to_key, parts};
    clattn__aft_backward_terms(p);
    add_sums(p, &query, first);
    add_product(p, &query, first);
    add_sums(p, &of_value, states);
    add_product(p, &of_value, states);
    add_product(p, &of_x, states);
    add_sums(p, &of_key, states);
    add_product(p, &of_key, states);
    clattn__aft_backward_position(p, &d, parts);
}
