/* aft: the public problem, checked, and turned into the core. */
#include <inttypes.h>

#include "core/layout.h"
#include "variant/aft_problem.h"

enum {
    Q = CLATTN_AFT_Q,
    K = CLATTN_AFT_K,
    V = CLATTN_AFT_V,
    Y = CLATTN_AFT_Y,
    LENGTHS = CLATTN_AFT_LENGTHS,
    POSITION = CLATTN_AFT_POSITION,
    W = CLATTN_AFT_W,
    W_LEFT = CLATTN_AFT_W_LEFT,
    W_RIGHT = CLATTN_AFT_W_RIGHT,
    TAPS = CLATTN_AFT_TAPS,
    SLOTS /* of the forward pass */
};

static const char *const names[SLOTS] = {"q", "k", "v", "y", "lengths", "position", "w", "w_left", "w_right", "taps"};
static bool absent(const clattn_aft_problem *p, int slot) { return clattn__layout_absent(&p->tensor[slot]); }

static bool is_biased(int mode) { return mode == CLATTN_AFT_FULL || mode == CLATTN_AFT_LOCAL; }

static bool is_gated(int mode) { return mode == CLATTN_AFT_GATED || mode == CLATTN_AFT_GATED_MATRIX; }

/* ---- checks ---- */

static clattn_status check_rule(const clattn_aft_problem *p, int slot, clattn__layout_rule rule, clattn__error *error) {
    rule.name = names[slot];
    rule.output = slot == Y;
    return clattn__layout_check(&p->tensor[slot], &rule, error);
}

static clattn_status check_activations(const clattn_aft_problem *p, clattn__error *error) {
    const int64_t any = CLATTN__ANY_SIZE, *x = p->tensor[Q].shape;
    const int64_t key_size = p->mode == CLATTN_AFT_CONV ? 1 : x[3];
    clattn_status status = check_rule(p, Q, (clattn__layout_rule){.rank = 4, .shape = {any, any, any, any}}, error);
    if (status == CLATTN_SUCCESS)
        status = check_rule(p, K, (clattn__layout_rule){.rank = 4, .shape = {x[0], x[1], x[2], key_size}}, error);
    for (int slot = V; slot <= Y && status == CLATTN_SUCCESS; slot++)
        status = check_rule(p, slot, (clattn__layout_rule){.rank = 4, .shape = {x[0], x[1], x[2], x[3]}}, error);
    for (int slot = K; slot <= V && status == CLATTN_SUCCESS; slot++)
        if (p->tensor[slot].type != p->tensor[Q].type)
            status = clattn__fail(error, CLATTN_INVALID_TYPE, "%s has type %s, but q has %s", names[slot],
                                  clattn_type_name(p->tensor[slot].type), clattn_type_name(p->tensor[Q].type));
    return status;
}

/* A float32 tensor beside q, k, v, y. */
static clattn_status check_float(const clattn_aft_problem *p, int slot, clattn__layout_rule rule,
                                 clattn__error *error) {
    rule.typed = true;
    rule.type = CLATTN_F32;
    return check_rule(p, slot, rule, error);
}

static clattn_status check_long_enough(const clattn_aft_problem *p, int slot, clattn__error *error) {
    const int64_t rows = p->tensor[slot].shape[0], length = p->tensor[Q].shape[1];
    if (rows < length)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "%s has %" PRId64 " rows, but q has %" PRId64 " tokens and needs as many", names[slot],
                            rows, length);
    return CLATTN_SUCCESS;
}

