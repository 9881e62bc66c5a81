/* aft: a layer's backward pass. */
#include "variant/aft_backward.h"
#include "core/fill.h"
#include "layer/aft.h"

static clattn__operand weight(int index) { return clattn__slot(CLATTN_LAYER_GRAD_WEIGHTS + index); }

/* Gradients of projections of x that are made in one product lie side by side: `in`; of the one that stands alone,
 * if any: `alone`. */
typedef struct sides {
    clattn__aft_split how;
    clattn__operand in, alone;
} sides;

clattn__linear_grad clattn__aft_linear_grad(const clattn_layer_shape *shape, clattn__linear linear, int weights) {
    return (clattn__linear_grad){.linear = linear,
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x_batch_stride = shape->length * linear.in,
                                 .x_row_stride = linear.in,
                                 .lengths = clattn__none(),
                                 .resident = clattn__resident(weights),
                                 .grad_type = shape->grad_type,
                                 .accumulate = shape->accumulate};
}

/* The output projection reads y, which is 0 at padding. */
void clattn__aft_output_backward(const clattn_layer_shape *shape, const clattn__target *target, clattn__plan *plan,
                                 const clattn__aft *aft, clattn__operand dy) {
    const int64_t d = aft->heads * aft->head_size;
    clattn__linear_grad grad = clattn__aft_linear_grad(shape, (clattn__linear){d, d, 1, true}, RESIDENT_OUT);
    grad.x = aft->y.at;
    grad.dy = clattn__slot(CLATTN_LAYER_GRAD_Y);
    grad.dy_type = shape->type;
    grad.dx = dy;
    grad.dw[0] = weight(CLATTN__AFT_WO);
    grad.db[0] = weight(CLATTN__AFT_BO);
    clattn__linear_backward(plan, target, &grad);
}

static clattn__aft_view section(clattn__operand at, const clattn_layer_shape *shape, int64_t row, int64_t offset,
                                int64_t head) {
    at.offset += offset;
    return clattn__aft_rows_view(at, shape, row, head);
}

static sides place(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                   clattn__plan *plan, clattn__aft_gradients *grad) {
    const int64_t d = desc->model_size, head = d / desc->heads, rows = shape->batch * shape->length;
    const int64_t keys = clattn__aft_key_columns(desc);
    sides s = {clattn__aft_split_of(desc, target), clattn__none(), clattn__none()};
    const int64_t row = s.how == CLATTN__AFT_TOGETHER ? 3 * d : 2 * d;
    s.in = clattn__plan_scratch(plan, rows * row);
    if (s.how != CLATTN__AFT_TOGETHER)
        s.alone = clattn__plan_scratch(plan, rows * (s.how == CLATTN__AFT_KEY_ALONE ? keys : d));
    grad->q =
        s.how == CLATTN__AFT_GATE_ALONE ? section(s.alone, shape, d, 0, head) : section(s.in, shape, row, 0, head);
    grad->k = s.how == CLATTN__AFT_KEY_ALONE ? section(s.alone, shape, keys, 0, 1)
                                             : section(s.in, shape, row, s.how == CLATTN__AFT_TOGETHER ? d : 0, head);
    grad->v = section(s.in, shape, row, row - d, head);
    return s;
}

static void project(const clattn_layer_shape *shape, const clattn__target *target, clattn__plan *plan,
                    const clattn__linear *linear, int weights, clattn__operand dy, const int *names, bool averages,
                    bool add) {
    clattn__linear_grad grad = clattn__aft_linear_grad(shape, *linear, weights);
    grad.x = clattn__slot(CLATTN_LAYER_X);
    grad.x_type = shape->type;
    if (shape->has_lengths)
        grad.lengths = clattn__slot(CLATTN_LAYER_LENGTHS);
    grad.dy = dy;
    grad.dx = clattn__slot(CLATTN_LAYER_GRAD_X);
    grad.dx_type = shape->type;
    grad.add_dx = add;
    for (int i = 0; i < CLATTN__MAX_SECTIONS; i++) {
        grad.dw[i] = i < linear->sections ? weight(names[i]) : clattn__none();
        grad.db[i] =
            i < linear->sections && !(averages && names[i] == CLATTN__AFT_WK) ? weight(names[i] + 1) : clattn__none();
    }
    clattn__linear_backward(plan, target, &grad);
}

/* The same number added to every key leaves averages as they are. */
static void no_key_bias(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan) {
    if (!shape->accumulate)
        clattn__fill_append(plan, weight(CLATTN__AFT_BK), clattn__aft_key_columns(desc), shape->grad_type, 0);
}

