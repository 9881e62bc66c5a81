/* assa: problem -> plan. */
#include "variant/assa_backward.h"

#include <inttypes.h>
#include <math.h>

#include "core/layout.h"

/* ---- checks ---- */

static clattn_status check_numbers(const clattn_assa_problem *p, clattn__error *error) {
    const struct {
        const char *name;
        int64_t value, minimum, maximum;
    } ranges[] = {{"head size of q", p->q.shape[3], 1, INT32_MAX},     {"head size of v", p->v.shape[3], 1, INT32_MAX},
                  {"queries", p->q.shape[2], 0, INT32_MAX / 2},        {"keys", p->k.shape[2], 0, INT32_MAX / 2},
                  {"mode", p->mode, 0, CLATTN_ASSA_ADAPTIVE},          {"normalise", p->normalise, 0, CLATTN_ASSA_ALL},
                  {"causal", p->causal, 0, CLATTN_CAUSAL_BOTTOM_RIGHT}};
    const int64_t h = p->q.shape[1], hkv = p->k.shape[1];
    if (h > 0 && (hkv == 0 || h % hkv != 0))
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "k has %" PRId64 " heads, which do not divide q's %" PRId64,
                            hkv, h);
    if (!isfinite(p->scale))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "scale is %g, but must be finite", (double)p->scale);
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && status == CLATTN_SUCCESS; i++)
        status = clattn__range_check(ranges[i].name, ranges[i].value, ranges[i].minimum, ranges[i].maximum, error);
    return status;
}

/* Optional tensors by slot: what they must be, and the mode that takes them. */
typedef struct extra {
    int slot;
    const clattn_tensor *tensor;
    clattn_assa_mode mode;
    clattn__layout_rule rule;
} extra;

enum { EXTRAS = 7 };

static void list_extras(const clattn_assa_problem *p, extra extras[EXTRAS]) {
    const int64_t b = p->q.shape[0], h = p->q.shape[1], m = p->q.shape[2], k = p->top, line = 2 * p->window - 1;
    const clattn__layout_rule lengths = {.rank = 1, .shape = {b}, .typed = true, .type = CLATTN_I32};
    const extra all[EXTRAS] = {
        {CLATTN_ASSA_INDICES,
         &p->indices,
         CLATTN_ASSA_TOPK,
         {"indices", 4, {b, h, m, k}, .output = true, .typed = true, .type = CLATTN_I32}},
        {CLATTN_ASSA_SCORES, &p->scores, CLATTN_ASSA_TOPK, {"scores", 4, {b, h, m, k}, .output = true}},
        {CLATTN_ASSA_LSE, &p->lse, CLATTN_ASSA_TOPK, {"lse", 3, {b, h, m}, .output = true}},
        {CLATTN_ASSA_KEY_LENGTHS, &p->key_lengths, CLATTN_ASSA_TOPK, lengths},
        {CLATTN_ASSA_QUERY_LENGTHS, &p->query_lengths, CLATTN_ASSA_TOPK, lengths},
        {CLATTN_ASSA_MIX, &p->mix, CLATTN_ASSA_ADAPTIVE, {"mix", 1, {2}, .output = false}},
        {CLATTN_ASSA_TABLE, &p->table, CLATTN_ASSA_ADAPTIVE, {"table", 2, {line * line, h}, .output = false}}};
    for (int i = 0; i < EXTRAS; i++) {
        extras[i] = all[i]; /* numbers among them are f32 */
        extras[i].rule.typed = true;
    }
    extras[3].rule.name = "key_lengths";
    extras[4].rule.name = "query_lengths";
}

static clattn_status check_extra(const clattn_assa_problem *p, const extra *e, clattn__error *error) {
    static const char *const modes[] = {"topk", "adaptive"};
    if (clattn__layout_absent(e->tensor))
        return CLATTN_SUCCESS;
    if (e->mode != p->mode)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is given, but mode is %s, which takes none",
                            e->rule.name, modes[p->mode]);
    clattn_status status = clattn__layout_check(e->tensor, &e->rule, error);
    if (status == CLATTN_SUCCESS && e->slot == CLATTN_ASSA_TABLE)
        status = clattn__contiguous_check(e->rule.name, e->tensor, error);
    return status;
}

static clattn_status check_topk(const clattn_assa_problem *p, clattn__error *error) {
    if (p->window != 0 || p->shift != 0)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "window is %" PRId64 " and shift %" PRId64 ", but mode topk has no windows", p->window,
                            p->shift);
    return clattn__range_check("top", p->top, 1, INT32_MAX / 4, error);
}

