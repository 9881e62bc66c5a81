/* aft: projections round the core. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/layout.h"
#include "layer/aft.h"
#include "variant/aft_problem.h"

/* ---- description ---- */

static const char *const modes[] = {"gated", "gated-matrix", "full", "local", "simple", "conv", NULL};

static const clattn__option options[] = {
    {"mode", CLATTN__OPTION_CHOICE, offsetof(clattn_aft_layer_desc, mode), 0, modes},
    {"causal", CLATTN__OPTION_FLAG, offsetof(clattn_aft_layer_desc, causal), 0, NULL},
    {"local", CLATTN__OPTION_INT, offsetof(clattn_aft_layer_desc, local), 1, NULL},
    {NULL, CLATTN__OPTION_FLAG, 0, 0, NULL},
};

static void defaults(void *data) {
    clattn_aft_layer_desc *desc = data;
    desc->local = 32;
    desc->taps = 5;
}

static const clattn_weight_info *find(const clattn_weight_info *checkpoint, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(checkpoint[i].name, name) == 0)
            return &checkpoint[i];
    return NULL;
}

/* A table w wins over factors. */
static void infer(void *data, const clattn_weight_info *checkpoint, size_t count) {
    clattn_aft_layer_desc *desc = data;
    const clattn_weight_info *w = find(checkpoint, count, "w"), *u = find(checkpoint, count, "u");
    const clattn_weight_info *taps = find(checkpoint, count, "conv.weight");
    if (w && w->rank == 2) {
        desc->max_length = w->shape[0];
    } else if (u && u->rank == 2) {
        desc->max_length = u->shape[0];
        desc->rank = u->shape[1];
    }
    if (taps && taps->rank == 2)
        desc->taps = taps->shape[1];
    desc->reparam = find(checkpoint, count, "conv.gamma") != NULL;
}

static clattn_status check_mode(const clattn_aft_layer_desc *desc, clattn__error *error) {
    clattn_status status = CLATTN_SUCCESS;
    if (desc->mode == CLATTN_AFT_LOCAL)
        status = clattn__range_check("local", desc->local, 1, INT64_MAX, error);
    if (status == CLATTN_SUCCESS && (desc->mode == CLATTN_AFT_FULL || desc->mode == CLATTN_AFT_LOCAL)) {
        status = clattn__range_check("max_length (rows of w, or of u and v)", desc->max_length, 1, INT32_MAX, error);
        if (status == CLATTN_SUCCESS)
            status = clattn__range_check("rank", desc->rank, 0, INT32_MAX, error);
    }
    if (status == CLATTN_SUCCESS && desc->mode == CLATTN_AFT_CONV) {
        status = clattn__range_check("taps", desc->taps, 1, INT32_MAX, error);
        if (status == CLATTN_SUCCESS && desc->taps % 2 == 0)
            status = clattn__fail(error, CLATTN_INVALID_ARGUMENT, "taps is %" PRId64 ", but must be odd", desc->taps);
    }
    return status;
}

static clattn_status check(const clattn_aft_layer_desc *desc, clattn__error *error) {
    clattn_status status = clattn__range_check("model_size", desc->model_size, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("heads", desc->heads, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("mode", desc->mode, 0, CLATTN_AFT_CONV, error);
    if (status == CLATTN_SUCCESS && desc->model_size % desc->heads != 0)
        status = clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                              "model_size is %" PRId64 ", but must be a multiple of heads, which is %" PRId64,
                              desc->model_size, desc->heads);
    if (status == CLATTN_SUCCESS && desc->mode == CLATTN_AFT_GATED_MATRIX &&
        desc->model_size / desc->heads > CLATTN__AFT_MAX_HEAD)
        status = clattn__fail(error, CLATTN_UNSUPPORTED,
                              "mode gated-matrix takes head sizes up to %d, but model_size / heads is %" PRId64,
                              CLATTN__AFT_MAX_HEAD, desc->model_size / desc->heads);
    return status == CLATTN_SUCCESS ? check_mode(desc, error) : status;
}

static clattn_status load_weights(const void *data, const clattn__target *target, clattn__load *load,
                                  clattn__error *error) {
    clattn_status status = check(data, error);
    if (status == CLATTN_SUCCESS)
        clattn__aft_load(data, target, load);
    return status;
}

/* ---- forward ---- */

static clattn_status check_shape(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                                 clattn__error *error) {
    if ((desc->mode == CLATTN_AFT_FULL || desc->mode == CLATTN_AFT_LOCAL) && shape->length > desc->max_length)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "x has %" PRId64 " tokens, but %s has %" PRId64 " rows and must have as many",
                            shape->length, desc->rank > 0 ? "u" : "w", desc->max_length);
    return CLATTN_SUCCESS;
}

