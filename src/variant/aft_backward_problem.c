/* aft: the public problem's backward pass. */
#include "core/layout.h"
#include "variant/aft_backward.h"
#include "variant/aft_problem.h"

/* Gradient slots, the tensor that each is like, and whether the caller may do without. */
static const struct gradient {
    int slot, like;
    bool optional;
    const char *name, *like_name;
} gradients[] = {
    {CLATTN_AFT_GRAD_Y, CLATTN_AFT_Y, false, "grad_y", "y"},
    {CLATTN_AFT_GRAD_Q, CLATTN_AFT_Q, false, "grad_q", "q"},
    {CLATTN_AFT_GRAD_K, CLATTN_AFT_K, false, "grad_k", "k"},
    {CLATTN_AFT_GRAD_V, CLATTN_AFT_V, false, "grad_v", "v"},
    {CLATTN_AFT_GRAD_POSITION, CLATTN_AFT_POSITION, true, "grad_position", "position"},
    {CLATTN_AFT_GRAD_W, CLATTN_AFT_W, true, "grad_w", "w"},
    {CLATTN_AFT_GRAD_W_LEFT, CLATTN_AFT_W_LEFT, true, "grad_w_left", "w_left"},
    {CLATTN_AFT_GRAD_W_RIGHT, CLATTN_AFT_W_RIGHT, true, "grad_w_right", "w_right"},
    {CLATTN_AFT_GRAD_TAPS, CLATTN_AFT_TAPS, true, "grad_taps", "taps"},
};

enum { GRADIENTS = sizeof gradients / sizeof *gradients };

static bool absent(const clattn_aft_problem *p, int slot) { return clattn__layout_absent(&p->tensor[slot]); }

static clattn_status check_one(const clattn_aft_problem *p, const struct gradient *g, clattn__error *error) {
    const clattn_tensor *tensor = &p->tensor[g->slot], *like = &p->tensor[g->like];
    if (g->optional && absent(p, g->slot))
        return CLATTN_SUCCESS;
    if (absent(p, g->like))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is given, but %s is not", g->name, g->like_name);
    return clattn__gradient_check(g->name, tensor, like, like->type, g->slot != CLATTN_AFT_GRAD_Y, error);
}

/* Is what a gradient belongs to read by the mode? */
static bool takes(const clattn_aft_problem *p, int like) {
    const bool biased = p->mode == CLATTN_AFT_FULL || p->mode == CLATTN_AFT_LOCAL;
    switch (like) {
    case CLATTN_AFT_POSITION:
        return p->mode == CLATTN_AFT_GATED || p->mode == CLATTN_AFT_GATED_MATRIX;
    case CLATTN_AFT_W:
        return biased && !absent(p, CLATTN_AFT_W);
    case CLATTN_AFT_W_LEFT:
    case CLATTN_AFT_W_RIGHT:
        return biased && absent(p, CLATTN_AFT_W);
    case CLATTN_AFT_TAPS:
        return p->mode == CLATTN_AFT_CONV;
    default:
        return true;
    }
}

clattn_status clattn__aft_gradients_check(const clattn_aft_problem *p, clattn__error *error) {
    for (int i = 0; i < GRADIENTS; i++) {
        const struct gradient *g = &gradients[i];
        if (!absent(p, g->slot) && !takes(p, g->like))
            return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is given, but the mode does not read %s", g->name,
                                g->like_name);
        const clattn_status status = check_one(p, g, error);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    return CLATTN_SUCCESS;
}

bool clattn__aft_problem_trains(const void *problem) { return ((const clattn_aft_problem *)problem)->train; }

/* ---- the plan ---- */

static clattn__aft_view view(const clattn_aft_problem *p, int slot) {
    const int64_t *stride = p->tensor[slot].stride;
    return (clattn__aft_view){{slot, 0}, stride[0], stride[1], stride[2]};
}

static clattn__aft_table table(const clattn_aft_problem *p, int slot) {
    const clattn_tensor *t = &p->tensor[slot];
    return absent(p, slot) ? (clattn__aft_table){clattn__none(), 0, 0}
                           : (clattn__aft_table){{slot, 0}, t->shape[0], t->stride[0]};
}

static clattn__aft_rows factor(const clattn_aft_problem *p, int slot) {
    return (clattn__aft_rows){{slot, 0}, p->tensor[slot].stride[0]};
}

/* The factors of w: FULL's core has the right one transposed already. */
static void factors(clattn__plan *plan, const clattn__target *target, const clattn_aft_problem *p,
                    const clattn__aft *aft, clattn__aft_gradients *grad) {
    grad->rank = p->tensor[CLATTN_AFT_W_LEFT].shape[1];
    grad->left_rows = factor(p, CLATTN_AFT_W_LEFT);
    if (aft->rank > 0) {
        grad->right_columns = (clattn__aft_rows){aft->factor, aft->columns};
        return;
    }
    const int64_t columns = clattn__aft_columns(aft->length);
    grad->right_columns = (clattn__aft_rows){clattn__plan_scratch(plan, grad->rank * columns), columns};
    clattn__aft_transpose(plan, target, factor(p, CLATTN_AFT_W_RIGHT), grad->right_columns.at, aft->length, grad->rank,
                          columns);
}

static clattn__aft_gradients gradients_of(const clattn_aft_problem *p) {
    clattn__aft_gradients grad = clattn__aft_gradients_none(CLATTN_F32, false);
    grad.y = view(p, CLATTN_AFT_GRAD_Y);
    grad.q = view(p, CLATTN_AFT_GRAD_Q);
    grad.k = view(p, CLATTN_AFT_GRAD_K);
    grad.v = view(p, CLATTN_AFT_GRAD_V);
    if (!absent(p, CLATTN_AFT_GRAD_POSITION))
        grad.position = clattn__slot(CLATTN_AFT_GRAD_POSITION);
    grad.w = table(p, CLATTN_AFT_GRAD_W);
    grad.left = table(p, CLATTN_AFT_GRAD_W_LEFT);
    grad.right = table(p, CLATTN_AFT_GRAD_W_RIGHT);
    grad.taps = table(p, CLATTN_AFT_GRAD_TAPS);
    return grad;
}

clattn_status clattn__aft_problem_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                           clattn__error *error) {
    const clattn_aft_problem *p = problem;
    (void)error; /* the forward pass has checked everything */
    const clattn__aft aft = clattn__aft_problem_core(p, target, plan);
    clattn__aft_gradients grad = gradients_of(p);
    if (clattn__given(grad.left.at) || clattn__given(grad.right.at))
        factors(plan, target, p, &aft, &grad);
    if (p->mode != CLATTN_AFT_GATED)
        plan->bindings[CLATTN_AFT_Y].optional = true;
    for (int i = 0; i < GRADIENTS; i++)
        if (!absent(p, gradients[i].slot))
            clattn__plan_bind(plan, gradients[i].slot, gradients[i].name, &p->tensor[gradients[i].slot], false);
    clattn__aft_backward(plan, target, &aft, &grad);
    return CLATTN_SUCCESS;
}
