/* cjar: problem -> plan. */
#include "variant/cjar_backward.h"

#include <math.h>

#include "core/layout.h"

clattn__sizes clattn__cjar_memory_sizes(int64_t memory, int64_t heads, int64_t head_size) {
    return (clattn__sizes){1, heads, heads, 0, memory, head_size, head_size};
}

static void defines(clattn__plan *plan, clattn__stage *stage, const clattn__cjar *c) {
    clattn__stage_define(plan, stage, "MEMORY", c->memory);
    clattn__stage_define(plan, stage, "HAS_LINKS", c->link_count > 0);
    clattn__stage_define(plan, stage, "MULTIPLY", c->masked == CLATTN_CJAR_MULTIPLY);
}

/* Running sums of the values, for MULTIPLY. */
static clattn__operand prefix(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c) {
    const clattn__sizes *s = &c->sizes;
    const int64_t row = clattn__padded_row(target, s->value_size);
    const clattn__operand sums = clattn__plan_scratch(plan, s->batch * s->heads * (s->keys + 1) * row);
    clattn__stage *stage = clattn__plan_kernel(plan, "cjar", "cjar_prefix");
    clattn__attention_shape(plan, stage, target, s, c->q.type, c->o.type);
    defines(plan, stage, c);
    clattn__stage_operand(plan, stage, c->packed.values);
    clattn__stage_operand(plan, stage, sums);
    clattn__stage_operand(plan, stage, c->lengths);
    clattn__stage_int(plan, stage, (int32_t)s->keys);
    clattn__stage_long(plan, stage, c->packed.value_batch_stride);
    clattn__stage_long(plan, stage, c->packed.value_head_stride);
    clattn__stage_long(plan, stage, s->heads);
    clattn__stage_range(stage, row / target->attention.vw, s->heads, s->batch, 1);
    stage->local_bytes = 0;
    return sums;
}

void clattn__cjar_window(clattn__plan *plan, clattn__stage *stage, const clattn__cjar *c) {
    clattn__stage_int(plan, stage, (int32_t)c->left);
    clattn__stage_int(plan, stage, c->causal ? 0 : (int32_t)c->right);
    clattn__stage_int(plan, stage, c->causal);
}

void clattn__cjar_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c) {
    const clattn__operand sums = c->masked == CLATTN_CJAR_MULTIPLY ? prefix(plan, target, c) : clattn__none();
    clattn__stage *stage = clattn__plan_kernel(plan, "cjar", "cjar_forward");
    clattn__attention_shape(plan, stage, target, &c->sizes, c->q.type, c->o.type);
    if (target->attention.wg > 1) /* what the memory sees, and ranges of links */
        stage->local_bytes += 6 * sizeof(int32_t) * (size_t)target->attention.bm;
    defines(plan, stage, c);
    const clattn__operand operands[] = {c->q.at,        c->packed.keys,   c->packed.values, c->o.at,
                                        c->memory_keys, c->memory_values, c->key_rows,      sums,
                                        c->link_rows,   c->link_keys,     c->lengths,       c->saved};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)c->sizes.keys);
    clattn__stage_float(plan, stage, c->scale);
    clattn__cjar_window(plan, stage, c);
    clattn__stage_long(plan, stage, c->link_count);
    const int64_t strides[] = {c->q.batch_stride,
                               c->q.head_stride,
                               c->q.row_stride,
                               c->packed.key_batch_stride,
                               c->packed.key_head_stride,
                               c->packed.value_batch_stride,
                               c->packed.value_head_stride,
                               c->o.batch_stride,
                               c->o.head_stride,
                               c->o.row_stride};
    clattn__stage_longs(plan, stage, strides, sizeof strides / sizeof *strides);
}

/* ---- the caller's problem ---- */

static bool has_links(const clattn_cjar_problem *p) { return !clattn__layout_absent(&p->link_rows); }
static bool has_memory(const clattn_cjar_problem *p) { return !clattn__layout_absent(&p->memory_k); }