static void input(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                  clattn__plan *plan, const sides *s) {
    static const int together[][3] = {
        [CLATTN__AFT_TOGETHER] = {CLATTN__AFT_WQ, CLATTN__AFT_WK, CLATTN__AFT_WV},
        [CLATTN__AFT_GATE_ALONE] = {CLATTN__AFT_WK, CLATTN__AFT_WV},
        [CLATTN__AFT_KEY_ALONE] = {CLATTN__AFT_WQ, CLATTN__AFT_WV},
    };
    const bool averages = !clattn__aft_is_gated(desc->mode);
    const int lone = s->how == CLATTN__AFT_KEY_ALONE ? CLATTN__AFT_WK : CLATTN__AFT_WQ;
    const clattn__linear in = clattn__aft_linear_in(desc, s->how), alone = clattn__aft_linear_alone(desc, s->how);
    project(shape, target, plan, &in, RESIDENT_IN, s->in, together[s->how], averages, false);
    if (s->how != CLATTN__AFT_TOGETHER)
        project(shape, target, plan, &alone, RESIDENT_ALONE, s->alone, &lone, averages, true);
    if (averages)
        no_key_bias(desc, shape, plan);
}

/* ---- what stands beside the keys ---- */

static void factors(const clattn_aft_layer_desc *desc, clattn__aft_gradients *grad) {
    const int64_t rank = desc->rank, T = desc->max_length;
    grad->rank = rank;
    grad->left = (clattn__aft_table){weight(CLATTN__AFT_EXTRA), T, rank};
    grad->right = (clattn__aft_table){weight(CLATTN__AFT_EXTRA + 1), T, rank};
    grad->left_rows = (clattn__aft_rows){clattn__resident(RESIDENT_BIAS), rank};
    grad->right_columns = (clattn__aft_rows){clattn__resident(RESIDENT_FACTOR), clattn__aft_columns(T)};
    if (desc->mode == CLATTN_AFT_LOCAL) {
        grad->left_rows.at = clattn__resident(RESIDENT_FACTOR);
        grad->right_columns.at.offset += T * rank;
    }
}

static void extras(const clattn_aft_layer_desc *desc, clattn__aft_gradients *grad) {
    const clattn__operand first = weight(CLATTN__AFT_EXTRA);
    if (clattn__aft_is_gated(desc->mode)) {
        grad->position = first;
    } else if (desc->mode == CLATTN_AFT_CONV) {
        grad->taps = (clattn__aft_table){first, desc->heads, desc->taps};
        if (!desc->reparam)
            return;
        grad->gamma = weight(CLATTN__AFT_EXTRA + 1);
        grad->beta = weight(CLATTN__AFT_EXTRA + 2);
        grad->raw_taps = grad->raw_gamma = clattn__resident(RESIDENT_FACTOR);
        grad->raw_gamma.offset = desc->heads * desc->taps;
    } else if (desc->mode != CLATTN_AFT_SIMPLE) {
        if (desc->rank > 0)
            factors(desc, grad);
        else
            grad->w = (clattn__aft_table){first, desc->max_length, desc->max_length};
    }
}

clattn_status clattn__aft_layer_backward(const void *data, const clattn_layer_shape *shape,
                                         const clattn__target *target, clattn__plan *plan, clattn__error *error) {
    const clattn_aft_layer_desc *desc = data;
    (void)error; /* forward has checked */
    const int64_t d = desc->model_size;
    clattn__aft aft = clattn__aft_core_of(desc, shape);
    if (clattn__aft_skips(desc, shape, target)) {
        clattn__aft_gram_backward(desc, shape, target, plan, &aft);
        return CLATTN_SUCCESS;
    }
    clattn__aft_save(desc, shape, plan, &aft);
    clattn__aft_gradients grad = clattn__aft_gradients_none(shape->grad_type, shape->accumulate);
    const clattn__operand dy = clattn__plan_scratch(plan, shape->batch * shape->length * d);
    grad.y = clattn__aft_rows_view(dy, shape, d, aft.head_size);
    clattn__aft_output_backward(shape, target, plan, &aft, dy);
    const sides s = place(desc, shape, target, plan, &grad);
    extras(desc, &grad);
    clattn__aft_backward(plan, target, &aft, &grad);
    input(desc, shape, target, plan, &s);
    return CLATTN_SUCCESS;
}