static clattn_status check_bias(const clattn_aft_problem *p, clattn__error *error) {
    const int64_t any = CLATTN__ANY_SIZE, *left = p->tensor[W_LEFT].shape;
    if (!absent(p, W)) {
        const int64_t rows = p->tensor[W].shape[0];
        clattn_status status = check_float(p, W, (clattn__layout_rule){.rank = 2, .shape = {any, rows}}, error);
        return status == CLATTN_SUCCESS ? check_long_enough(p, W, error) : status;
    }
    clattn_status status = check_float(p, W_LEFT, (clattn__layout_rule){.rank = 2, .shape = {any, any}}, error);
    if (status == CLATTN_SUCCESS)
        status = check_float(p, W_RIGHT, (clattn__layout_rule){.rank = 2, .shape = {any, left[1]}}, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("w_left's columns", left[1], 1, INT64_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = check_long_enough(p, W_LEFT, error);
    return status == CLATTN_SUCCESS ? check_long_enough(p, W_RIGHT, error) : status;
}

static clattn_status check_taps(const clattn_aft_problem *p, clattn__error *error) {
    const clattn__layout_rule rule = {.rank = 2, .shape = {p->tensor[Q].shape[2], CLATTN__ANY_SIZE}};
    clattn_status status = check_float(p, TAPS, rule, error);
    if (status == CLATTN_SUCCESS && p->tensor[TAPS].shape[1] % 2 == 0)
        status = clattn__fail(error, CLATTN_INVALID_SHAPE, "taps has %" PRId64 " columns, but must have an odd number",
                              p->tensor[TAPS].shape[1]);
    return status;
}

static clattn_status check_optional(const clattn_aft_problem *p, clattn__error *error) {
    const int64_t *x = p->tensor[Q].shape;
    const clattn__layout_rule lengths = {
        .rank = 1, .shape = {x[0]}, .optional = true, .typed = true, .type = CLATTN_I32};
    const clattn__layout_rule position = {.rank = 1, .shape = {x[2]}, .optional = true};
    clattn_status status = check_rule(p, LENGTHS, lengths, error);
    if (status == CLATTN_SUCCESS && is_gated(p->mode))
        status = check_float(p, POSITION, position, error);
    return status;
}

static clattn_status check(const clattn_aft_problem *p, clattn__error *error) {
    clattn_status status = clattn__range_check("mode", p->mode, 0, CLATTN_AFT_CONV, error);
    if (status == CLATTN_SUCCESS)
        status = check_activations(p, error);
    if (status == CLATTN_SUCCESS)
        status = check_optional(p, error);
    if (status == CLATTN_SUCCESS && p->mode == CLATTN_AFT_LOCAL)
        status = clattn__range_check("local", p->local, 1, INT64_MAX, error);
    if (status == CLATTN_SUCCESS && is_biased(p->mode))
        status = check_bias(p, error);
    if (status == CLATTN_SUCCESS && p->mode == CLATTN_AFT_CONV)
        status = check_taps(p, error);
    return status;
}

static clattn_status reject(const clattn_aft_problem *p, clattn__error *error) {
    const int64_t size = p->tensor[Q].shape[3];
    if (p->mode == CLATTN_AFT_GATED_MATRIX && size > CLATTN__AFT_MAX_HEAD)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "mode gated-matrix takes head sizes up to %d, but q has %" PRId64 " channels a head",
                            CLATTN__AFT_MAX_HEAD, size);
    return CLATTN_SUCCESS;
}

/* ---- the core ---- */

static clattn__aft_view view(const clattn_aft_problem *p, int slot) {
    const int64_t *stride = p->tensor[slot].stride;
    return (clattn__aft_view){{slot, 0}, stride[0], stride[1], stride[2]};
}

static clattn__aft_rows rows(const clattn_aft_problem *p, int slot) {
    return (clattn__aft_rows){{slot, 0}, p->tensor[slot].stride[0]};
}

/* A table serves LOCAL as it is. Factors are multiplied, in the band alone: row i has w_ij from j = i - reach on. */
static void local_bias(clattn__plan *plan, const clattn__target *target, const clattn_aft_problem *p,
                       clattn__aft *aft) {
    aft->reach = clattn__aft_reach(p->local, aft->length);
    if (!absent(p, W)) {
        aft->bias = clattn__slot(W);
        aft->bias_row = p->tensor[W].stride[0];
        return;
    }
    const int64_t row = 2 * aft->reach + 1;
    const clattn__operand band = clattn__plan_scratch(plan, aft->length * row);
    clattn__aft_bias(plan, target, rows(p, W_LEFT), rows(p, W_RIGHT), band, aft->length, p->tensor[W_LEFT].shape[1],
                     aft->reach);
    clattn__aft_use_band(aft, band);
}

static void full_bias(clattn__plan *plan, const clattn__target *target, const clattn_aft_problem *p, clattn__aft *aft) {
    if (!absent(p, W)) {
        aft->bias = clattn__slot(W);
        aft->bias_row = p->tensor[W].stride[0];
        return;
    }
    aft->bias = clattn__slot(W_LEFT);
    aft->bias_row = p->tensor[W_LEFT].stride[0];
    aft->rank = p->tensor[W_LEFT].shape[1];
    aft->columns = clattn__aft_columns(aft->length);
    aft->factor = clattn__plan_scratch(plan, aft->rank * aft->columns);
    clattn__aft_transpose(plan, target, rows(p, W_RIGHT), aft->factor, aft->length, aft->rank, aft->columns);
}

static void bind(clattn__plan *plan, const clattn_aft_problem *p) {
    clattn__plan_init(plan, CLATTN_AFT_SLOTS);
    for (int slot = 0; slot < SLOTS; slot++) {
        const bool used = slot <= LENGTHS || (slot == POSITION && is_gated(p->mode)) ||
                          (slot == W && is_biased(p->mode)) ||
                          ((slot == W_LEFT || slot == W_RIGHT) && is_biased(p->mode) && absent(p, W)) ||
                          (slot == TAPS && p->mode == CLATTN_AFT_CONV);
        if (used && !absent(p, slot))
            clattn__plan_bind(plan, slot, names[slot], &p->tensor[slot], false);
    }
}

clattn__aft clattn__aft_problem_core(const clattn_aft_problem *p, const clattn__target *target, clattn__plan *plan) {
    const int64_t *x = p->tensor[Q].shape;
    bind(plan, p);
    clattn__aft aft = {.mode = p->mode,
                       .causal = p->causal,
                       .batch = x[0],
                       .length = x[1],
                       .heads = x[2],
                       .head_size = x[3],
                       .x_type = p->tensor[Q].type,
                       .y_type = p->tensor[Y].type,
                       .q = view(p, Q),
                       .k = view(p, K),
                       .v = view(p, V),
                       .y = view(p, Y),
                       .lengths = clattn__slot_of(LENGTHS, &p->tensor[LENGTHS]),
                       .position = clattn__slot_if(is_gated(p->mode) && !absent(p, POSITION), POSITION),
                       .bias = clattn__none(),
                       .factor = clattn__none(),
                       .traces = clattn__none()};
    if (p->mode == CLATTN_AFT_LOCAL)
        local_bias(plan, target, p, &aft);
    if (p->mode == CLATTN_AFT_FULL)
        full_bias(plan, target, p, &aft);
    if (p->mode == CLATTN_AFT_CONV) {
        aft.bias = clattn__slot(TAPS);
        aft.bias_head = p->tensor[TAPS].stride[0];
        aft.reach = p->tensor[TAPS].shape[1] / 2;
    }
    if (p->train && !is_gated(p->mode))
        aft.traces =
            clattn__plan_save(plan, CLATTN_AFT_SAVED, clattn__aft_trace_floats(p->mode, x[0] * x[1], x[2] * x[3]));
    return aft;
}

clattn_status clattn__aft_problem_plan(const void *problem, const clattn__target *target, clattn__plan *plan,
                                       clattn__error *error) {
    const clattn_aft_problem *p = problem;
    clattn_status status = check(p, error);
    if (status == CLATTN_SUCCESS)
        status = reject(p, error);
    if (status == CLATTN_SUCCESS && p->train)
        status = clattn__aft_gradients_check(p, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const clattn__aft aft = clattn__aft_problem_core(p, target, plan);
    clattn__aft_core(plan, target, &aft);
    return CLATTN_SUCCESS;
}
