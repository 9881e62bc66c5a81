/* dense, backwards. */
#include "variant/dense_backward.h"

#include "core/layout.h"

void clattn__dense_bias_defines(clattn__plan *plan, clattn__stage *stage, const clattn__dense *d) {
    const bool has_bias = clattn__given(d->bias);
    clattn__stage_define(plan, stage, "HAS_BIAS", has_bias);
    clattn__stage_define(plan, stage, "HIDDEN_INSIDE", has_bias);
}

static void shape(clattn__plan *plan, clattn__stage *stage, const clattn__target *target, const clattn__dense *d,
                  clattn_type grad_type, int64_t owned_rows, int64_t heads) {
    clattn__backward_shape(plan, stage, target, &d->sizes, d->q.type, grad_type, owned_rows, heads);
    clattn__dense_bias_defines(plan, stage, d);
}

void clattn__dense_mask(clattn__plan *plan, clattn__stage *stage, const clattn__dense *d, clattn__operand terms) {
    const clattn__operand list[] = {terms, d->bias, d->key_lengths, d->query_lengths};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)(d->sizes.kv_heads > 0 ? d->sizes.heads / d->sizes.kv_heads : 0));
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
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__dense_mask(plan, stage, d, terms);
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
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__dense_mask(plan, stage, d, terms);
    clattn__stage_strides(plan, stage, &d->k);
    clattn__stage_strides(plan, stage, &d->v);
    clattn__stage_strides(plan, stage, &g->k);
    clattn__stage_strides(plan, stage, &g->v);
}

/* A bias gradient's extents that are 1 are sums. */
static void bias(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                 const clattn__core_gradients *g, const clattn__streams *keys, clattn__operand terms,
                 const clattn_tensor *grad) {
    const clattn__sizes *s = &d->sizes;
    const int64_t extents[] = {s->batch, s->heads, s->queries, s->keys};
    const clattn__tile tile = clattn__backward_tile(target, s);
    clattn__stage *stage = clattn__plan_kernel(plan, "dense_backward", "dense_backward_bias");
    shape(plan, stage, target, d, CLATTN_F32, s->queries, s->heads);
    const clattn__operand list[] = {
        d->q.at, g->o.at, keys->first_panels, keys->second_panels, {CLATTN_DENSE_GRAD_BIAS, 0}};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__dense_mask(plan, stage, d, terms);
    clattn__stage_strides(plan, stage, &d->q);
    clattn__stage_strides(plan, stage, &g->o);
    int64_t blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = grad->shape[i] == extents[i] ? extents[i] : 1;
        clattn__stage_long(plan, stage, extents[i]);
        clattn__stage_long(plan, stage, blocks[i]);
        clattn__stage_long(plan, stage, grad->stride[i]);
    }
    clattn__stage_range(stage, clattn__ceil_div(blocks[3], tile.bn), clattn__ceil_div(blocks[2], tile.bm),
                        blocks[0] * blocks[1], tile.wg);
}

static void append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                   const clattn__core_gradients *g, const clattn_tensor *grad_bias) {
    char reason[160];
    const bool joint = !clattn__dense_joint_reject(d, target, reason, sizeof reason);
    const clattn__operand terms =
        clattn__terms_append(plan, target, &d->sizes, &d->o, &g->o, d->saved, d->query_lengths);
    const uint64_t mark = plan->workspace_used;
    if (!joint || grad_bias) {
        const clattn__streams of_keys = clattn__stream_keys(plan, target, &d->sizes, &d->k, &d->v, false);
        if (!joint)
            queries(plan, target, d, g, &of_keys, terms);
        if (grad_bias)
            bias(plan, target, d, g, &of_keys, terms, grad_bias);
        clattn__plan_release(plan, mark);
    }
    if (joint) {
        clattn__plan_note(plan, "dense backward: joint");
        clattn__dense_joint_append(plan, target, d, g, terms);
    } else {
        clattn__plan_note(plan, "dense backward: separate; not joint: %s", reason);
        const clattn__streams of_queries = clattn__stream_queries(plan, target, &d->sizes, &d->q, &g->o, d->scale);
        keys(plan, target, d, g, &of_queries, terms);
    }
    clattn__plan_release(plan, mark);
}

void clattn__dense_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                                   const clattn__core_gradients *g) {
    append(plan, target, d, g, NULL);
}

/* ---- the caller's problem ---- */

static clattn_status check_bias(const clattn_dense_problem *p, clattn__error *error) {
    const int64_t extents[] = {p->q.shape[0], p->q.shape[1], p->q.shape[2], p->k.shape[2]};
    clattn__layout_rule rule = {.name = "grad_bias", .rank = 4, .output = true};
    if (clattn__layout_absent(&p->grad_bias))
        return CLATTN_SUCCESS;
    if (clattn__layout_absent(&p->bias))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "grad_bias is given, but bias is not");
    for (int i = 0; i < 4; i++)
        rule.shape[i] = p->grad_bias.shape[i] == 1 ? 1 : extents[i];
    clattn_status status = clattn__layout_check(&p->grad_bias, &rule, error);
    if (status == CLATTN_SUCCESS && p->grad_bias.type != CLATTN_F32)
        status = clattn__fail(error, CLATTN_INVALID_TYPE, "grad_bias has type %s, but must be f32",
                              clattn_type_name(p->grad_bias.type));
    return status;
}

static clattn__gradient_tensors tensors_of(const clattn_dense_problem *p) {
    return (clattn__gradient_tensors){
        CLATTN_DENSE_GRAD_O, {&p->o, &p->q, &p->k, &p->v}, {&p->grad_o, &p->grad_q, &p->grad_k, &p->grad_v}};
}

clattn_status clattn__dense_gradients_check(const clattn_dense_problem *p, clattn__error *error) {
    const clattn__gradient_tensors gradients = tensors_of(p);
    const clattn_status status = clattn__gradient_tensors_check(&gradients, error);
    return status == CLATTN_SUCCESS ? check_bias(p, error) : status;
}

bool clattn__dense_core_trains(const void *problem) { return ((const clattn_dense_problem *)problem)->train; }

clattn_status clattn__dense_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                          clattn__error *error) {
    const clattn_dense_problem *p = problem;
    (void)error; /* the forward pass has checked everything */
    clattn__plan_init(plan, CLATTN_DENSE_SLOTS);
    clattn__dense_bind(plan, p);
    const clattn__gradient_tensors gradients = tensors_of(p);
    const clattn__core_gradients g = clattn__gradient_tensors_bind(plan, &gradients);
    if (!clattn__layout_absent(&p->grad_bias))
        clattn__plan_bind(plan, CLATTN_DENSE_GRAD_BIAS, "grad_bias", &p->grad_bias, false);
    const clattn__dense d = clattn__dense_canonical(p, plan);
    append(plan, target, &d, &g, clattn__layout_absent(&p->grad_bias) ? NULL : &p->grad_bias);
    return CLATTN_SUCCESS;
}
