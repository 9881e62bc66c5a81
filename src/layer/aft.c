/* aft: projections round the core. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/layout.h"
#include "core/variant.h"
#include "gemm/gemm.h"
#include "variant/aft_problem.h"

/* Weights, in the order of the public header; the mode's own follow Wo. */
enum { WQ = 0, BQ, WK, BK, WV, BV, WO, BO, EXTRA };

/* Resident buffers: the projections of x, conv's keys, the output projection, the mode's own. */
enum { RESIDENT_IN, RESIDENT_KEY, RESIDENT_OUT, RESIDENT_BIAS, RESIDENT_FACTOR, RESIDENTS };

static const clattn__operand none = {CLATTN__SLOT_NONE, 0};

static clattn__operand slot(int index) { return (clattn__operand){index, 0}; }
static clattn__operand resident(int index) { return (clattn__operand){CLATTN__SLOT_RESIDENT + index, 0}; }

static bool is_gated(int mode) { return mode == CLATTN_AFT_GATED || mode == CLATTN_AFT_GATED_MATRIX; }

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

/* ---- weights ---- */

static int64_t reach_of(const clattn_aft_layer_desc *desc) { return clattn__aft_reach(desc->local, desc->max_length); }

/* The projections of x: Q, K, V; conv's keys have a matrix of their own. */
static clattn__linear linear_in(const clattn_aft_layer_desc *desc) {
    return (clattn__linear){desc->model_size, desc->model_size, desc->mode == CLATTN_AFT_CONV ? 2 : 3, true};
}

static clattn__linear linear_key(const clattn_aft_layer_desc *desc) {
    return (clattn__linear){desc->model_size, desc->heads, 1, true};
}

static clattn__linear linear_out(const clattn_aft_layer_desc *desc) {
    return (clattn__linear){desc->model_size, desc->model_size, 1, true};
}

static void bind(clattn__load *load, int index, const char *name, int rank, int64_t a, int64_t b, int64_t c) {
    const clattn_tensor layout = clattn_tensor_make(NULL, CLATTN_F32, rank, (const int64_t[]){a, b, c});
    clattn__plan_bind(&load->plan, index, name, &layout, false);
}

static void bind_all(const clattn_aft_layer_desc *desc, clattn__load *load) {
    static const char *const names[EXTRA] = {"Wq.weight", "Wq.bias", "Wk.weight", "Wk.bias",
                                             "Wv.weight", "Wv.bias", "Wo.weight", "Wo.bias"};
    const int64_t d = desc->model_size, T = desc->max_length;
    const int extra = is_gated(desc->mode) ? 1 : desc->mode == CLATTN_AFT_SIMPLE ? 0
                    : desc->mode == CLATTN_AFT_CONV ? (desc->reparam ? 3 : 1) : (desc->rank > 0 ? 2 : 1);
    clattn__plan_init(&load->plan, EXTRA + extra);
    for (int i = 0; i < EXTRA; i++)
        bind(load, i, names[i], i % 2 ? 1 : 2, desc->mode == CLATTN_AFT_CONV && i / 2 == 1 ? desc->heads : d, d, 0);
    if (is_gated(desc->mode)) {
        bind(load, EXTRA, "position_weights", 3, desc->heads, 1, 1);
    } else if (desc->mode == CLATTN_AFT_CONV) {
        bind(load, EXTRA, "conv.weight", 2, desc->heads, desc->taps, 0);
        if (desc->reparam) {
            bind(load, EXTRA + 1, "conv.gamma", 1, desc->heads, 0, 0);
            bind(load, EXTRA + 2, "conv.beta", 1, desc->heads, 0, 0);
        }
    } else if (desc->mode != CLATTN_AFT_SIMPLE && desc->rank > 0) {
        bind(load, EXTRA, "u", 2, T, desc->rank, 0);
        bind(load, EXTRA + 1, "v", 2, T, desc->rank, 0);
    } else if (desc->mode != CLATTN_AFT_SIMPLE) {
        bind(load, EXTRA, "w", 2, T, T, 0);
    }
}

static void size(clattn__load *load, int index, int64_t floats) {
    load->resident_bytes[index] = (uint64_t)floats * sizeof(float);
}

