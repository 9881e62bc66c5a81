/* assa, backwards: the lists of top-k. */
#include "variant/assa_backward.h"

#include <inttypes.h>

#include "core/tile.h"

static clattn__stage *kernel(clattn__plan *plan, const clattn__target *target, const char *file, const char *name,
                             const clattn__assa_pairs *p, clattn_type grad_type) {
    clattn__stage *stage = clattn__plan_kernel(plan, file, name);
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "D", p->sizes.head_size);
    clattn__stage_define(plan, stage, "DV", p->sizes.value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", p->q.type);
    clattn__stage_define(plan, stage, "TYPE_O", grad_type);
    return stage;
}

static int32_t heads_per_kv(const clattn__assa_pairs *p) {
    return p->sizes.kv_heads > 0 ? (int32_t)(p->sizes.heads / p->sizes.kv_heads) : 0;
}

static void add_view(clattn__plan *plan, clattn__stage *stage, const clattn__view *view) {
    clattn__stage_operand(plan, stage, view->at);
    clattn__stage_strides(plan, stage, view);
}

static void add_ints(clattn__plan *plan, clattn__stage *stage, const int64_t *list, int count) {
    for (int i = 0; i < count; i++)
        clattn__stage_int(plan, stage, (int32_t)list[i]);
}

clattn_status clattn__assa_backward_check(int64_t heads, int64_t queries, int64_t k, clattn__error *error) {
    const int64_t most = INT64_C(1) << 47;
    if (queries > 0 && k > INT32_MAX / queries)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "assa backward: %" PRId64 " queries with %" PRId64 " kept keys each, at most %" PRId32
                            " pairs a head",
                            queries, k, INT32_MAX);
    if (queries > 0 && heads > most / (queries * k))
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "assa backward: %" PRId64 " heads with %" PRId64 " kept pairs each, at most %" PRId64
                            " pairs in all",
                            heads, queries * k, most);
    return CLATTN_SUCCESS;
}

/* What the four stages pass on. rows: packed. by_key: queries, weights and grad_s of the pairs in the order of keys.
 * rest: of `all`, dQ and dK of what the lists do not hold, in f32. */
typedef struct lists {
    clattn__operand q_rows, k_rows, v_rows, o_rows;
    clattn__operand indices, scores, weights, grad_s, sums, starts, by_key[3];
    clattn__view rest_q, rest_k;
    int64_t k;
    bool all;
} lists;

static clattn__operand rows_of(clattn__plan *plan, const clattn__target *target, const clattn__view *view,
                               const clattn__sizes *s, int64_t heads, int64_t rows, int64_t width) {
    const clattn__stream stream = {view, s->batch, heads, rows, width, 1};
    return clattn__stream_rows(plan, target, &stream);
}

static void list_reserve(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p, lists *l,
                         const clattn__core_gradients *g) {
    const clattn__sizes *s = &p->sizes;
    const int64_t heads = s->batch * s->heads, rows = heads * s->queries, vw = target->attention.vw;
    const int64_t line = clattn__ceil_div(l->k, vw) * vw;
    l->q_rows = rows_of(plan, target, &p->q, s, s->heads, s->queries, s->head_size);
    l->k_rows = rows_of(plan, target, &p->k, s, s->kv_heads, s->keys, s->head_size);
    l->v_rows = rows_of(plan, target, &p->v, s, s->kv_heads, s->keys, s->value_size);
    l->o_rows = rows_of(plan, target, &g->o, s, s->heads, s->queries, s->value_size);
    l->weights = clattn__plan_scratch(plan, rows * line);
    l->grad_s = clattn__plan_scratch(plan, rows * line);
    l->sums = clattn__plan_scratch(plan, rows);
    l->starts = clattn__plan_scratch(plan, heads * (s->keys + 1));
    for (int i = 0; i < 3; i++)
        l->by_key[i] = clattn__plan_scratch(plan, rows * l->k);
}

static clattn__stage *list_stage(clattn__plan *plan, const clattn__target *target, const char *name,
                                 const clattn__assa_pairs *p, const lists *l, const clattn__core_gradients *g) {
    clattn__stage *stage = kernel(plan, target, "assa_backward", name, p, g->q.type);
    clattn__stage_define(plan, stage, "NORMALISE_ALL", l->all);
    return stage;
}

static void add_list_sizes(clattn__plan *plan, clattn__stage *stage, const clattn__assa_pairs *p, const lists *l) {
    add_ints(plan, stage, (int64_t[]){p->sizes.queries, p->sizes.keys, p->sizes.heads, l->k}, 4);
}

