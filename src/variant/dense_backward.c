/* dense, backwards. */
#include "variant/dense_backward.h"

static void shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target, const clattn__dense *d,
                  clattn_type grad_type, int64_t owned_rows, int64_t heads) {
    const bool has_bias = d->bias.slot != CLATTN__SLOT_NONE;
    clattn__backward_shape(plan, stage, target, &d->sizes, d->q.type, grad_type, owned_rows, heads);
    clattn__stage_define(plan, stage, "HAS_BIAS", has_bias);
    clattn__stage_define(plan, stage, "HIDDEN_INSIDE", has_bias);
}

static void operands(clattn__plan *plan, clattn__stage *stage, const clattn__operand *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        clattn__stage_operand(plan, stage, list[i]);
}

#define OPERANDS(list) operands(plan, stage, list, sizeof(list) / sizeof *(list))

/* MASK_PARAMETERS of dense_backward.cl. */
static void mask(clattn__plan *plan, clattn__stage *stage, const clattn__dense *d, clattn__operand terms) {
    const clattn__operand list[] = {terms, d->bias, d->key_lengths, d->query_lengths};
    OPERANDS(list);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)(d->sizes.heads / d->sizes.kv_heads));
    clattn__stage_float(plan, stage, d->scale);
    clattn__stage_int(plan, stage, (int32_t)d->left);
    clattn__stage_int(plan, stage, (int32_t)d->right);
    clattn__stage_int(plan, stage, d->bottom_right);
    for (int i = 0; i < 4; i++)
        clattn__stage_long(plan, stage, d->bias_stride[i]);
}

static void queries(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                    const clattn__core_gradients *g, const clattn__streams *keys, clattn__operand terms) {
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_backward", "dense_backward_queries");
    shape(plan, stage, target, d, g->q.type, d->sizes.queries, d->sizes.heads);
    const clattn__operand list[] = {d->q.at,          g->o.at, keys->first_panels, keys->second_panels,
                                    keys->first_rows, g->q.at};
    OPERANDS(list);
    mask(plan, stage, d, terms);
    clattn__stage_strides(plan, stage, &d->q);
    clattn__stage_strides(plan, stage, &g->o);
    clattn__stage_strides(plan, stage, &g->q);
}

static void keys(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                 const clattn__core_gradients *g, const clattn__streams *queries, clattn__operand terms) {
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_backward", "dense_backward_keys");
    shape(plan, stage, target, d, g->k.type, d->sizes.keys, d->sizes.kv_heads);
    const clattn__operand list[] = {
        d->k.at, d->v.at, queries->first_panels, queries->second_panels, queries->first_rows, queries->second_rows,
        g->k.at, g->v.at};
    OPERANDS(list);
    mask(plan, stage, d, terms);
    clattn__stage_strides(plan, stage, &d->k);
    clattn__stage_strides(plan, stage, &d->v);
    clattn__stage_strides(plan, stage, &g->k);
    clattn__stage_strides(plan, stage, &g->v);
}

void clattn__dense_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                                   const clattn__core_gradients *g) {
    const clattn__operand terms = clattn__terms_append(plan, target, &d->sizes, &d->o, g, d->query_lengths);
    const uint64_t mark = plan->workspace_used;
    const clattn__streams of_keys = clattn__stream_keys(plan, target, &d->sizes, &d->k, &d->v, false);
    queries(plan, target, d, g, &of_keys, terms);
    clattn__plan_release(plan, mark);
    const clattn__streams of_queries = clattn__stream_queries(plan, target, &d->sizes, &d->q, &g->o);
    keys(plan, target, d, g, &of_queries, terms);
    clattn__plan_release(plan, mark);
}