static clattn_status check_adaptive(const clattn_assa_problem *p, clattn__assa_window *window, clattn__error *error) {
    const int64_t m = p->q.shape[2], n = p->k.shape[2];
    if (p->causal != CLATTN_CAUSAL_NONE)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "causal is %d, but mode adaptive sees all keys: it must be 0", (int)p->causal);
    if (m != n)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "q has %" PRId64 " rows and k %" PRId64 ", but mode adaptive needs as many", m, n);
    if (clattn__layout_absent(&p->mix))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "mix is missing, but mode adaptive needs it");
    clattn_status status = clattn__assa_window_check(p->window, p->grid, p->shift, window, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__assa_length_check(window, n, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (clattn__layout_absent(&p->table) != (p->window == 0))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "window is %" PRId64 ", but table is %s", p->window,
                            p->window == 0 ? "given" : "missing");
    return CLATTN_SUCCESS;
}

static clattn_status check(const clattn_assa_problem *p, clattn__assa_window *window, clattn__error *error) {
    extra extras[EXTRAS];
    clattn_status status = clattn__qkvo_check(&p->q, &p->k, &p->v, &p->o, error);
    if (status == CLATTN_SUCCESS)
        status = check_numbers(p, error);
    if (status == CLATTN_SUCCESS)
        status = p->mode == CLATTN_ASSA_TOPK ? check_topk(p, error) : check_adaptive(p, window, error);
    if (status == CLATTN_SUCCESS)
        list_extras(p, extras);
    for (int i = 0; i < EXTRAS && status == CLATTN_SUCCESS; i++)
        status = check_extra(p, &extras[i], error);
    return status == CLATTN_SUCCESS && p->train ? clattn__assa_gradients_check(p, error) : status;
}

/* ---- the plan ---- */

void clattn__assa_bind(clattn__plan *plan, const clattn_assa_problem *p) {
    extra extras[EXTRAS];
    list_extras(p, extras);
    clattn__plan_bind(plan, CLATTN_ASSA_Q, "q", &p->q, false);
    clattn__plan_bind(plan, CLATTN_ASSA_K, "k", &p->k, false);
    clattn__plan_bind(plan, CLATTN_ASSA_V, "v", &p->v, false);
    clattn__plan_bind(plan, CLATTN_ASSA_O, "o", &p->o, false);
    for (int i = 0; i < EXTRAS; i++)
        if (!clattn__layout_absent(extras[i].tensor))
            clattn__plan_bind(plan, extras[i].slot, extras[i].rule.name, extras[i].tensor, false);
}

clattn__sizes clattn__assa_sizes(const clattn_assa_problem *p) {
    return (clattn__sizes){p->q.shape[0], p->q.shape[1], p->k.shape[1], p->q.shape[2],
                           p->k.shape[2], p->q.shape[3], p->v.shape[3]};
}

float clattn__assa_scale(const clattn_assa_problem *p) {
    return p->scale != 0 ? p->scale : 1.0f / sqrtf((float)p->q.shape[3]);
}

static clattn__operand leave(clattn__plan *plan, int slot, const clattn_tensor *tensor, bool wanted, int64_t count) {
    if (clattn__layout_absent(tensor) && wanted)
        return clattn__plan_save(plan, CLATTN_ASSA_SAVED, count);
    return clattn__slot_of(slot, tensor);
}

clattn__assa_left clattn__assa_leave(clattn__plan *plan, const clattn_assa_problem *p) {
    const int64_t rows = p->q.shape[0] * p->q.shape[1] * p->q.shape[2];
    const bool listed = p->mode == CLATTN_ASSA_TOPK && p->top < p->k.shape[2];
    const bool lists = p->train && listed, lse = p->train && (!listed || p->normalise == CLATTN_ASSA_ALL);
    clattn__assa_left l = {.listed = listed};
    l.indices = leave(plan, CLATTN_ASSA_INDICES, &p->indices, lists, lists ? rows * p->top : 0);
    l.scores = leave(plan, CLATTN_ASSA_SCORES, &p->scores, lists, lists ? rows * p->top : 0);
    l.lse = leave(plan, CLATTN_ASSA_LSE, &p->lse, lse, rows);
    return l;
}

/* Those of the caller's tensor; of none, those of [.., rows, columns] in order. */
static void strides_of(const clattn_tensor *tensor, int64_t heads, int64_t rows, int64_t columns, int64_t stride[3]) {
    const int64_t contiguous[] = {heads * rows * columns, rows * columns, columns};
    for (int i = 0; i < 3; i++)
        stride[i] = clattn__layout_absent(tensor) ? contiguous[i] : tensor->stride[i];
}

