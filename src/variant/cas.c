/* The additive core: problem -> plan. Given scores, everything is a softmax over them; causal, a scan. */
#include "variant/cas_backward.h"

#include <math.h>

#include "core/layout.h"

enum { BLOCK = 64 };

/* ---- stages ---- */

/* A group for each of `groups` and each head. */
static clattn__stage *append(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                             const char *file, const char *kernel, int64_t size, int64_t groups) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    clattn__stage_define(plan, stage, "WG", clattn__cas_group(target));
    clattn__stage_define(plan, stage, "VW", clattn__cas_vector(target, size));
    clattn__stage_define(plan, stage, "D", size);
    clattn__stage_define(plan, stage, "BT", BLOCK);
    clattn__stage_range(stage, groups, shape->heads, shape->batch, clattn__cas_group(target));
    return stage;
}

/* All stages of cl/cas_scan.cl are one program. */
static void define_types(clattn__plan *plan, clattn__stage *stage, const clattn__cas_tensor *v,
                         const clattn__cas_tensor *o) {
    clattn__stage_define(plan, stage, "TYPE_V", v->type);
    clattn__stage_define(plan, stage, "TYPE_O", o->type);
}

static void add_strides(clattn__plan *plan, clattn__stage *stage, const clattn__cas_tensor *t) {
    clattn__stage_long(plan, stage, t->batch_stride);
    clattn__stage_long(plan, stage, t->head_stride);
    clattn__stage_long(plan, stage, t->row_stride);
}

static size_t block_bytes(const clattn__target *target, size_t arrays) {
    return clattn__cas_group(target) == 1 ? 0 : arrays * BLOCK * sizeof(float);
}

/* Sums of v over each part of span tokens. */
static clattn__cas_parts sum_parts(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                                   clattn__operand scores, const clattn__cas_tensor *v, const clattn__cas_tensor *o,
                                   int64_t span) {
    const int64_t count = clattn__ceil_div(shape->length, span);
    const clattn__cas_parts parts = clattn__cas_parts_make(plan, shape->batch * shape->heads, count, shape->size);
    clattn__stage *stage = append(plan, target, shape, "cas_scan", "cas_block", shape->size, count);
    define_types(plan, stage, v, o);
    clattn__stage_operand(plan, stage, scores);
    clattn__stage_operand(plan, stage, v->at);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, parts.sums);
    clattn__stage_operand(plan, stage, parts.peaks);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_long(plan, stage, span);
    add_strides(plan, stage, v);
    stage->local_bytes = block_bytes(target, 1);
    return parts;
}

/* Parts become the state before each of them; returns the peaks of those states. */
static clattn__operand carry(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                             const clattn__cas_parts *parts, const clattn__cas_tensor *v, const clattn__cas_tensor *o) {
    const int64_t lanes = (int64_t)clattn__cas_group(target) * clattn__cas_vector(target, shape->size);
    const clattn__operand starts = clattn__plan_scratch(plan, shape->batch * shape->heads * parts->count * 2);
    clattn__stage *stage =
        append(plan, target, shape, "cas_scan", "cas_carry", shape->size, clattn__ceil_div(shape->size, lanes));
    define_types(plan, stage, v, o);
    clattn__stage_operand(plan, stage, parts->sums);
    clattn__stage_operand(plan, stage, parts->peaks);
    clattn__stage_operand(plan, stage, starts);
    clattn__stage_int(plan, stage, (int32_t)parts->count);
    return starts;
}