static void load_projections(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const clattn__linear in = linear_in(desc), key = linear_key(desc), out = linear_out(desc);
    const bool conv = desc->mode == CLATTN_AFT_CONV;
    const clattn__operand w[] = {slot(WQ), conv ? slot(WV) : slot(WK), slot(WV)};
    const clattn__operand b[] = {slot(BQ), conv ? slot(BV) : slot(BK), slot(BV)};
    const clattn__operand wk = slot(WK), bk = slot(BK), wo = slot(WO), bo = slot(BO);
    load->resident_bytes[RESIDENT_IN] = clattn__linear_bytes(&in, target);
    load->resident_bytes[RESIDENT_OUT] = clattn__linear_bytes(&out, target);
    clattn__linear_load(&load->plan, target, &in, w, b, resident(RESIDENT_IN));
    clattn__linear_load(&load->plan, target, &out, &wo, &bo, resident(RESIDENT_OUT));
    if (conv) {
        load->resident_bytes[RESIDENT_KEY] = clattn__linear_bytes(&key, target);
        clattn__linear_load(&load->plan, target, &key, &wk, &bk, resident(RESIDENT_KEY));
    }
}

static void load_bias(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const int64_t T = desc->max_length, r = desc->rank;
    const clattn__operand bias = resident(RESIDENT_BIAS);
    const clattn__aft_rows w = {slot(EXTRA), r > 0 ? r : T}, right = {slot(EXTRA + 1), r};
    if (desc->mode == CLATTN_AFT_LOCAL) {
        size(load, RESIDENT_BIAS, T * (2 * reach_of(desc) + 1));
        clattn__aft_bias(&load->plan, target, w, right, bias, T, r, reach_of(desc));
        return;
    }
    size(load, RESIDENT_BIAS, T * w.row);
    clattn__aft_copy(&load->plan, target, w.at, bias, T * w.row);
    if (r > 0) {
        size(load, RESIDENT_FACTOR, r * clattn__aft_columns(T));
        clattn__aft_transpose(&load->plan, target, right, resident(RESIDENT_FACTOR), T, r, clattn__aft_columns(T));
    }
}

static clattn_status load_weights(const void *data, const clattn__target *target, clattn__load *load,
                                  clattn__error *error) {
    const clattn_aft_layer_desc *desc = data;
    clattn_status status = check(desc, error);
    if (status != CLATTN_SUCCESS)
        return status;
    bind_all(desc, load);
    load->resident_count = RESIDENTS;
    load_projections(desc, target, load);
    if (is_gated(desc->mode)) {
        size(load, RESIDENT_BIAS, desc->heads);
        clattn__aft_copy(&load->plan, target, slot(EXTRA), resident(RESIDENT_BIAS), desc->heads);
    } else if (desc->mode == CLATTN_AFT_CONV) {
        size(load, RESIDENT_BIAS, desc->heads * desc->taps);
        clattn__aft_taps(&load->plan, target, slot(EXTRA), desc->reparam ? slot(EXTRA + 1) : none,
                         desc->reparam ? slot(EXTRA + 2) : none, resident(RESIDENT_BIAS), desc->heads, desc->taps);
    } else if (desc->mode != CLATTN_AFT_SIMPLE) {
        load_bias(desc, target, load);
    }
    return CLATTN_SUCCESS;
}

/* ---- forward ---- */

static clattn_status check_shape(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape,
                                 clattn__error *error) {
    if ((desc->mode == CLATTN_AFT_FULL || desc->mode == CLATTN_AFT_LOCAL) && shape->length > desc->max_length)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "x has %" PRId64 " tokens, but %s has %" PRId64 " rows and must have as many", shape->length,
                            desc->rank > 0 ? "u" : "w", desc->max_length);
    return CLATTN_SUCCESS;
}

static void bind_shape(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, clattn__plan *plan) {
    const int64_t x[] = {shape->batch, shape->length, desc->model_size};
    const clattn_tensor layout = clattn_tensor_make(NULL, shape->type, 3, x);
    const clattn_tensor lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, x);
    clattn__plan_init(plan, CLATTN_LAYER_SLOTS);
    clattn__plan_bind(plan, CLATTN_LAYER_X, "x", &layout, false);
    clattn__plan_bind(plan, CLATTN_LAYER_Y, "y", &layout, false);
    if (shape->has_lengths)
        clattn__plan_bind(plan, CLATTN_LAYER_LENGTHS, "lengths", &lengths, false);
}

static clattn__linear_call call_on(const clattn_layer_shape *shape, clattn__linear linear, clattn__operand x,
                                   clattn_type type, int weights) {
    return (clattn__linear_call){.linear = linear,
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x = x,
                                 .x_type = type,
                                 .x_batch_stride = shape->length * linear.in,
                                 .x_row_stride = linear.in,
                                 .resident = resident(weights)};
}

