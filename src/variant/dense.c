/* dense: problem -> plan. */
#include "variant/dense_backward.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/layout.h"

void clattn__dense_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *d) {
    const bool has_bias = clattn__given(d->bias);
    clattn__stage *stage = clattn__plan_kernel(plan, "dense", "dense_forward");
    clattn__attention_shape(plan, stage, target, &d->sizes, d->q.type, d->o.type);
    clattn__stage_define(plan, stage, "HAS_BIAS", has_bias);
    clattn__stage_define(plan, stage, "HIDDEN_INSIDE", has_bias);
    clattn__stage_define(plan, stage, "HAS_LSE", clattn__given(d->lse) || clattn__given(d->saved));
    const clattn__operand operands[] = {d->q.at, d->packed.keys, d->packed.values, d->o.at,         d->bias,
                                        d->lse,  d->saved,       d->key_lengths,   d->query_lengths};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)d->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)(d->sizes.heads / d->sizes.kv_heads));
    clattn__stage_float(plan, stage, d->scale);
    clattn__stage_int(plan, stage, (int32_t)d->left);
    clattn__stage_int(plan, stage, (int32_t)d->right);
    clattn__stage_int(plan, stage, d->bottom_right);
    const int64_t strides[] = {d->q.batch_stride,
                               d->q.head_stride,
                               d->q.row_stride,
                               d->packed.key_batch_stride,
                               d->packed.key_head_stride,
                               d->packed.value_batch_stride,
                               d->packed.value_head_stride,
                               d->o.batch_stride,
                               d->o.head_stride,
                               d->o.row_stride,
                               d->bias_stride[0],
                               d->bias_stride[1],
                               d->bias_stride[2],
                               d->bias_stride[3],
                               d->lse_stride[0],
                               d->lse_stride[1],
                               d->lse_stride[2]};
    clattn__stage_longs(plan, stage, strides, sizeof strides / sizeof *strides);
}

/* ---- the caller's problem ---- */

static clattn_status check_options(const clattn_dense_problem *p, clattn__error *error) {
    const int64_t b = p->q.shape[0], h = p->q.shape[1], m = p->q.shape[2], n = p->k.shape[2];
    const struct {
        const clattn_tensor *tensor;
        clattn__layout_rule rule;
    } options[] = {{&p->bias, {.name = "bias", .rank = 4, .shape = {b, h, m, n}, .type = CLATTN_F32}},
                   {&p->lse, {.name = "lse", .rank = 3, .shape = {b, h, m}, .type = CLATTN_F32, .output = true}},
                   {&p->key_lengths, {.name = "key_lengths", .rank = 1, .shape = {b}, .type = CLATTN_I32}},
                   {&p->query_lengths, {.name = "query_lengths", .rank = 1, .shape = {b}, .type = CLATTN_I32}}};
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < sizeof options / sizeof *options && status == CLATTN_SUCCESS; i++) {
        clattn__layout_rule rule = options[i].rule;
        rule.typed = rule.optional = true;
        status = clattn__layout_check(options[i].tensor, &rule, error);
    }
    return status;
}

