/* cjar, backwards: the caller's problem. */
#include "core/layout.h"
#include "variant/cjar_backward.h"

static const clattn__operand absent = {CLATTN__SLOT_NONE, 0};

clattn_status clattn__cjar_gradients_check(const clattn_cjar_problem *p, clattn__error *error) {
    const bool memory = !clattn__layout_absent(&p->memory_k), links = !clattn__layout_absent(&p->link_keys);
    clattn_status status = clattn__gradient_check("grad_o", &p->grad_o, &p->o, p->q.type, false, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__gradient_check("grad_q", &p->grad_q, &p->q, p->q.type, true, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__gradient_check("grad_k", &p->grad_k, &p->k, p->q.type, true, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__gradient_check("grad_v", &p->grad_v, &p->v, p->q.type, true, error);
    if (status == CLATTN_SUCCESS && memory)
        status = clattn__gradient_check("grad_memory_k", &p->grad_memory_k, &p->memory_k, CLATTN_F32, true, error);
    if (status == CLATTN_SUCCESS && memory)
        status = clattn__gradient_check("grad_memory_v", &p->grad_memory_v, &p->memory_v, CLATTN_F32, true, error);
    return status == CLATTN_SUCCESS && links ? clattn__cjar_backward_check(p->link_keys.shape[0], error) : status;
}

bool clattn__cjar_core_trains(const void *problem) { return ((const clattn_cjar_problem *)problem)->train; }

static void bind_gradients(clattn__plan *plan, const clattn_cjar_problem *p) {
    const struct {
        int slot;
        const char *name;
        const clattn_tensor *tensor;
    } tensors[] = {{CLATTN_CJAR_GRAD_O, "grad_o", &p->grad_o},
                   {CLATTN_CJAR_GRAD_Q, "grad_q", &p->grad_q},
                   {CLATTN_CJAR_GRAD_K, "grad_k", &p->grad_k},
                   {CLATTN_CJAR_GRAD_V, "grad_v", &p->grad_v},
                   {CLATTN_CJAR_GRAD_MEMORY_K, "grad_memory_k", &p->grad_memory_k},
                   {CLATTN_CJAR_GRAD_MEMORY_V, "grad_memory_v", &p->grad_memory_v}};
    const size_t count = clattn__layout_absent(&p->memory_k) ? 4 : 6;
    for (size_t i = 0; i < count; i++)
        clattn__plan_bind(plan, tensors[i].slot, tensors[i].name, tensors[i].tensor, false);
}

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
    bind_gradients(plan, p);
    clattn__cjar c = clattn__cjar_canonical(p, plan);
    clattn__cjar_gradients g = {.core = {.o = clattn__view_of(CLATTN_CJAR_GRAD_O, &p->grad_o),
                                         .q = clattn__view_of(CLATTN_CJAR_GRAD_Q, &p->grad_q),
                                         .k = clattn__view_of(CLATTN_CJAR_GRAD_K, &p->grad_k),
                                         .v = clattn__view_of(CLATTN_CJAR_GRAD_V, &p->grad_v)},
                                .memory_key_rows = absent,
                                .memory_value_panels = absent};
    if (c.memory > 0)
        pack_memory(plan, target, p, &c, &g);
    clattn__cjar_backward_append(plan, target, &c, &g);
    return CLATTN_SUCCESS;
}