static void list_weights(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p, const lists *l,
                         const clattn__core_gradients *g) {
    clattn__stage *stage = list_stage(plan, target, "assa_backward_weights", p, l, g);
    clattn__stage_operands(
        plan, stage,
        (clattn__operand[]){l->o_rows, l->v_rows, l->indices, l->scores, p->lse, l->weights, l->grad_s, l->sums}, 8);
    add_list_sizes(plan, stage, p, l);
    clattn__stage_int(plan, stage, heads_per_kv(p));
    clattn__stage_range(stage, p->sizes.queries, p->sizes.heads, p->sizes.batch, 1);
}

static void list_queries(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p, const lists *l,
                         const clattn__core_gradients *g) {
    clattn__stage *stage = list_stage(plan, target, "assa_backward_queries", p, l, g);
    clattn__stage_operands(plan, stage, (clattn__operand[]){l->k_rows, l->indices, l->grad_s}, 3);
    add_view(plan, stage, &l->rest_q);
    add_view(plan, stage, &g->q);
    add_list_sizes(plan, stage, p, l);
    clattn__stage_int(plan, stage, heads_per_kv(p));
    clattn__stage_float(plan, stage, p->scale);
    clattn__stage_range(stage, p->sizes.queries, p->sizes.heads, p->sizes.batch, 1);
}

static void list_keys(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p, const lists *l,
                      const clattn__core_gradients *g) {
    clattn__stage *stage = list_stage(plan, target, "assa_backward_transpose", p, l, g);
    clattn__stage_operands(plan, stage, (clattn__operand[]){l->indices, l->weights, l->grad_s, l->starts}, 4);
    clattn__stage_operands(plan, stage, l->by_key, 3);
    add_list_sizes(plan, stage, p, l);
    clattn__stage_range(stage, p->sizes.heads, p->sizes.batch, 1, 1);
    stage = list_stage(plan, target, "assa_backward_keys", p, l, g);
    clattn__stage_operands(plan, stage, (clattn__operand[]){l->q_rows, l->o_rows, l->starts}, 3);
    clattn__stage_operands(plan, stage, l->by_key, 3);
    add_view(plan, stage, &l->rest_k);
    add_view(plan, stage, &g->k);
    add_view(plan, stage, &g->v);
    add_list_sizes(plan, stage, p, l);
    clattn__stage_int(plan, stage, heads_per_kv(p));
    clattn__stage_float(plan, stage, p->scale);
    clattn__stage_range(stage, p->sizes.keys, p->sizes.kv_heads, p->sizes.batch, 1);
}

/* A sum in f32 [batch, heads, rows, D]: the gradient's own memory, or scratch where that is coarser. */
static clattn__view sum_of(clattn__plan *plan, const clattn__assa_pairs *p, const clattn__view *grad, int64_t heads,
                           int64_t rows) {
    const int64_t d = p->sizes.head_size;
    if (grad->type == CLATTN_F32)
        return *grad;
    return (clattn__view){clattn__plan_scratch(plan, p->sizes.batch * heads * rows * d), CLATTN_F32, heads * rows * d,
                          rows * d, d};
}

static void list_rest(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p, lists *l,
                      const clattn__core_gradients *g) {
    l->rest_q = sum_of(plan, p, &g->q, p->sizes.heads, p->sizes.queries);
    l->rest_k = sum_of(plan, p, &g->k, p->sizes.kv_heads, p->sizes.keys);
    const clattn__core_gradients rest = {.o = g->o, .q = l->rest_q, .k = l->rest_k, .v = {.at = clattn__none()}};
    clattn__assa_rest_backward(plan, target, p, &rest, l->sums);
}

void clattn__assa_topk_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *p,
                                clattn__operand indices, clattn__operand scores, int64_t k, bool normalise_all,
                                const clattn__core_gradients *g) {
    const uint64_t mark = plan->workspace_used;
    lists l = {.indices = indices,
               .scores = scores,
               .rest_q = {.at = clattn__none()},
               .rest_k = {.at = clattn__none()},
               .k = k,
               .all = normalise_all};
    list_reserve(plan, target, p, &l, g);
    list_weights(plan, target, p, &l, g);
    if (normalise_all) /* what every visible key gets, first; the lists add to it */
        list_rest(plan, target, p, &l, g);
    list_queries(plan, target, p, &l, g);
    list_keys(plan, target, p, &l, g);
    clattn__plan_release(plan, mark);
}