/* Projections of x, rows contiguous. */
static clattn__linear_call call_on(const clattn_layer_shape *shape, clattn__linear linear, int weights) {
    return (clattn__linear_call){.linear = linear,
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x = clattn__slot(CLATTN_LAYER_X),
                                 .x_type = shape->type,
                                 .x_batch_stride = shape->length * linear.in,
                                 .x_row_stride = linear.in,
                                 .resident = clattn__resident(weights)};
}

static clattn__linear_out gate_out(const clattn__aft *aft, int64_t d) {
    clattn__linear_out out = clattn__out_rows(aft->q.at, aft->length, d);
    out.activation = CLATTN__SIGMOID;
    return out;
}

/* Keys and values, and the gate where it does not stand alone. */
static void project(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                    clattn__plan *plan, const clattn__aft *aft) {
    const int64_t d = desc->model_size, n = shape->length;
    const clattn__aft_split how = clattn__aft_split_of(desc, target);
    const int64_t key_columns = clattn__aft_key_columns(desc);
    const clattn__linear_out gate = gate_out(aft, d), key = clattn__out_rows(aft->k.at, n, key_columns),
                             value = clattn__out_rows(aft->v.at, n, d);
    clattn__linear_call in = call_on(shape, clattn__aft_linear_in(desc, how), RESIDENT_IN);
    in.out[0] = how == CLATTN__AFT_GATE_ALONE ? key : gate;
    in.out[1] = how == CLATTN__AFT_TOGETHER ? key : value;
    in.out[2] = value;
    clattn__linear_apply(plan, target, &in);
    if (how == CLATTN__AFT_KEY_ALONE) {
        clattn__linear_call alone = call_on(shape, clattn__aft_linear_alone(desc, how), RESIDENT_ALONE);
        alone.out[0] = key;
        clattn__linear_apply(plan, target, &alone);
    }
}

static void place_keys(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan,
                       clattn__aft *aft) {
    const int64_t rows = shape->batch * shape->length, columns = clattn__aft_key_columns(desc);
    aft->k = clattn__aft_rows_view(clattn__plan_scratch(plan, rows * columns), shape, columns, columns / desc->heads);
    aft->v = clattn__aft_rows_view(clattn__plan_scratch(plan, rows * desc->model_size), shape, desc->model_size,
                                   aft->head_size);
}

void clattn__aft_project_gate(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                              const clattn__target *target, clattn__plan *plan, const clattn__aft *aft) {
    clattn__linear_call gate = call_on(shape, clattn__aft_linear_alone(desc, CLATTN__AFT_GATE_ALONE), RESIDENT_ALONE);
    gate.out[0] = gate_out(aft, desc->model_size);
    clattn__linear_apply(plan, target, &gate);
}

static void set_bias(const clattn_aft_layer_desc *desc, clattn__aft *aft) {
    const clattn__operand bias = clattn__resident(RESIDENT_BIAS);
    switch (desc->mode) {
    case CLATTN_AFT_GATED:
    case CLATTN_AFT_GATED_MATRIX:
        aft->position = bias;
        break;
    case CLATTN_AFT_FULL:
        aft->bias = bias;
        aft->bias_row = desc->rank > 0 ? desc->rank : desc->max_length;
        aft->rank = desc->rank;
        aft->factor = clattn__resident(RESIDENT_FACTOR);
        aft->columns = clattn__aft_columns(desc->max_length);
        break;
    case CLATTN_AFT_LOCAL:
        aft->reach = clattn__aft_band(desc);
        clattn__aft_use_band(aft, bias);
        break;
    case CLATTN_AFT_CONV:
        aft->bias = bias;
        aft->bias_head = desc->taps;
        aft->reach = desc->taps / 2;
        break;
    default:
        break;
    }
}

