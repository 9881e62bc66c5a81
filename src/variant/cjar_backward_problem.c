/* cjar, backwards: the caller's problem. */
#include "core/layout.h"
#include "variant/cjar_backward.h"

static clattn__gradient_tensors tensors_of(const clattn_cjar_problem *p) {
    return (clattn__gradient_tensors){
        CLATTN_CJAR_GRAD_O, {&p->o, &p->q, &p->k, &p->v}, {&p->grad_o, &p->grad_q, &p->grad_k, &p->grad_v}};
}

clattn_status clattn__cjar_gradients_check(const clattn_cjar_problem *p, clattn__error *error) {
    const bool memory = !clattn__layout_absent(&p->memory_k), links = !clattn__layout_absent(&p->link_keys);
    const clattn__gradient_tensors gradients = tensors_of(p);
    clattn_status status = clattn__gradient_tensors_check(&gradients, error);
    if (status == CLATTN_SUCCESS && memory)
        status = clattn__gradient_check("grad_memory_k", &p->grad_memory_k, &p->memory_k, CLATTN_F32, true, error);
    if (status == CLATTN_SUCCESS && memory)
        status = clattn__gradient_check("grad_memory_v", &p->grad_memory_v, &p->memory_v, CLATTN_F32, true, error);
    return status == CLATTN_SUCCESS && links ? clattn__cjar_backward_check(p->link_keys.shape[0], error) : status;
}

bool clattn__cjar_core_trains(const void *problem) { return ((const clattn_cjar_problem *)problem)->train; }

/* Both forms of the memory. */
static void pack_memory(clattn__plan *plan, const clattn__target *target, const clattn_cjar_problem *p, clattn__cjar *c,
                        clattn__cjar_gradients *g) {
    const clattn__view k = clattn__cjar_memory_view(CLATTN_CJAR_MEMORY_K, &p->memory_k);
    const clattn__view v = clattn__cjar_memory_view(CLATTN_CJAR_MEMORY_V, &p->memory_v);
    const clattn__stream of_k = {&k, 1, c->sizes.heads, c->memory, c->sizes.head_size, 1};
    const clattn__stream of_v = {&v, 1, c->sizes.heads, c->memory, c->sizes.head_size, 1};
    c->memory_keys = clattn__stream_panels(plan, target, &of_k);
    c->memory_values = clattn__stream_rows(plan, target, &of_v);
    g->memory_key_rows = clattn__stream_rows(plan, target, &of_k);
    g->memory_value_panels = clattn__stream_panels(plan, target, &of_v);
    g->memory_k = clattn__cjar_memory_view(CLATTN_CJAR_GRAD_MEMORY_K, &p->grad_memory_k);
    g->memory_v = clattn__cjar_memory_view(CLATTN_CJAR_GRAD_MEMORY_V, &p->grad_memory_v);
}

clattn_status clattn__cjar_core_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                         clattn__error *error) {
    const clattn_cjar_problem *p = problem;
    (void)error; /* the forward pass has checked everything */
    clattn__plan_init(plan, CLATTN_CJAR_SLOTS);
    clattn__cjar_bind(plan, p);
    const clattn__gradient_tensors gradients = tensors_of(p);
    if (!clattn__layout_absent(&p->memory_k)) {
        clattn__plan_bind(plan, CLATTN_CJAR_GRAD_MEMORY_K, "grad_memory_k", &p->grad_memory_k, false);
        clattn__plan_bind(plan, CLATTN_CJAR_GRAD_MEMORY_V, "grad_memory_v", &p->grad_memory_v, false);
    }
    clattn__cjar c = clattn__cjar_canonical(p, plan);
    clattn__cjar_gradients g = {.core = clattn__gradient_tensors_bind(plan, &gradients),
                                .memory_key_rows = clattn__none(),
                                .memory_value_panels = clattn__none()};
    if (c.memory > 0)
        pack_memory(plan, target, p, &c, &g);
    clattn__cjar_backward_append(plan, target, &c, &g);
    return CLATTN_SUCCESS;
}