static void plan_topk(const clattn_assa_problem *p, const clattn__target *target, clattn__plan *plan) {
    const clattn__view k = clattn__view_of(CLATTN_ASSA_K, &p->k), v = clattn__view_of(CLATTN_ASSA_V, &p->v);
    const clattn__assa_left left = clattn__assa_leave(plan, p);
    const int64_t heads = p->q.shape[1], rows = p->q.shape[2];
    clattn__assa_topk t = {.sizes = clattn__assa_sizes(p),
                           .q = clattn__view_of(CLATTN_ASSA_Q, &p->q),
                           .o = clattn__view_of(CLATTN_ASSA_O, &p->o),
                           .indices = left.indices,
                           .scores = left.scores,
                           .lse = left.lse,
                           .key_lengths = clattn__slot_of(CLATTN_ASSA_KEY_LENGTHS, &p->key_lengths),
                           .query_lengths = clattn__slot_of(CLATTN_ASSA_QUERY_LENGTHS, &p->query_lengths),
                           .scale = clattn__assa_scale(p),
                           .k = p->top,
                           .right = p->causal != CLATTN_CAUSAL_NONE ? 0 : -1,
                           .bottom_right = p->causal == CLATTN_CAUSAL_BOTTOM_RIGHT,
                           .normalise_all = p->normalise == CLATTN_ASSA_ALL};
    strides_of(&p->indices, heads, rows, p->top, t.indices_stride);
    strides_of(&p->scores, heads, rows, p->top, t.scores_stride);
    strides_of(&p->lse, heads, rows, 1, t.lse_stride);
    t.packed = clattn__packed_reserve(plan, target, &t.sizes);
    clattn__packed_keys(plan, target, &t.sizes, &k, &t.packed);
    clattn__packed_values(plan, target, &t.sizes, &v, &t.packed);
    clattn__assa_topk_append(plan, target, &t);
}

void clattn__assa_prepare(clattn__plan *plan, const clattn__target *target, const clattn_assa_problem *p,
                          clattn__operand *mix, clattn__operand *table) {
    const int64_t heads = p->q.shape[1];
    *mix = clattn__plan_scratch(plan, CLATTN__ASSA_MIX_FLOATS);
    *table = clattn__none();
    clattn__assa_mix(plan, target, clattn__slot(CLATTN_ASSA_MIX), *mix);
    if (p->window == 0)
        return;
    *table = clattn__plan_scratch(plan, clattn__assa_table_floats(p->window, heads));
    clattn__assa_table(plan, target, p->window, heads, clattn__slot(CLATTN_ASSA_TABLE), *table);
}

static void plan_adaptive(const clattn_assa_problem *p, const clattn__assa_window *window, const clattn__target *target,
                          clattn__plan *plan) {
    const clattn__view k = clattn__view_of(CLATTN_ASSA_K, &p->k), v = clattn__view_of(CLATTN_ASSA_V, &p->v);
    clattn__assa_mixed m = {.sizes = clattn__assa_sizes(p),
                            .q = clattn__view_of(CLATTN_ASSA_Q, &p->q),
                            .o = clattn__view_of(CLATTN_ASSA_O, &p->o),
                            .lse = clattn__assa_leave(plan, p).lse,
                            .key_lengths = clattn__none(),
                            .query_lengths = clattn__none(),
                            .scale = clattn__assa_scale(p),
                            .right = -1,
                            .window = *window};
    strides_of(&p->lse, m.sizes.heads, m.sizes.queries, 1, m.lse_stride);
    clattn__assa_prepare(plan, target, p, &m.mix, &m.table);
    if (window->side > 0)
        m.sizes = clattn__assa_window_sizes(&m.sizes, window);
    m.packed = clattn__packed_reserve(plan, target, &m.sizes);
    if (window->side > 0) {
        clattn__assa_window_keys(plan, target, &m.sizes, window, &k, &m.packed);
        clattn__assa_window_values(plan, target, &m.sizes, window, &v, &m.packed);
    } else {
        clattn__packed_keys(plan, target, &m.sizes, &k, &m.packed);
        clattn__packed_values(plan, target, &m.sizes, &v, &m.packed);
    }
    clattn__assa_mixed_append(plan, target, &m);
}

clattn_status clattn__assa_core(const void *problem, const clattn__target *target, clattn__plan *plan,
                                clattn__error *error) {
    const clattn_assa_problem *p = problem;
    clattn__assa_window window = {0};
    clattn__plan_init(plan, CLATTN_ASSA_SLOTS);
    clattn_status status = check(p, &window, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__assa_bind(plan, p);
    const clattn__sizes sizes = clattn__assa_sizes(p);
    status = clattn__head_sizes_check(&sizes, error);
    if (status != CLATTN_SUCCESS || sizes.batch == 0 || sizes.heads == 0 || sizes.queries == 0)
        return status;
    if (p->mode == CLATTN_ASSA_TOPK)
        plan_topk(p, target, plan);
    else
        plan_adaptive(p, &window, target, plan);
    return CLATTN_SUCCESS;
}
