/* Top-k attention as a stage. */
#include <math.h>

#include "variant/assa.h"

static int64_t round_up(int64_t value, int64_t step) { return clattn__ceil_div(value, step) * step; }

/* Entries of a list: room for k, and about as much again before the next cut. */
static int64_t capacity_of(const clattn__tile *tile, int64_t k) { return round_up(2 * k + 4 * tile->vw, tile->vw); }

/* Lists in private or local memory have room for one of these capacities, so that few programs are compiled. */
enum { LEAST_CAP = 64, MOST_CAP = 2048 };

static int64_t shared_cap(const clattn__tile *tile, int64_t k) {
    int64_t cap = LEAST_CAP;
    while (cap < capacity_of(tile, k) && cap <= MOST_CAP)
        cap *= 2;
    return cap;
}

static size_t local_bytes(const clattn__tile *tile, const clattn__sizes *s, int64_t cap) {
    return sizeof(float) * (size_t)(tile->bm * (s->head_size + tile->bn + 1 + 5 + 2 + 2 * cap));
}

/* 0: lists must live in global memory. */
static int64_t choose_cap(const clattn__target *target, const clattn__sizes *s, int64_t k) {
    const clattn__tile *tile = &target->attention;
    const int64_t cap = shared_cap(tile, k);
    const bool fits = tile->wg == 1 || local_bytes(tile, s, cap) <= target->caps.local_bytes;
    return cap <= MOST_CAP && fits ? cap : 0;
}

/* Groups that share the lists in global memory: enough to keep a device busy. */
static int64_t group_limit(const clattn__target *target) {
    return (int64_t)target->caps.compute_units * (target->attention.wg == 1 ? 16 : 4);
}

/* Scores in units of log2 are scale * log2(e) times q.k. Only the power of two of that factor, and its sign, goes into
 * q before the product: it rounds nothing, so scores that are equal stay equal. */
static void add_scale(clattn__plan *plan, clattn__stage *stage, float scale) {
    const double log2_e = 1.4426950408889634;
    int exponent;
    const double unit = frexp(fabs((double)scale) * log2_e, &exponent);
    clattn__stage_float(plan, stage, copysignf(ldexpf(1.0f, exponent), scale));
    clattn__stage_float(plan, stage, (float)unit);
}

static void add_numbers(clattn__plan *plan, clattn__stage *stage, const clattn__assa_topk *t, int64_t k,
                        int64_t capacity, int64_t blocks) {
    clattn__stage_int(plan, stage, (int32_t)t->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)t->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)t->sizes.heads);
    clattn__stage_int(plan, stage, (int32_t)(t->sizes.heads / t->sizes.kv_heads));
    add_scale(plan, stage, t->scale);
    clattn__stage_int(plan, stage, (int32_t)t->right);
    clattn__stage_int(plan, stage, t->bottom_right);
    clattn__stage_int(plan, stage, (int32_t)k);
    clattn__stage_int(plan, stage, (int32_t)t->k);
    clattn__stage_int(plan, stage, (int32_t)capacity);
    clattn__stage_long(plan, stage, blocks);
    clattn__stage_longs(plan, stage, (int64_t[]){t->q.batch_stride, t->q.head_stride, t->q.row_stride}, 3);
    clattn__stage_longs(plan, stage, (int64_t[]){t->packed.key_batch_stride, t->packed.key_head_stride}, 2);
    clattn__stage_longs(plan, stage, (int64_t[]){t->packed.value_batch_stride, t->packed.value_head_stride}, 2);
    clattn__stage_longs(plan, stage, (int64_t[]){t->o.batch_stride, t->o.head_stride, t->o.row_stride}, 3);
    clattn__stage_longs(plan, stage, t->indices_stride, 3);
    clattn__stage_longs(plan, stage, t->scores_stride, 3);
    clattn__stage_longs(plan, stage, t->lse_stride, 3);
}

static void append_select(clattn__plan *plan, const clattn__target *target, const clattn__assa_topk *t, int64_t k) {
    const clattn__tile *tile = &target->attention;
    const int64_t cap = choose_cap(target, &t->sizes, k), capacity = capacity_of(tile, k);
    const int64_t blocks = clattn__ceil_div(t->sizes.queries, tile->bm) * t->sizes.heads * t->sizes.batch;
    const int64_t groups = cap > 0 || blocks < group_limit(target) ? blocks : group_limit(target);
    const int64_t entries = cap > 0 ? 0 : groups * tile->bm * capacity;
    const clattn__operand list_scores = cap > 0 ? clattn__none() : clattn__plan_scratch(plan, entries);
    const clattn__operand list_keys = cap > 0 ? clattn__none() : clattn__plan_scratch(plan, entries);

    clattn__stage *stage = clattn__plan_kernel(plan, "assa_topk", "assa_topk");
    clattn__attention_shape(plan, stage, target, &t->sizes, t->q.type, t->o.type);
    clattn__stage_define(plan, stage, "CAP", cap);
    clattn__stage_define(plan, stage, "NORMALISE_ALL", t->normalise_all);
    clattn__stage_define(plan, stage, "HAS_LISTS", clattn__given(t->indices) || clattn__given(t->scores));
    clattn__stage_define(plan, stage, "HAS_LSE", clattn__given(t->lse));
    const clattn__operand operands[] = {t->q.at, t->packed.keys, t->packed.values, t->o.at,     t->indices, t->scores,
                                        t->lse,  t->key_lengths, t->query_lengths, list_scores, list_keys};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    add_numbers(plan, stage, t, k, capacity, blocks);
    if (tile->wg > 1)
        stage->local_bytes = local_bytes(tile, &t->sizes, cap);
    clattn__stage_range(stage, groups, 1, 1, tile->wg);
}

/* Where k leaves nothing out. */
static void append_all(clattn__plan *plan, const clattn__target *target, const clattn__assa_topk *t) {
    clattn__assa_mixed all = {.sizes = t->sizes,
                              .q = t->q,
                              .o = t->o,
                              .packed = t->packed,
                              .mix = clattn__none(),
                              .table = clattn__none(),
                              .lse = t->lse,
                              .lse_stride = {t->lse_stride[0], t->lse_stride[1], t->lse_stride[2]},
                              .key_lengths = t->key_lengths,
                              .query_lengths = t->query_lengths,
                              .scale = t->scale,
                              .right = t->right,
                              .bottom_right = t->bottom_right};
    clattn__assa_mixed_append(plan, target, &all);
}

void clattn__assa_topk_append(clattn__plan *plan, const clattn__target *target, const clattn__assa_topk *t) {
    const bool listed = clattn__given(t->indices) || clattn__given(t->scores);
    if (t->k >= t->sizes.keys && !listed)
        append_all(plan, target, t);
    else
        append_select(plan, target, t, t->k < t->sizes.keys || t->sizes.keys == 0 ? t->k : t->sizes.keys);
}