void clattn__cas_scan(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                      clattn__operand scores, const clattn__cas_tensor *v, const clattn__cas_tensor *o,
                      clattn__operand steps) {
    const clattn__cas_parts parts = sum_parts(plan, target, shape, scores, v, o, BLOCK);
    const clattn__operand starts = carry(plan, target, shape, &parts, v, o);
    clattn__stage *stage = append(plan, target, shape, "cas_scan", "cas_scan", shape->size, parts.count);
    define_types(plan, stage, v, o);
    clattn__stage_operand(plan, stage, scores);
    clattn__stage_operand(plan, stage, v->at);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, parts.sums);
    clattn__stage_operand(plan, stage, starts);
    clattn__stage_operand(plan, stage, o->at);
    clattn__stage_operand(plan, stage, steps);
    clattn__stage_long(plan, stage, shape->length);
    add_strides(plan, stage, v);
    add_strides(plan, stage, o);
    stage->local_bytes = block_bytes(target, 3);
}

static void score_keys(clattn__plan *plan, const clattn__target *target, const clattn__cas_shape *shape,
                       const clattn__cas_tensor *k, int64_t key_size, float scale, clattn__operand scores) {
    clattn__stage *stage =
        append(plan, target, shape, "cas_keys", "cas_keys", key_size, clattn__ceil_div(shape->length, BLOCK));
    clattn__stage_define(plan, stage, "TYPE_K", k->type);
    clattn__stage_operand(plan, stage, k->at);
    clattn__stage_operand(plan, stage, shape->lengths);
    clattn__stage_operand(plan, stage, scores);
    clattn__stage_long(plan, stage, shape->length);
    clattn__stage_float(plan, stage, scale);
    add_strides(plan, stage, k);
}

/* ---- the problem ---- */

static clattn_status check_tensor(const clattn_tensor *t, const char *name, const clattn_tensor *k, int64_t size,
                                  bool output, clattn__error *error) {
    const clattn__layout_rule rule = {
        .name = name, .rank = 4, .shape = {k->shape[0], k->shape[1], k->shape[2], size}, .output = output};
    return clattn__layout_check(t, &rule, error);
}

static clattn_status check_lengths(const clattn_tensor *lengths, int64_t batch, clattn__error *error) {
    const clattn__layout_rule rule = {
        .name = "lengths", .rank = 1, .shape = {batch}, .optional = true, .typed = true, .type = CLATTN_I32};
    return clattn__layout_check(lengths, &rule, error);
}