static clattn_status check_inputs(const clattn_cjar_problem *p, clattn__error *error) {
    const int64_t any = CLATTN__ANY_SIZE, *s = p->q.shape;
    const clattn_tensor *tensors[] = {&p->q, &p->k, &p->v, &p->o};
    const char *const names[] = {"q", "k", "v", "o"};
    for (int i = 0; i < 4; i++) {
        clattn__layout_rule rule = {.name = names[i], .rank = 4, .shape = {any, any, any, any}, .output = i == 3};
        for (int axis = 0; axis < 4 && i > 0; axis++)
            rule.shape[axis] = s[axis];
        clattn_status status = clattn__layout_check(tensors[i], &rule, error);
        if (status != CLATTN_SUCCESS)
            return status;
        if (tensors[i]->type != p->q.type)
            return clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but q has %s", names[i],
                                clattn_type_name(tensors[i]->type), clattn_type_name(p->q.type));
    }
    return CLATTN_SUCCESS;
}

static clattn_status check_memory(const clattn_cjar_problem *p, clattn__error *error) {
    if (has_memory(p) != !clattn__layout_absent(&p->memory_v))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "memory_k and memory_v must both be given, or neither");
    if (!has_memory(p))
        return CLATTN_SUCCESS;
    const clattn__layout_rule k = {
        .name = "memory_k", .rank = 3, .shape = {p->q.shape[1], CLATTN__ANY_SIZE, p->q.shape[3]}};
    const clattn__layout_rule v = {
        .name = "memory_v", .rank = 3, .shape = {p->q.shape[1], p->memory_k.shape[1], p->q.shape[3]}};
    clattn_status status = clattn__layout_check(&p->memory_k, &k, error);
    return status == CLATTN_SUCCESS ? clattn__layout_check(&p->memory_v, &v, error) : status;
}

