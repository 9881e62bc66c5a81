/* aft, gated modes, not causal, without K and V: the products round cl/aft_gram.cl. docs/aft.md has the algebra. */
#include "variant/aft_gram.h"
#include "layer/aft.h"

static clattn__operand weight(int index) { return clattn__slot(CLATTN_LAYER_GRAD_WEIGHTS + index); }

/* By count of operations from n = 2/3 d on; measured, forward and with backward, from 4/5 d. */
bool clattn__aft_skips(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                       const clattn__target *target) {
    return clattn__aft_may_skip(desc, target) && shape->batch > 0 &&
           5 * shape->length > 4 * desc->model_size;
}

static clattn__operand reserve(const clattn_layer_shape *shape, clattn__plan *plan, int64_t count) {
    return shape->train ? clattn__plan_save(plan, CLATTN_LAYER_SAVED, shape->batch * count)
                        : clattn__plan_scratch(plan, shape->batch * count);
}

/* The gate, y, and what stands for keys and values: all of it saved where the shape trains. */
static clattn__aft_kept place(const clattn_layer_shape *shape, const clattn__target *target, clattn__plan *plan,
                              clattn__aft *aft) {
    const int64_t n = shape->length, d = aft->heads * aft->head_size;
    const int64_t pitch = clattn__aft_gram_divide(aft, target).pitch;
    clattn__aft_kept k = {.weights = clattn__resident(RESIDENT_FACTOR), .keys = clattn__none()};
    aft->q = aft->y = clattn__aft_rows_view(reserve(shape, plan, n * d), shape, d, aft->head_size);
    k.values = reserve(shape, plan, (d + 1) * d);
    if (shape->train)
        k.keys = reserve(shape, plan, (d + 1) * d);
    if (aft->mode == CLATTN_AFT_GATED)
        k.sums = (clattn__aft_channels){reserve(shape, plan, pitch), pitch};
    /* element by element, y may be written over the gate; gated-matrix reads all of a head's gate */
    if (shape->train || aft->mode == CLATTN_AFT_GATED_MATRIX)
        aft->y.at = reserve(shape, plan, n * d);
    aft->k = aft->v = aft->q; /* not read */
    return k;
}

/* to [batch, d + 1, d] = G times a weight, its bias as a column, transposed. */
static void product(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                    clattn__plan *plan, clattn__operand gram, int weights, clattn__operand to) {
    const int64_t size = desc->model_size + 1;
    clattn__linear_call call = {.linear = clattn__aft_linear_augmented(desc),
                                .batch = shape->batch,
                                .rows = size,
                                .x = gram,
                                .x_batch_stride = size * size,
                                .x_row_stride = size,
                                .resident = clattn__resident(weights)};
    call.out[0] = clattn__out_rows(to, size, desc->model_size);
    clattn__linear_apply(plan, target, &call);
}

void clattn__aft_gram_forward(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                              const clattn__target *target, clattn__plan *plan, clattn__aft *aft) {
    const int64_t size = desc->model_size + 1;
    const clattn__aft_kept k = place(shape, target, plan, aft);
    clattn__plan_note(plan, "aft: without keys and values");
    const clattn__operand gram = clattn__plan_scratch(plan, shape->batch * size * size);
    clattn__aft_project_gate(desc, shape, target, plan, aft);
    clattn__aft_gram(plan, target, aft, clattn__slot(CLATTN_LAYER_X), shape->type, gram);
    product(desc, shape, target, plan, gram, RESIDENT_VALUE, k.values);
    if (shape->train)
        product(desc, shape, target, plan, gram, RESIDENT_KEY, k.keys);
    if (desc->mode == CLATTN_AFT_GATED_MATRIX) {
        clattn__aft_gram_matrix(plan, target, aft, &k);
    } else {
        clattn__aft_form(plan, target, aft, &k);
        clattn__aft_gate(plan, target, aft, &k.sums);
    }
}

/* ---- backward ---- */

/* dQ, Wk's and Wv's gradients, and `scaled` [batch, d + 1, d]: Wk and its bias, transposed, times what all keys and values
 * have to do with dY. */
static void gated(const clattn__aft_pass *p, const clattn__aft_kept *k, clattn__operand scaled) {
    const clattn__aft_channels later = clattn__aft_backward_gate(p);
    clattn__aft_gram_weight(p, k->values, &later, weight(CLATTN__AFT_WK), weight(CLATTN__AFT_BK));
    clattn__aft_gram_weight(p, k->keys, &later, weight(CLATTN__AFT_WV), weight(CLATTN__AFT_BV));
    clattn__aft_gram_scale(p, k, &later, scaled);
}