static clattn__aft_view view(clattn__operand at, const clattn_layer_shape *shape, int64_t columns, int64_t head) {
    return (clattn__aft_view){at, shape->length * columns, columns, head};
}

/* Q (gated by the projection's own epilogue), K and V, contiguous in the workspace. */
static void project(const clattn_aft_layer_desc *desc, const clattn_layer_shape *shape, const clattn__target *target,
                    clattn__plan *plan, clattn__aft *aft) {
    const int64_t d = desc->model_size, n = shape->length, dh = d / desc->heads;
    const bool conv = desc->mode == CLATTN_AFT_CONV;
    const int64_t key_columns = conv ? desc->heads : d;
    aft->q = view(clattn__plan_scratch(plan, shape->batch * n * d), shape, d, dh);
    aft->k = view(clattn__plan_scratch(plan, shape->batch * n * key_columns), shape, key_columns, conv ? 1 : dh);
    aft->v = view(clattn__plan_scratch(plan, shape->batch * n * d), shape, d, dh);
    clattn__linear_call in = call_on(shape, linear_in(desc), slot(CLATTN_LAYER_X), shape->type, RESIDENT_IN);
    in.out[0] = clattn__out_rows(aft->q.at, n, d);
    in.out[0].activation = CLATTN__SIGMOID;
    in.out[1] = clattn__out_rows(conv ? aft->v.at : aft->k.at, n, d);
    in.out[2] = clattn__out_rows(aft->v.at, n, d);
    clattn__linear_apply(plan, target, &in);
    if (conv) {
        clattn__linear_call key = call_on(shape, linear_key(desc), slot(CLATTN_LAYER_X), shape->type, RESIDENT_KEY);
        key.out[0] = clattn__out_rows(aft->k.at, n, desc->heads);
        clattn__linear_apply(plan, target, &key);
    }
}

static void set_bias(const clattn_aft_layer_desc *desc, clattn__aft *aft) {
    const clattn__operand bias = resident(RESIDENT_BIAS);
    switch (desc->mode) {
    case CLATTN_AFT_GATED:
    case CLATTN_AFT_GATED_MATRIX: aft->position = bias; break;
    case CLATTN_AFT_FULL:
        aft->bias = bias;
        aft->bias_row = desc->rank > 0 ? desc->rank : desc->max_length;
        aft->rank = desc->rank;
        aft->factor = resident(RESIDENT_FACTOR);
        aft->columns = clattn__aft_columns(desc->max_length);
        break;
    case CLATTN_AFT_LOCAL:
        aft->bias = bias;
        aft->reach = reach_of(desc);
        aft->bias_row = 2 * aft->reach + 1;
        break;
    case CLATTN_AFT_CONV:
        aft->bias = bias;
        aft->bias_head = desc->taps;
        aft->reach = desc->taps / 2;
        break;
    default: break;
    }
}

static clattn_status forward(const void *data, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    const clattn_aft_layer_desc *desc = data;
    clattn_status status = check_shape(desc, shape, error);
    if (status != CLATTN_SUCCESS)
        return status;
    bind_shape(desc, shape, plan);
    const int64_t d = desc->model_size;
    clattn__aft aft = {.mode = desc->mode,
                       .causal = desc->causal,
                       .gate_ready = true,
                       .batch = shape->batch,
                       .length = shape->length,
                       .heads = desc->heads,
                       .head_size = d / desc->heads,
                       .lengths = shape->has_lengths ? slot(CLATTN_LAYER_LENGTHS) : none,
                       .position = none,
                       .bias = none,
                       .factor = none};
    project(desc, shape, target, plan, &aft);
    set_bias(desc, &aft);
    /* element by element, the core may write over the gate; gated-matrix reads all of a head's gate */
    aft.y = aft.q;
    if (desc->mode == CLATTN_AFT_GATED_MATRIX)
        aft.y.at = clattn__plan_scratch(plan, shape->batch * shape->length * d);
    clattn__aft_core(plan, target, &aft);
    clattn__linear_call out = call_on(shape, linear_out(desc), aft.y.at, CLATTN_F32, RESIDENT_OUT);
    out.out[0] = clattn__out_rows(slot(CLATTN_LAYER_Y), shape->length, d);
    out.out[0].type = shape->type;
    clattn__linear_apply(plan, target, &out);
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
    .core = clattn__aft_problem_plan,
};