static clattn_status check_lists(const clattn_cjar_problem *p, clattn__error *error) {
    const clattn__layout_rule rows = {.name = "link_rows",
                                      .rank = 1,
                                      .shape = {p->q.shape[2] + 1},
                                      .optional = true,
                                      .typed = true,
                                      .type = CLATTN_I64};
    const clattn__layout_rule keys = {.name = "link_keys",
                                      .rank = 1,
                                      .shape = {CLATTN__ANY_SIZE},
                                      .optional = true,
                                      .typed = true,
                                      .type = CLATTN_I32};
    const clattn__layout_rule lengths = {
        .name = "lengths", .rank = 1, .shape = {p->q.shape[0]}, .optional = true, .typed = true, .type = CLATTN_I32};
    if (has_links(p) != !clattn__layout_absent(&p->link_keys))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "link_rows and link_keys must both be given, or neither");
    clattn_status status = clattn__layout_check(&p->link_rows, &rows, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__layout_check(&p->link_keys, &keys, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__layout_check(&p->lengths, &lengths, error);
    return status;
}

static clattn_status check_numbers(const clattn_cjar_problem *p, clattn__error *error) {
    if (!isfinite(p->scale))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "scale is %g, but must be finite", (double)p->scale);
    clattn_status status = clattn__range_check("head size", p->q.shape[3], 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("length", p->q.shape[2], 0, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("window_left", p->window_left, -1, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("window_right", p->window_right, -1, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("masked", p->masked, 0, CLATTN_CJAR_MULTIPLY, error);
    return status;
}

void clattn__cjar_bind(clattn__plan *plan, const clattn_cjar_problem *p) {
    const struct {
        int slot;
        const char *name;
        const clattn_tensor *tensor;
    } tensors[] = {{CLATTN_CJAR_Q, "q", &p->q},
                   {CLATTN_CJAR_K, "k", &p->k},
                   {CLATTN_CJAR_V, "v", &p->v},
                   {CLATTN_CJAR_O, "o", &p->o},
                   {CLATTN_CJAR_MEMORY_K, "memory_k", &p->memory_k},
                   {CLATTN_CJAR_MEMORY_V, "memory_v", &p->memory_v},
                   {CLATTN_CJAR_LINK_ROWS, "link_rows", &p->link_rows},
                   {CLATTN_CJAR_LINK_KEYS, "link_keys", &p->link_keys},
                   {CLATTN_CJAR_LENGTHS, "lengths", &p->lengths}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (!clattn__layout_absent(tensors[i].tensor))
            clattn__plan_bind(plan, tensors[i].slot, tensors[i].name, tensors[i].tensor, false);
}

clattn__view clattn__cjar_memory_view(int slot, const clattn_tensor *t) {
    return (clattn__view){{slot, 0}, t->type, 0, t->stride[0], t->stride[1]};
}

static void pack_memory(clattn__plan *plan, const clattn__target *target, const clattn_cjar_problem *p,
                        clattn__cjar *c) {
    const clattn__sizes sizes = clattn__cjar_memory_sizes(c->memory, c->sizes.heads, c->sizes.head_size);
    const clattn__view k = clattn__cjar_memory_view(CLATTN_CJAR_MEMORY_K, &p->memory_k);
    const clattn__view v = clattn__cjar_memory_view(CLATTN_CJAR_MEMORY_V, &p->memory_v);
    const clattn__packed packed = clattn__packed_reserve(plan, target, &sizes);
    clattn__packed_keys(plan, target, &sizes, &k, &packed);
    clattn__packed_values(plan, target, &sizes, &v, &packed);
    c->memory_keys = packed.keys;
    c->memory_values = packed.values;
}

/* Links gather single keys: rows beside panels. */
static void pack_rows(clattn__plan *plan, const clattn__target *target, const clattn__view *k, clattn__cjar *c) {
    clattn__packed rows = c->packed;
    rows.values = clattn__plan_scratch(plan, c->packed.value_batch_stride * c->sizes.batch);
    clattn__packed_values(plan, target, &c->sizes, k, &rows);
    c->key_rows = rows.values;
}

clattn__cjar clattn__cjar_canonical(const clattn_cjar_problem *p, clattn__plan *plan) {
    const int64_t *s = p->q.shape;
    const bool links = has_links(p) && p->link_keys.shape[0] > 0;
    clattn__cjar c = {.sizes = {s[0], s[1], s[1], s[2], s[2], s[3], s[3]},
                      .q = clattn__view_of(CLATTN_CJAR_Q, &p->q),
                      .k = clattn__view_of(CLATTN_CJAR_K, &p->k),
                      .v = clattn__view_of(CLATTN_CJAR_V, &p->v),
                      .o = clattn__view_of(CLATTN_CJAR_O, &p->o),
                      .memory = has_memory(p) ? p->memory_k.shape[1] : 0,
                      .memory_keys = clattn__none(),
                      .memory_values = clattn__none(),
                      .key_rows = clattn__none(),
                      .saved = clattn__none(),
                      .link_rows = clattn__slot_if(links, CLATTN_CJAR_LINK_ROWS),
                      .link_keys = clattn__slot_if(links, CLATTN_CJAR_LINK_KEYS),
                      .lengths = clattn__slot_of(CLATTN_CJAR_LENGTHS, &p->lengths),
                      .link_count = links ? p->link_keys.shape[0] : 0,
                      .scale = p->scale != 0 ? p->scale : 1.0f / sqrtf((float)s[3]),
                      .left = p->window_left,
                      .right = p->window_right,
                      .causal = p->causal,
                      .masked = p->masked};
    if (p->train)
        c.saved = clattn__plan_save(plan, CLATTN_CJAR_SAVED, s[0] * s[1] * s[2]);
    return c;
}

clattn_status clattn__cjar_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                clattn__error *error) {
    const clattn_cjar_problem *p = problem;
    clattn__plan_init(plan, CLATTN_CJAR_SLOTS);
    clattn_status status = check_inputs(p, error);
    if (status == CLATTN_SUCCESS)
        status = check_memory(p, error);
    if (status == CLATTN_SUCCESS)
        status = check_lists(p, error);
    if (status == CLATTN_SUCCESS)
        status = check_numbers(p, error);
    if (status == CLATTN_SUCCESS && p->train)
        status = clattn__cjar_gradients_check(p, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__cjar_bind(plan, p);
    clattn__cjar c = clattn__cjar_canonical(p, plan);
    if ((status = clattn__head_sizes_check(&c.sizes, error)) != CLATTN_SUCCESS)
        return status;
    c.packed = clattn__packed_reserve(plan, target, &c.sizes);
    clattn__packed_keys(plan, target, &c.sizes, &c.k, &c.packed);
    clattn__packed_values(plan, target, &c.sizes, &c.v, &c.packed);
    if (c.link_count > 0)
        pack_rows(plan, target, &c.k, &c);
    if (c.memory > 0)
        pack_memory(plan, target, p, &c);
    clattn__cjar_append(plan, target, &c);
    return CLATTN_SUCCESS;
}
