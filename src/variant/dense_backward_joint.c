/* dense, backwards: all gradients in one pass over the pairs, on devices whose work-groups are one work-item. */
#include "core/tile.h"
#include "variant/dense_backward.h"

enum { BLOCK = 384 << 10 }; /* bytes of a block's operands, sums and pairs that a core's own caches hold */

static int64_t block_bytes(const clattn__tile *tile, const clattn__sizes *s) {
    return (int64_t)sizeof(float) * 2 * tile->bm * (s->head_size + s->value_size + tile->bn);
}

/* Blocks of keys: 8 micro-tiles high, or up to 32 where a work-item has a whole head, since each block reads all
 * queries. Blocks of queries: about 6 panels, and whole micro-tiles both ways. */
static clattn__tile tile_of(const clattn__target *target, const clattn__sizes *s) {
    clattn__tile tile = target->attention;
    const int both = clattn__tile_both_ways(&tile);
    tile.bn = (int)clattn__ceil_div(6 * (int64_t)tile.pw, both) * both;
    tile.bm = 32 * tile.tm;
    while (tile.bm > 8 * tile.tm &&
           (clattn__joint_wanted(target, s->batch * s->kv_heads) > 1 || block_bytes(&tile, s) > BLOCK))
        tile.bm /= 2;
    return tile;
}

/* Parts of dQ: as many as are wanted, and a block of keys for each. */
static int64_t shares_of(const clattn__target *target, const clattn__sizes *s) {
    return clattn__joint_shares(target, s->batch * s->kv_heads, clattn__ceil_div(s->keys, tile_of(target, s).bm));
}

const char *clattn__dense_joint_reject(const clattn__dense *d, const clattn__target *target, char *text, size_t size) {
    const clattn__sizes *s = &d->sizes;
    const int64_t heads = s->batch * s->kv_heads, heads_per_kv = s->kv_heads > 0 ? s->heads / s->kv_heads : 0;
    const int64_t floats = heads_per_kv * s->queries * clattn__padded_row(target, s->head_size);
    clattn__text reason = {text, size, 0};
    return clattn__joint_reject(target, heads, shares_of(target, s), floats, "keys", &reason) ? text : NULL;
}

static void defines(clattn__plan *plan, clattn__stage *stage, const clattn__target *target, const clattn__dense *d,
                    clattn_type grad_type) {
    const clattn__tile tile = tile_of(target, &d->sizes);
    clattn__tile_defines(plan, stage, &tile);
    clattn__stage_define(plan, stage, "D", d->sizes.head_size);
    clattn__stage_define(plan, stage, "DV", d->sizes.value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", d->q.type);
    clattn__stage_define(plan, stage, "TYPE_O", grad_type);
    clattn__dense_bias_defines(plan, stage, d);
}

static void sum(clattn__plan *plan, const clattn__target *target, const clattn__dense *d, const clattn__view *grad_q,
                clattn__operand parts, int64_t shares) {
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_backward_joint", "dense_backward_sum");
    defines(plan, stage, target, d, grad_q->type);
    clattn__stage_operand(plan, stage, parts);
    clattn__stage_operand(plan, stage, grad_q->at);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)shares);
    clattn__stage_float(plan, stage, d->scale);
    clattn__stage_strides(plan, stage, grad_q);
    clattn__stage_range(stage, clattn__ceil_div(d->sizes.queries, clattn__panel_width(target)), d->sizes.heads,
                        d->sizes.batch, 1);
}

void clattn__dense_joint_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                                const clattn__core_gradients *g, clattn__operand terms) {
    const clattn__sizes *s = &d->sizes;
    const int64_t shares = shares_of(target, s);
    const clattn__stream q = {&d->q, s->batch, s->heads, s->queries, s->head_size, d->scale * CLATTN__LOG2E};
    const clattn__stream o = {&g->o, s->batch, s->heads, s->queries, s->value_size, 1};
    const clattn__stream k = {&d->k, s->batch, s->kv_heads, s->keys, s->head_size, 1};
    const clattn__operand q_panels = clattn__stream_panels(plan, target, &q);
    const clattn__operand o_panels = clattn__stream_panels(plan, target, &o);
    const clattn__operand q_columns = clattn__stream_columns(plan, target, &q);
    const clattn__operand o_columns = clattn__stream_columns(plan, target, &o);
    const clattn__operand k_columns = clattn__stream_columns(plan, target, &k);
    const clattn__operand parts = clattn__plan_scratch(plan, shares * s->batch * s->heads * s->queries *
                                                                 clattn__padded_row(target, s->head_size));
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_backward_joint", "dense_backward_joint");
    defines(plan, stage, target, d, g->k.type);
    const clattn__operand list[] = {d->k.at,   d->v.at,   k_columns, q_panels, o_panels,
                                    q_columns, o_columns, parts,     g->k.at,  g->v.at};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__dense_mask(plan, stage, d, terms);
    clattn__stage_strides(plan, stage, &d->k);
    clattn__stage_strides(plan, stage, &d->v);
    clattn__stage_strides(plan, stage, &g->k);
    clattn__stage_strides(plan, stage, &g->v);
    clattn__stage_range(stage, shares, s->kv_heads, s->batch, 1);
    sum(plan, target, d, &g->q, parts, shares);
}
