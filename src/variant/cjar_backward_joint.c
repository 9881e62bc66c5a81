/* cjar, backwards: all gradients in one pass over the pairs, on devices whose work-groups are one work-item. */
#include "core/tile.h"
#include "variant/cjar_backward.h"

enum { BLOCK = 640 << 10 }; /* bytes of a block's operands, sums and pairs */

static int64_t block_bytes(const clattn__tile *tile, const clattn__sizes *s) {
    return (int64_t)sizeof(float) * tile->bm * (3 * s->head_size + 2 * tile->bn);
}

/* Blocks of queries: up to 64 micro-tiles high, since the rows that a block's links name stay in cache from query to
 * query; 16 where a head is shared. Blocks of keys: about 6 panels, and whole micro-tiles both ways. */
static clattn__tile tile_of(const clattn__target *target, const clattn__sizes *s) {
    clattn__tile tile = target->attention;
    const int both = clattn__tile_both_ways(&tile);
    tile.bn = (int)clattn__ceil_div(6 * (int64_t)tile.pw, both) * both;
    tile.bm = 64 * tile.tm;
    while (tile.bm > 16 * tile.tm &&
           (clattn__joint_wanted(target, s->batch * s->heads) > 1 || block_bytes(&tile, s) > BLOCK))
        tile.bm /= 2;
    return tile;
}

static int64_t shares_of(const clattn__target *target, const clattn__sizes *s) {
    return clattn__joint_shares(target, s->batch * s->heads, clattn__ceil_div(s->queries, tile_of(target, s).bm));
}

const char *clattn__cjar_joint_reject(const clattn__cjar *c, const clattn__target *target, char *text, size_t size) {
    const clattn__sizes *s = &c->sizes;
    const int64_t floats = 2 * (s->keys + c->memory) * clattn__padded_row(target, s->head_size);
    clattn__text reason = {text, size, 0};
    if (c->masked == CLATTN_CJAR_MULTIPLY)
        clattn__text_add(&reason, "hidden keys take part");
    return reason.length > 0 ||
                   clattn__joint_reject(target, s->batch * s->heads, shares_of(target, s), floats, "queries", &reason)
               ? text
               : NULL;
}

static clattn__stage *kernel(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c, const char *name,
                             clattn_type grad_type) {
    const clattn__tile tile = tile_of(target, &c->sizes);
    clattn__stage *stage = clattn__plan_kernel(plan, "cjar_backward_joint", name);
    clattn__tile_defines(plan, stage, &tile);
    clattn__stage_define(plan, stage, "D", c->sizes.head_size);
    clattn__stage_define(plan, stage, "DV", c->sizes.value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", c->q.type);
    clattn__stage_define(plan, stage, "TYPE_O", grad_type);
    clattn__stage_define(plan, stage, "MEMORY", c->memory);
    clattn__stage_define(plan, stage, "HAS_LINKS", c->link_count > 0);
    return stage;
}

static void sum(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                const clattn__core_gradients *g, clattn__operand parts, int64_t shares) {
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_sum", g->k.type);
    clattn__stage_operand(plan, stage, parts);
    clattn__stage_operand(plan, stage, g->k.at);
    clattn__stage_operand(plan, stage, g->v.at);
    clattn__stage_int(plan, stage, (int32_t)c->sizes.keys);
    clattn__stage_long(plan, stage, shares);
    clattn__stage_float(plan, stage, c->scale);
    clattn__stage_strides(plan, stage, &g->k);
    clattn__stage_strides(plan, stage, &g->v);
    clattn__stage_range(stage, clattn__ceil_div(c->sizes.keys, clattn__panel_width(target)), c->sizes.heads,
                        c->sizes.batch, 1);
}

clattn__cjar_parts clattn__cjar_joint_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                                             const clattn__cjar_gradients *g, clattn__operand terms) {
    const clattn__sizes *s = &c->sizes;
    const int64_t row = clattn__padded_row(target, s->head_size), half = (s->keys + c->memory) * row;
    const int64_t shares = shares_of(target, s), all = s->batch * s->heads;
    const clattn__stream q = {&c->q, s->batch, s->heads, s->queries, s->head_size, 1};
    const clattn__stream o = {&g->core.o, s->batch, s->heads, s->queries, s->head_size, 1};
    const clattn__streams keys = clattn__stream_keys(plan, target, s, &c->k, &c->v, c->link_count > 0);
    const clattn__operand q_rows = clattn__stream_rows(plan, target, &q),
                          o_rows = clattn__stream_rows(plan, target, &o);
    const clattn__operand parts = clattn__plan_scratch(plan, shares * all * 2 * half);
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_joint", g->core.q.type);
    const clattn__operand list[] = {c->q.at,
                                    g->core.o.at,
                                    keys.first_panels,
                                    keys.second_panels,
                                    keys.first_rows,
                                    keys.second_rows,
                                    q_rows,
                                    o_rows,
                                    c->memory_keys,
                                    g->memory_value_panels,
                                    g->memory_key_rows,
                                    c->link_rows,
                                    c->link_keys,
                                    terms,
                                    c->lengths,
                                    parts,
                                    g->core.q.at};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__stage_int(plan, stage, (int32_t)s->keys);
    clattn__stage_float(plan, stage, c->scale);
    clattn__cjar_window(plan, stage, c);
    clattn__stage_long(plan, stage, c->link_count);
    clattn__stage_strides(plan, stage, &c->q);
    clattn__stage_strides(plan, stage, &g->core.o);
    clattn__stage_strides(plan, stage, &g->core.q);
    clattn__stage_range(stage, shares, s->heads, s->batch, 1);
    sum(plan, target, c, &g->core, parts, shares);
    return (clattn__cjar_parts){.at = {parts.slot, parts.offset + s->keys * row},
                                .count = shares * s->batch,
                                .step = s->heads * 2 * half,
                                .head_stride = 2 * half,
                                .row_stride = row,
                                .second = half};
}