clattn__aft clattn__aft_core_of(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape) {
    clattn__aft aft = {.mode = desc->mode,
                       .causal = desc->causal,
                       .gate_ready = true,
                       .batch = shape->batch,
                       .length = shape->length,
                       .heads = desc->heads,
                       .head_size = desc->model_size / desc->heads,
                       .lengths = clattn__slot_if(shape->has_lengths, CLATTN_LAYER_LENGTHS),
                       .position = clattn__none(),
                       .bias = clattn__none(),
                       .factor = clattn__none(),
                       .traces = clattn__none()};
    set_bias(desc, &aft);
    return aft;
}

void clattn__aft_save(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan,
                      clattn__aft *aft) {
    const int64_t rows = shape->batch * shape->length, d = desc->model_size, keys = clattn__aft_key_columns(desc);
    clattn__aft_view *const views[] = {&aft->q, &aft->v, &aft->y};
    for (int i = 0; i < 3; i++)
        *views[i] =
            clattn__aft_rows_view(clattn__plan_save(plan, CLATTN_LAYER_SAVED, rows * d), shape, d, aft->head_size);
    aft->k = clattn__aft_rows_view(clattn__plan_save(plan, CLATTN_LAYER_SAVED, rows * keys), shape, keys,
                                   keys / desc->heads);
    if (!clattn__aft_is_gated(desc->mode))
        aft->traces = clattn__plan_save(plan, CLATTN_LAYER_SAVED, clattn__aft_trace_floats(desc->mode, rows, d));
}

static void place_gate(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan,
                       clattn__aft *aft) {
    const int64_t d = desc->model_size, count = shape->batch * shape->length * d;
    aft->q = clattn__aft_rows_view(clattn__plan_scratch(plan, count), shape, d, aft->head_size);
    /* element by element, the core may write over the gate; gated-matrix reads all of a head's gate */
    aft->y = aft->q;
    if (desc->mode == CLATTN_AFT_GATED_MATRIX)
        aft->y.at = clattn__plan_scratch(plan, count);
}

static void with_keys(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                      clattn__plan *plan, clattn__aft *aft) {
    if (clattn__aft_may_skip(desc, target))
        clattn__plan_note(plan, "aft: with keys and values; not without: %" PRId64 " tokens for %" PRId64 " channels",
                          shape->length, desc->model_size);
    if (shape->train) {
        clattn__aft_save(desc, shape, plan, aft);
    } else {
        place_gate(desc, shape, plan, aft);
        place_keys(desc, shape, plan, aft);
    }
    if (clattn__aft_split_of(desc, target) == CLATTN__AFT_GATE_ALONE)
        clattn__aft_project_gate(desc, shape, target, plan, aft);
    project(desc, shape, target, plan, aft);
    clattn__aft_core(plan, target, aft);
}

static clattn_status forward(const void *data, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    const clattn_aft_layer_desc *desc = data;
    clattn_status status = check_shape(desc, shape, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__aft aft = clattn__aft_core_of(desc, shape);
    if (clattn__aft_skips(desc, shape, target))
        clattn__aft_gram_forward(desc, shape, target, plan, &aft);
    else
        with_keys(desc, shape, target, plan, &aft);
    clattn__self_output(plan, target, desc->model_size, shape, aft.y.at);
    return CLATTN_SUCCESS;
}

const clattn__variant clattn__variant_aft = {
    .name = "aft",
    .desc_size = sizeof(clattn_aft_layer_desc),
    .options = options,
    .defaults = defaults,
    .infer = infer,
    .load = load_weights,
    .forward = forward,
    .backward = clattn__aft_layer_backward,
    .core = clattn__aft_problem_plan,
    .core_trains = clattn__aft_problem_trains,
    .core_backward = clattn__aft_problem_backward,
};
