/* assa, backwards: the caller's problem. */
#include "core/layout.h"
#include "variant/assa_backward.h"

/* ---- checks ---- */

/* Gradients that may be missing: of what the mode may not have. */
static clattn_status check_own(const char *name, const clattn_tensor *tensor, const char *like_name,
                               const clattn_tensor *like, clattn__error *error) {
    if (clattn__layout_absent(tensor))
        return CLATTN_SUCCESS;
    if (clattn__layout_absent(like))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is given, but %s is not", name, like_name);
    clattn_status status = clattn__gradient_check(name, tensor, like, CLATTN_F32, true, error);
    return status == CLATTN_SUCCESS ? clattn__contiguous_check(name, tensor, error) : status;
}

/* What backward reads of what forward wrote for the caller. */
static clattn_status check_left(const clattn_assa_problem *p, clattn__error *error) {
    const struct {
        const char *name;
        const clattn_tensor *tensor;
    } all[] = {{"indices", &p->indices}, {"scores", &p->scores}, {"lse", &p->lse}};
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < 3 && status == CLATTN_SUCCESS; i++)
        if (!clattn__layout_absent(all[i].tensor))
            status = clattn__contiguous_check(all[i].name, all[i].tensor, error);
    if (status == CLATTN_SUCCESS && p->mode == CLATTN_ASSA_TOPK && p->top < p->k.shape[2])
        status = clattn__assa_backward_check(p->q.shape[0] * p->q.shape[1], p->q.shape[2], p->top, error);
    return status;
}

static clattn__gradient_tensors tensors_of(const clattn_assa_problem *p) {
    return (clattn__gradient_tensors){
        CLATTN_ASSA_GRAD_O, {&p->o, &p->q, &p->k, &p->v}, {&p->grad_o, &p->grad_q, &p->grad_k, &p->grad_v}};
}

clattn_status clattn__assa_gradients_check(const clattn_assa_problem *p, clattn__error *error) {
    const clattn__gradient_tensors gradients = tensors_of(p);
    clattn_status status = clattn__gradient_tensors_check(&gradients, error);
    if (status == CLATTN_SUCCESS)
        status = check_own("grad_mix", &p->grad_mix, "mix", &p->mix, error);
    if (status == CLATTN_SUCCESS)
        status = check_own("grad_table", &p->grad_table, "table", &p->table, error);
    return status == CLATTN_SUCCESS ? check_left(p, error) : status;
}

bool clattn__assa_core_trains(const void *problem) { return ((const clattn_assa_problem *)problem)->train; }

/* ---- the plan ---- */

static clattn__core_gradients bind_gradients(clattn__plan *plan, const clattn_assa_problem *p) {
    const clattn__gradient_tensors gradients = tensors_of(p);
    if (!clattn__layout_absent(&p->grad_mix))
        clattn__plan_bind(plan, CLATTN_ASSA_GRAD_MIX, "grad_mix", &p->grad_mix, false);
    if (!clattn__layout_absent(&p->grad_table))
        clattn__plan_bind(plan, CLATTN_ASSA_GRAD_TABLE, "grad_table", &p->grad_table, false);
    return clattn__gradient_tensors_bind(plan, &gradients);
}

static clattn__assa_pairs pairs_of(const clattn_assa_problem *p, const clattn__assa_window *window,
                                   clattn__operand lse) {
    const clattn__sizes sizes = clattn__assa_sizes(p);
    return (clattn__assa_pairs){.sizes = window->side > 0 ? clattn__assa_window_sizes(&sizes, window) : sizes,
                                .tokens = sizes.queries,
                                .q = clattn__view_of(CLATTN_ASSA_Q, &p->q),
                                .k = clattn__view_of(CLATTN_ASSA_K, &p->k),
                                .v = clattn__view_of(CLATTN_ASSA_V, &p->v),
                                .lse = lse,
                                .mix = clattn__none(),
                                .table = clattn__none(),
                                .key_lengths = clattn__slot_of(CLATTN_ASSA_KEY_LENGTHS, &p->key_lengths),
                                .query_lengths = clattn__slot_of(CLATTN_ASSA_QUERY_LENGTHS, &p->query_lengths),
                                .scale = clattn__assa_scale(p),
                                .right = p->causal != CLATTN_CAUSAL_NONE ? 0 : -1,
                                .bottom_right = p->causal == CLATTN_CAUSAL_BOTTOM_RIGHT,
                                .window = *window,
                                .grad_type = CLATTN_F32,
                                .accumulate = p->accumulate};
}

static void append(const clattn_assa_problem *p, const clattn__assa_window *window, const clattn__target *target,
                   clattn__plan *plan) {
    const clattn__core_gradients g = bind_gradients(plan, p);
    const clattn__assa_left left = clattn__assa_leave(plan, p);
    clattn__assa_pairs pairs = pairs_of(p, window, left.lse);
    if (p->mode == CLATTN_ASSA_ADAPTIVE)
        clattn__assa_prepare(plan, target, p, &pairs.mix, &pairs.table);
    if (left.listed)
        clattn__assa_topk_backward(plan, target, &pairs, left.indices, left.scores, p->top,
                                   p->normalise == CLATTN_ASSA_ALL, &g);
    else
        clattn__assa_pairs_backward(plan, target, &pairs, &g, clattn__slot_of(CLATTN_ASSA_GRAD_TABLE, &p->grad_table),
                                    clattn__slot_of(CLATTN_ASSA_GRAD_MIX, &p->grad_mix));
}

clattn_status clattn__assa_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                         clattn__error *error) {
    const clattn_assa_problem *p = problem;
    clattn__assa_window window = {0};
    clattn__plan_init(plan, CLATTN_ASSA_SLOTS);
    clattn__assa_bind(plan, p);
    /* the forward pass has checked everything: this only settles the window */
    const clattn_status status = p->mode == CLATTN_ASSA_ADAPTIVE
                                     ? clattn__assa_window_check(p->window, p->grid, p->shift, &window, error)
                                     : CLATTN_SUCCESS;
    if (status == CLATTN_SUCCESS)
        append(p, &window, target, plan);
    return status;
}
