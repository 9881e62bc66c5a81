/* dense: a few queries over many keys, the keys split among work-groups. */
#include <inttypes.h>

#include "core/tile.h"
#include "variant/dense.h"

/* rows    of a work-group: the smallest of these powers of two that holds the queries of a head of keys and values
 * BLOCK   keys between two looks at the running maximum
 * SPAN    fewest keys that are worth a work-group of their own
 * GROUPS  wanted for each compute unit, so that the last ones to finish leave little idle */
enum { MOST_ROWS = 8, BLOCK = 64, SPAN = 128, GROUPS_CPU = 4, GROUPS_GPU = 8 };

typedef struct split {
    clattn__tile tile;
    int64_t blocks; /* of rows, of one head of keys and values */
    int64_t parts, span;
} split;

static split shape(const clattn__target *target, const clattn__sizes *s) {
    const int64_t rows = s->queries * (s->heads / s->kv_heads);
    split f = {.tile = target->attention};
    f.tile.tm = 1;
    while (f.tile.tm < MOST_ROWS && f.tile.tm < rows)
        f.tile.tm *= 2;
    f.tile.bm = f.tile.tm;
    f.tile.tnv = 1;
    f.tile.bn = BLOCK;
    f.blocks = clattn__ceil_div(rows, f.tile.bm);
    const int64_t others = s->batch * s->kv_heads * f.blocks;
    const int64_t units = target->caps.compute_units > 0 ? target->caps.compute_units : 1;
    const int64_t wanted = clattn__ceil_div(units * (f.tile.wg > 1 ? GROUPS_GPU : GROUPS_CPU), others > 0 ? others : 1);
    const int64_t most = s->keys > SPAN ? s->keys / SPAN : 1;
    f.parts = wanted < most ? wanted : most;
    f.span = clattn__ceil_div(clattn__ceil_div(s->keys, f.parts), BLOCK) * BLOCK;
    f.parts = s->keys > 0 ? clattn__ceil_div(s->keys, f.span) : 1;
    return f;
}

/* Of the device's memory: Q, S, state of the rows, and where lanes meet. */
static size_t local_bytes(const split *f, const clattn__sizes *s) {
    const clattn__tile *t = &f->tile;
    return t->wg == 1 ? 0 : sizeof(float) * (size_t)(t->bm * (s->head_size + t->bn + 1 + 5) + t->wg * t->vw);
}

const char *clattn__dense_split_reject(const clattn__dense *d, const clattn__target *target, char *text, size_t size) {
    const split f = shape(target, &d->sizes);
    clattn__text reason = {text, size, 0};
    if (clattn__given(d->saved)) /* backward makes the scores again, and must add as forward did */
        clattn__text_add(&reason, "it trains");
    else if (d->sizes.queries > target->attention.tm)
        clattn__text_add(&reason, "%" PRId64 " queries, at most %d", d->sizes.queries, target->attention.tm);
    else if (local_bytes(&f, &d->sizes) > target->caps.local_bytes)
        clattn__text_add(&reason, "%zu bytes of local memory, the device has %" PRIu64, local_bytes(&f, &d->sizes),
                         target->caps.local_bytes);
    return reason.length > 0 ? text : NULL;
}

static void defines(clattn__plan *plan, clattn__stage *stage, const split *f, const clattn__dense *d) {
    clattn__tile_defines(plan, stage, &f->tile);
    clattn__stage_define(plan, stage, "D", d->sizes.head_size);
    clattn__stage_define(plan, stage, "DV", d->sizes.value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", d->q.type);
    clattn__stage_define(plan, stage, "TYPE_O", d->o.type);
    clattn__stage_define(plan, stage, "HAS_BIAS", clattn__given(d->bias));
    clattn__stage_define(plan, stage, "HAS_LSE", clattn__given(d->lse));
}

static void append_split(clattn__plan *plan, const split *f, const clattn__dense *d, clattn__operand values,
                         clattn__operand states) {
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_split", "dense_split");
    defines(plan, stage, f, d);
    const clattn__operand operands[] = {d->q.at, d->k.at, d->v.at,        values,
                                        states,  d->bias, d->key_lengths, d->query_lengths};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)(d->sizes.heads / d->sizes.kv_heads));
    clattn__stage_float(plan, stage, d->scale);
    clattn__stage_int(plan, stage, (int32_t)d->left);
    clattn__stage_int(plan, stage, (int32_t)d->right);
    clattn__stage_int(plan, stage, d->bottom_right);
    clattn__stage_int(plan, stage, (int32_t)f->parts);
    clattn__stage_int(plan, stage, (int32_t)f->span);
    const clattn__view *views[] = {&d->q, &d->k, &d->v};
    for (int i = 0; i < 3; i++)
        clattn__stage_longs(plan, stage,
                            (const int64_t[]){views[i]->batch_stride, views[i]->head_stride, views[i]->row_stride}, 3);
    clattn__stage_longs(plan, stage, d->bias_stride, 4);
    stage->local_bytes = local_bytes(f, &d->sizes);
    clattn__stage_range(stage, f->parts, d->sizes.kv_heads * f->blocks, d->sizes.batch, f->tile.wg);
}

static void append_merge(clattn__plan *plan, const split *f, const clattn__dense *d, clattn__operand values,
                         clattn__operand states) {
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_split", "dense_merge");
    defines(plan, stage, f, d);
    const clattn__operand operands[] = {values, states, d->o.at, d->lse};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)f->parts);
    clattn__stage_longs(plan, stage, (const int64_t[]){d->o.batch_stride, d->o.head_stride, d->o.row_stride}, 3);
    clattn__stage_longs(plan, stage, d->lse_stride, 3);
    clattn__stage_range(stage, d->sizes.queries, d->sizes.heads, d->sizes.batch, f->tile.wg);
}

void clattn__dense_split_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d) {
    const split f = shape(target, &d->sizes);
    const int64_t states = d->sizes.batch * d->sizes.heads * d->sizes.queries * f.parts;
    const int64_t row = clattn__ceil_div(d->sizes.value_size, f.tile.vw) * f.tile.vw;
    const clattn__operand values = clattn__plan_scratch(plan, states * row),
                          state = clattn__plan_scratch(plan, states * 2);
    append_split(plan, &f, d, values, state);
    append_merge(plan, &f, d, values, state);
}
