/* The additive core, backwards: problem -> plan. */
#include "variant/cas_backward.h"

#include "core/layout.h"

clattn_status clattn__cas_gradients_check(const clattn_cas_problem *p, clattn__error *error) {
    clattn_status status = clattn__like_check("grad_o", &p->grad_o, &p->o, false, error);
    if (status == CLATTN_SUCCESS && !clattn__layout_absent(&p->q))
        status = clattn__like_check("grad_q", &p->grad_q, &p->q, true, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__like_check("grad_k", &p->grad_k, &p->k, true, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__like_check("grad_v", &p->grad_v, &p->v, true, error);
    return status;
}

bool clattn__cas_core_trains(const void *problem) { return ((const clattn_cas_problem *)problem)->train; }

static void bind(const clattn_cas_problem *p, clattn__plan *plan) {
    clattn__cas_bind(p, plan);
    clattn__plan_bind(plan, CLATTN_CAS_GRAD_O, "grad_o", &p->grad_o, false);
    if (!clattn__layout_absent(&p->q))
        clattn__plan_bind(plan, CLATTN_CAS_GRAD_Q, "grad_q", &p->grad_q, false);
    clattn__plan_bind(plan, CLATTN_CAS_GRAD_K, "grad_k", &p->grad_k, false);
    clattn__plan_bind(plan, CLATTN_CAS_GRAD_V, "grad_v", &p->grad_v, false);
}

static void over_all(const clattn_cas_problem *p, const clattn__target *target, clattn__plan *plan,
                     const clattn__cas_core_saved *saved, clattn__operand slopes) {
    const clattn__cas_shape shape = clattn__cas_shape_of(p);
    const clattn__cas_tensor v = clattn__cas_tensor_of(CLATTN_CAS_V, &p->v),
                             grad_o = clattn__cas_tensor_of(CLATTN_CAS_GRAD_O, &p->grad_o),
                             grad_v = clattn__cas_tensor_of(CLATTN_CAS_GRAD_V, &p->grad_v);
    const clattn__operand rows = clattn__cas_sum_rows(plan, target, &shape, &grad_o, false);
    const clattn__operand weights = clattn__plan_scratch(plan, shape.batch * shape.heads * shape.length);
    clattn__cas_weigh(plan, target, &shape, saved->scores, weights, &saved->pool, rows, &v, slopes);
    clattn__cas_values_backward(plan, target, &shape, weights, rows, &grad_v);
}

static void over_earlier(const clattn_cas_problem *p, const clattn__target *target, clattn__plan *plan,
                         const clattn__cas_core_saved *saved, clattn__operand slopes) {
    const clattn__cas_shape shape = clattn__cas_shape_of(p);
    clattn__cas_scan_backward(plan, target, &shape,
                              &(clattn__cas_scanned){.v = clattn__cas_tensor_of(CLATTN_CAS_V, &p->v),
                                                     .o = clattn__cas_tensor_of(CLATTN_CAS_O, &p->o),
                                                     .grad_o = clattn__cas_tensor_of(CLATTN_CAS_GRAD_O, &p->grad_o),
                                                     .grad_v = clattn__cas_tensor_of(CLATTN_CAS_GRAD_V, &p->grad_v),
                                                     .steps = saved->steps,
                                                     .slopes = slopes});
}

static void append_stages(const clattn_cas_problem *p, const clattn__target *target, clattn__plan *plan) {
    const clattn__cas_shape shape = clattn__cas_shape_of(p);
    const clattn__cas_core_saved saved = clattn__cas_save_core(plan, p);
    const clattn__operand slopes = clattn__cas_slopes_make(plan, &shape);
    const clattn__cas_tensor grad_q = clattn__cas_tensor_of(CLATTN_CAS_GRAD_Q, &p->grad_q),
                             grad_k = clattn__cas_tensor_of(CLATTN_CAS_GRAD_K, &p->grad_k);
    (p->causal ? over_earlier : over_all)(p, target, plan, &saved, slopes);
    clattn__cas_keys_backward(plan, target, &shape, slopes, clattn__cas_scale_of(p), &grad_k, p->k.shape[3]);
    if (!clattn__layout_absent(&p->q)) /* every score of a query moves with it: no effect */
        clattn__cas_keys_backward(plan, target, &shape, slopes, 0, &grad_q, p->k.shape[3]);
}

clattn_status clattn__cas_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                        clattn__error *error) {
    const clattn_cas_problem *p = problem;
    (void)error; /* checked by forward */
    bind(p, plan);
    if (p->k.shape[0] > 0 && p->k.shape[1] > 0 && p->k.shape[2] > 0)
        append_stages(p, target, plan);
    return CLATTN_SUCCESS;
}