static clattn_status check(const clattn_cas_problem *p, clattn__error *error) {
    const clattn__layout_rule keys = {
        .name = "k", .rank = 4, .shape = {CLATTN__ANY_SIZE, CLATTN__ANY_SIZE, CLATTN__ANY_SIZE, CLATTN__ANY_SIZE}};
    clattn_status status = clattn__layout_check(&p->k, &keys, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const int64_t size = p->k.shape[3];
    if (!clattn__layout_absent(&p->q))
        status = check_tensor(&p->q, "q", &p->k, size, false, error);
    if (status == CLATTN_SUCCESS)
        status = check_tensor(&p->v, "v", &p->k, CLATTN__ANY_SIZE, false, error);
    if (status == CLATTN_SUCCESS)
        status = check_tensor(&p->o, "o", &p->k, p->v.shape[3], true, error);
    if (status == CLATTN_SUCCESS)
        status = check_lengths(&p->lengths, p->k.shape[0], error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("head size of k", size, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("head size of v", p->v.shape[3], 1, INT32_MAX, error);
    for (int axis = 0; axis < 3 && status == CLATTN_SUCCESS; axis++)
        status = clattn__range_check(axis == 0   ? "batch"
                                     : axis == 1 ? "heads"
                                                 : "length",
                                     p->k.shape[axis], 0, INT32_MAX, error);
    if (status == CLATTN_SUCCESS && !isfinite(p->scale))
        status = clattn__fail(error, CLATTN_INVALID_ARGUMENT, "scale is %g, but must be finite", (double)p->scale);
    return status;
}

void clattn__cas_bind(const clattn_cas_problem *p, clattn__plan *plan) {
    clattn__plan_init(plan, CLATTN_CAS_SLOTS);
    if (!clattn__layout_absent(&p->q))
        clattn__plan_bind(plan, CLATTN_CAS_Q, "q", &p->q, true);
    clattn__plan_bind(plan, CLATTN_CAS_K, "k", &p->k, false);
    clattn__plan_bind(plan, CLATTN_CAS_V, "v", &p->v, false);
    if (!clattn__layout_absent(&p->lengths))
        clattn__plan_bind(plan, CLATTN_CAS_LENGTHS, "lengths", &p->lengths, false);
    clattn__plan_bind(plan, CLATTN_CAS_O, "o", &p->o, false);
}

clattn__cas_tensor clattn__cas_tensor_of(int slot, const clattn_tensor *t) {
    return (clattn__cas_tensor){{slot, 0}, t->type, t->stride[0], t->stride[1], t->stride[2]};
}

clattn__cas_shape clattn__cas_shape_of(const clattn_cas_problem *p) {
    return (clattn__cas_shape){
        .batch = p->k.shape[0],
        .heads = p->k.shape[1],
        .length = p->k.shape[2],
        .size = p->v.shape[3],
        .lengths = clattn__slot_of(CLATTN_CAS_LENGTHS, &p->lengths),
    };
}

float clattn__cas_scale_of(const clattn_cas_problem *p) {
    return p->scale != 0 ? p->scale : (float)(1 / sqrt((double)p->k.shape[3]));
}

static clattn__operand reserve(clattn__plan *plan, bool save, int64_t count) {
    return save ? clattn__plan_save(plan, CLATTN_CAS_SAVED, count) : clattn__plan_scratch(plan, count);
}

clattn__cas_core_saved clattn__cas_save_core(clattn__plan *plan, const clattn_cas_problem *p) {
    const clattn__cas_shape shape = clattn__cas_shape_of(p);
    const int64_t rows = shape.batch * shape.heads;
    const clattn__operand none = clattn__none();
    clattn__cas_core_saved saved = {.steps = none, .pool = {none, none}};
    saved.scores = reserve(plan, p->train && !p->causal, rows * shape.length);
    if (!p->causal)
        saved.pool.means = reserve(plan, p->train, rows * shape.size);
    if (p->train && p->causal)
        saved.steps = reserve(plan, true, rows * shape.length * 2);
    else if (p->train)
        saved.pool.states = reserve(plan, true, rows * 2);
    return saved;
}

static void append_stages(const clattn_cas_problem *p, const clattn__target *target, clattn__plan *plan) {
    const clattn__cas_shape shape = clattn__cas_shape_of(p);
    const clattn__cas_tensor k = clattn__cas_tensor_of(CLATTN_CAS_K, &p->k),
                             v = clattn__cas_tensor_of(CLATTN_CAS_V, &p->v),
                             o = clattn__cas_tensor_of(CLATTN_CAS_O, &p->o);
    const clattn__cas_core_saved saved = clattn__cas_save_core(plan, p);
    score_keys(plan, target, &shape, &k, p->k.shape[3], clattn__cas_scale_of(p), saved.scores);
    if (p->causal) {
        clattn__cas_scan(plan, target, &shape, saved.scores, &v, &o, saved.steps);
        return;
    }
    const int64_t span = clattn__cas_span(target, shape.batch * shape.heads, shape.length, BLOCK);
    const clattn__cas_parts parts = sum_parts(plan, target, &shape, saved.scores, &v, &o, span);
    clattn__cas_merge(plan, target, shape.batch, shape.heads, &parts, &saved.pool);
    clattn__cas_spread(plan, target, &shape, saved.pool.means, clattn__none(), &o);
}

clattn_status clattn__cas_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                               clattn__error *error) {
    const clattn_cas_problem *p = problem;
    clattn_status status = check(p, error);
    if (status == CLATTN_SUCCESS && p->train)
        status = clattn__cas_gradients_check(p, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__cas_bind(p, plan);
    if (p->k.shape[0] > 0 && p->k.shape[1] > 0 && p->k.shape[2] > 0)
        append_stages(p, target, plan);
    return CLATTN_SUCCESS;
}