static void gated_matrix(const clattn__aft_pass *p, const clattn__aft_kept *k, clattn__operand scaled) {
    const int64_t d = p->aft->heads * p->aft->head_size, count = p->aft->batch * (d + 1) * d;
    const clattn__operand key = clattn__plan_scratch(p->plan, count), value = clattn__plan_scratch(p->plan, count);
    clattn__aft_gram_matrix_backward(p, k, key, value, scaled);
    clattn__aft_gram_weight(p, key, NULL, weight(CLATTN__AFT_WK), weight(CLATTN__AFT_BK));
    clattn__aft_gram_weight(p, value, NULL, weight(CLATTN__AFT_WV), weight(CLATTN__AFT_BV));
}

/* half [batch, d + 1, d + 1] = scaled Wv: one of the two products that x is multiplied by. */
static void halve(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__aft_pass *p,
                  clattn__operand scaled, clattn__operand half) {
    clattn__linear_grad grad = clattn__aft_linear_grad(shape, clattn__aft_linear_augmented(desc), RESIDENT_VALUE);
    grad.rows = desc->model_size + 1;
    grad.dy = scaled;
    grad.dx = half;
    clattn__linear_backward_input(p->plan, p->target, &grad);
}

/* dx = [dq | x | 1] [Wq ; M], M of each sequence. */
static void input(const clattn_layer_shape *shape, const clattn__aft_pass *p, clattn__operand sides,
                  clattn__operand half) {
    const int64_t d = p->aft->heads * p->aft->head_size, n = shape->length, depth = 2 * d + 1;
    clattn__linear_call call = {.linear = {.in = depth, .out = d, .sections = 1},
                                .batch = shape->batch,
                                .rows = n,
                                .x = sides,
                                .x_batch_stride = n * depth,
                                .x_row_stride = depth};
    call.resident_batch_stride = (int64_t)(clattn__linear_bytes(&call.linear, p->target) / sizeof(float));
    call.resident = clattn__plan_scratch(p->plan, shape->batch * call.resident_batch_stride);
    call.out[0] = clattn__out_rows(clattn__slot(CLATTN_LAYER_GRAD_X), n, d);
    call.out[0].type = shape->type;
    clattn__aft_gram_mix(p, clattn__resident(RESIDENT_ALONE), half, call.resident, call.resident_batch_stride);
    clattn__linear_apply(p->plan, p->target, &call);
}

static void gate(const clattn_layer_shape *shape, const clattn__aft_pass *p, clattn__operand dq, int64_t row) {
    const int64_t d = p->aft->heads * p->aft->head_size;
    clattn__linear_grad grad = clattn__aft_linear_grad(shape, (clattn__linear){d, d, 1, true}, RESIDENT_ALONE);
    grad.x = clattn__slot(CLATTN_LAYER_X);
    grad.x_type = shape->type;
    grad.lengths = p->aft->lengths;
    grad.dy = dq;
    grad.dy_row_stride = row;
    grad.dx = clattn__none();
    grad.dw[0] = weight(CLATTN__AFT_WQ);
    grad.db[0] = weight(CLATTN__AFT_BQ);
    clattn__linear_backward(p->plan, p->target, &grad);
}

void clattn__aft_gram_backward(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                               const clattn__target *target, clattn__plan *plan, clattn__aft *aft) {
    const int64_t d = desc->model_size, row = 2 * d + 1, tokens = shape->batch * shape->length;
    const clattn__aft_kept k = place(shape, target, plan, aft);
    clattn__aft_gradients grad = clattn__aft_gradients_none(shape->grad_type, shape->accumulate);
    const clattn__operand sides = clattn__plan_scratch(plan, tokens * row), dy = clattn__plan_scratch(plan, tokens * d);
    const clattn__operand scaled = clattn__plan_scratch(plan, shape->batch * (d + 1) * d);
    const clattn__operand half = clattn__plan_scratch(plan, shape->batch * (d + 1) * (d + 1));
    clattn__operand right = sides;
    right.offset += d;
    clattn__aft_output_backward(shape, target, plan, aft, dy);
    grad.y = clattn__aft_rows_view(dy, shape, d, aft->head_size);
    grad.q = clattn__aft_rows_view(sides, shape, row, aft->head_size);
    grad.k = grad.v = grad.q; /* not written */
    grad.position = weight(CLATTN__AFT_EXTRA);
    const clattn__aft_pass p = clattn__aft_pass_start(plan, target, aft, &grad);
    clattn__aft_gram_beside(&p, clattn__slot(CLATTN_LAYER_X), shape->type, right, row);
    if (desc->mode == CLATTN_AFT_GATED_MATRIX)
        gated_matrix(&p, &k, scaled);
    else
        gated(&p, &k, scaled);
    halve(desc, shape, &p, scaled, half);
    input(shape, &p, sides, half);
    gate(shape, &p, sides, row);
}