static clattn_status check_numbers(const clattn_dense_problem *p, clattn__error *error) {
    const int64_t h = p->q.shape[1], hkv = p->k.shape[1];
    if (h > 0 && (hkv == 0 || h % hkv != 0))
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "k has %" PRId64 " heads, which do not divide q's %" PRId64,
                            hkv, h);
    if (!isfinite(p->scale))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "scale is %g, but must be finite", (double)p->scale);
    clattn_status status = clattn__range_check("causal", p->causal, 0, CLATTN_CAUSAL_BOTTOM_RIGHT, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("head size of q", p->q.shape[3], 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("head size of v", p->v.shape[3], 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("queries", p->q.shape[2], 0, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("keys", p->k.shape[2], 0, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS && p->windowed)
        status = clattn__range_check("window_left", p->window_left, -1, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS && p->windowed)
        status = clattn__range_check("window_right", p->window_right, -1, INT32_MAX / 2, error);
    return status;
}

void clattn__dense_bind(clattn__plan *plan, const clattn_dense_problem *p) {
    const struct {
        int slot;
        const char *name;
        const clattn_tensor *tensor;
    } tensors[] = {{CLATTN_DENSE_Q, "q", &p->q},
                   {CLATTN_DENSE_K, "k", &p->k},
                   {CLATTN_DENSE_V, "v", &p->v},
                   {CLATTN_DENSE_O, "o", &p->o},
                   {CLATTN_DENSE_BIAS, "bias", &p->bias},
                   {CLATTN_DENSE_LSE, "lse", &p->lse},
                   {CLATTN_DENSE_KEY_LENGTHS, "key_lengths", &p->key_lengths},
                   {CLATTN_DENSE_QUERY_LENGTHS, "query_lengths", &p->query_lengths}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (!clattn__layout_absent(tensors[i].tensor))
            clattn__plan_bind(plan, tensors[i].slot, tensors[i].name, tensors[i].tensor, false);
}

clattn__dense clattn__dense_canonical(const clattn_dense_problem *p, clattn__plan *plan) {
    clattn__dense d = {.sizes = {p->q.shape[0], p->q.shape[1], p->k.shape[1], p->q.shape[2], p->k.shape[2],
                                 p->q.shape[3], p->v.shape[3]},
                       .q = clattn__view_of(CLATTN_DENSE_Q, &p->q),
                       .k = clattn__view_of(CLATTN_DENSE_K, &p->k),
                       .v = clattn__view_of(CLATTN_DENSE_V, &p->v),
                       .o = clattn__view_of(CLATTN_DENSE_O, &p->o),
                       .bias = clattn__slot_of(CLATTN_DENSE_BIAS, &p->bias),
                       .lse = clattn__slot_of(CLATTN_DENSE_LSE, &p->lse),
                       .saved = clattn__none(),
                       .key_lengths = clattn__slot_of(CLATTN_DENSE_KEY_LENGTHS, &p->key_lengths),
                       .query_lengths = clattn__slot_of(CLATTN_DENSE_QUERY_LENGTHS, &p->query_lengths),
                       .scale = p->scale,
                       .left = p->windowed ? p->window_left : -1,
                       .right = p->windowed ? p->window_right : -1,
                       .bottom_right = p->causal == CLATTN_CAUSAL_BOTTOM_RIGHT};
    for (int i = 0; i < 4; i++)
        d.bias_stride[i] = p->bias.stride[i];
    for (int i = 0; i < 3; i++)
        d.lse_stride[i] = p->lse.stride[i];
    if (p->train)
        d.saved = clattn__plan_save(plan, CLATTN_DENSE_SAVED, d.sizes.batch * d.sizes.heads * d.sizes.queries);
    if (d.scale == 0)
        d.scale = 1.0f / sqrtf((float)d.sizes.head_size);
    if (p->causal != CLATTN_CAUSAL_NONE && d.right != 0)
        d.right = 0;
    return d;
}

/* ---- the plans that can serve it, the first that does not refuse is taken ---- */

static const char *tile_reject(const clattn__dense *d, const clattn__target *target, char *text, size_t size) {
    const uint64_t bytes = clattn__attention_local_bytes(target, &d->sizes);
    if (bytes <= target->caps.local_bytes)
        return NULL;
    snprintf(text, size, "%" PRIu64 " bytes of local memory, the device has %" PRIu64, bytes, target->caps.local_bytes);
    return text;
}

static void tile_append(clattn__plan *plan, const clattn__target *target, const clattn__dense *problem) {
    clattn__dense d = *problem;
    d.packed = clattn__packed_reserve(plan, target, &d.sizes);
    clattn__packed_keys(plan, target, &d.sizes, &d.k, &d.packed);
    clattn__packed_values(plan, target, &d.sizes, &d.v, &d.packed);
    clattn__dense_append(plan, target, &d);
}

static const struct candidate {
    const char *name;
    const char *(*reject)(const clattn__dense *d, const clattn__target *target, char *text, size_t size);
    void (*append)(clattn__plan *plan, const clattn__target *target, const clattn__dense *d);
} candidates[] = {{"split", clattn__dense_split_reject, clattn__dense_split_append},
                  {"tile", tile_reject, tile_append}};

static clattn_status choose(clattn__plan *plan, const clattn__target *target, const clattn__dense *d,
                            clattn__error *error) {
    char reasons[sizeof plan->note], reason[160];
    clattn__text all = {reasons, sizeof reasons, 0};
    reasons[0] = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const struct candidate *c = &candidates[i];
        if (!c->reject(d, target, reason, sizeof reason)) {
            clattn__plan_note(plan, "dense: %s%s", c->name, reasons);
            c->append(plan, target, d);
            return CLATTN_SUCCESS;
        }
        clattn__text_add(&all, "; not %s: %s", c->name, reason);
    }
    return clattn__fail(error, CLATTN_UNSUPPORTED, "dense: no plan serves this%s", reasons);
}

clattn_status clattn__dense_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                 clattn__error *error) {
    const clattn_dense_problem *p = problem;
    clattn__plan_init(plan, CLATTN_DENSE_SLOTS);
    clattn_status status = clattn__qkvo_check(&p->q, &p->k, &p->v, &p->o, error);
    if (status == CLATTN_SUCCESS)
        status = check_options(p, error);
    if (status == CLATTN_SUCCESS)
        status = check_numbers(p, error);
    if (status == CLATTN_SUCCESS && p->train)
        status = clattn__dense_gradients_check(p, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__dense_bind(plan, p);
    const clattn__dense d = clattn__dense_canonical(p, plan);
    if ((status = clattn__head_sizes_check(&d.sizes, error)) != CLATTN_SUCCESS || d.sizes.heads == 0)
        return status;
    return choose(plan, target, &d, error);
}
