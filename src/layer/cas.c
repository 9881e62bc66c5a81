/* The cas layers: their options, the packing of their weights, and their forward passes. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/layout.h"
#include "gemm/gemm.h"
#include "variant/cas.h"

typedef clattn_cas_layer_desc description;

/* ---- options ---- */

static const char *const modes[] = {"additive", "vit", NULL};

static const clattn__option options[] = {
    {"mode", CLATTN__OPTION_CHOICE, offsetof(description, mode), 0, modes},
    {"causal", CLATTN__OPTION_FLAG, offsetof(description, causal), 0, NULL},
    {"grid", CLATTN__OPTION_PAIR, offsetof(description, grid), 1, NULL},
    {NULL, CLATTN__OPTION_FLAG, 0, 0, NULL},
};

enum { DEFAULT_KERNEL = 3, LARGEST_KERNEL = 9 };

static void defaults(void *desc) {
    description *d = desc;
    d->kernel = DEFAULT_KERNEL;
}

static void infer(void *desc, const clattn_weight_info *checkpoint, size_t count) {
    description *d = desc;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(checkpoint[i].name, "conv_k.weight") == 0 && checkpoint[i].rank == 3)
            d->kernel = checkpoint[i].shape[2];
        if (strcmp(checkpoint[i].name, "qkv.bias") == 0)
            d->qkv_bias = true;
    }
}

static clattn_status check_additive(const description *d, clattn__error *error) {
    if (d->model_size % d->heads)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "heads is %" PRId64 ", but must divide model_size %" PRId64,
                            d->heads, d->model_size);
    if (d->kernel < 1 || d->kernel > LARGEST_KERNEL || d->kernel % 2 == 0)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "kernel is %" PRId64 ", but must be odd and in 1..%d",
                            d->kernel, LARGEST_KERNEL);
    return CLATTN_SUCCESS;
}

static clattn_status check_vit(const description *d, clattn__error *error) {
    clattn_status status = clattn__range_check("grid height", d->grid[0], 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("grid width", d->grid[1], 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS && d->causal)
        status = clattn__fail(error, CLATTN_INVALID_ARGUMENT, "causal is set, but mode vit has no causal form");
    return status;
}

/* Validate, and put the default for an unset kernel. */
static clattn_status settle(const void *desc, description *d, clattn__error *error) {
    *d = *(const description *)desc;
    if (d->kernel == 0)
        d->kernel = DEFAULT_KERNEL;
    clattn_status status = clattn__range_check("model_size", d->model_size, 1, INT32_MAX / 16, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("heads", d->heads, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("mode", d->mode, CLATTN_CAS_ADDITIVE, CLATTN_CAS_VIT, error);
    if (status != CLATTN_SUCCESS)
        return status;
    return d->mode == CLATTN_CAS_VIT ? check_vit(d, error) : check_additive(d, error);
}

/* ---- weights ---- */

typedef struct entry {
    const char *name;
    int32_t rank;
    int64_t shape[CLATTN_MAX_RANK];
} entry;

static void bind_all(clattn__plan *plan, const entry *entries, int count) {
    clattn__plan_init(plan, count);
    for (int i = 0; i < count; i++) {
        const clattn_tensor layout = clattn_tensor_make(NULL, CLATTN_F32, entries[i].rank, entries[i].shape);
        clattn__plan_bind(plan, i, entries[i].name, &layout, false);
    }
}

static clattn__operand weight(int slot) { return (clattn__operand){slot, 0}; }

static clattn__operand resident(int buffer, int64_t offset) {
    return (clattn__operand){CLATTN__SLOT_RESIDENT + buffer, offset};
}

/* ---- additive ---- */

enum { CONV_Q, CONV_Q_BIAS, CONV_K, CONV_K_BIAS, VALUE, VALUE_BIAS, PROJ, PROJ_BIAS, ADDITIVE_WEIGHTS };

enum { KEEP_FILTERS, KEEP_VALUE, KEEP_PROJ, ADDITIVE_BUFFERS };

static clattn__linear square(const description *d) {
    return (clattn__linear){.in = d->model_size, .out = d->model_size, .sections = 1, .bias = true};
}

/* A matrix and its bias behind it, as they are: one row at a time is all that a plain sequence asks for. */
static void keep_plain(const description *d, const clattn__target *target, clattn__load *load, int slot, int buffer) {
    const int64_t size = d->model_size;
    clattn__cas_copy(&load->plan, target, weight(slot), resident(buffer, 0), size * size);
    clattn__cas_copy(&load->plan, target, weight(slot + 1), resident(buffer, size * size), size);
    load->resident_bytes[buffer] = sizeof(float) * (uint64_t)(size * size + size);
}

static void keep_linear(const description *d, const clattn__target *target, clattn__load *load, int slot, int buffer) {
    const clattn__linear linear = square(d);
    const clattn__operand w = weight(slot), b = weight(slot + 1);
    clattn__linear_load(&load->plan, target, &linear, &w, &b, resident(buffer, 0));
    load->resident_bytes[buffer] = clattn__linear_bytes(&linear, target);
}

static void load_additive(const description *d, const clattn__target *target, clattn__load *load) {
    const int64_t s = d->model_size;
    const entry entries[ADDITIVE_WEIGHTS] = {
        [CONV_Q] = {"conv_q.weight", 3, {s, s, d->kernel}},
        [CONV_Q_BIAS] = {"conv_q.bias", 1, {s}},
        [CONV_K] = {"conv_k.weight", 3, {s, s, d->kernel}},
        [CONV_K_BIAS] = {"conv_k.bias", 1, {s}},
        [VALUE] = {"linear_v.weight", 2, {s, s}},
        [VALUE_BIAS] = {"linear_v.bias", 1, {s}},
        [PROJ] = {"proj.weight", 2, {s, s}},
        [PROJ_BIAS] = {"proj.bias", 1, {s}},
    };
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    bind_all(&load->plan, entries, ADDITIVE_WEIGHTS);
    clattn__cas_fold(&load->plan, &filters, weight(CONV_K), resident(KEEP_FILTERS, 0));
    load->resident_bytes[KEEP_FILTERS] = clattn__cas_filters_bytes(&filters);
    load->resident_count = ADDITIVE_BUFFERS;
    (d->causal ? keep_linear : keep_plain)(d, target, load, VALUE, KEEP_VALUE);
    (d->causal ? keep_linear : keep_plain)(d, target, load, PROJ, KEEP_PROJ);
}

static clattn__cas_input input_of(const clattn_layer_shape *shape) {
    return (clattn__cas_input){
        .batch = shape->batch,
        .length = shape->length,
        .x = {CLATTN_LAYER_X, 0},
        .lengths = shape->has_lengths ? (clattn__operand){CLATTN_LAYER_LENGTHS, 0} : clattn__cas_none(),
        .filters = resident(KEEP_FILTERS, 0),
        .type = shape->type,
    };
}

/* One row through a kept matrix: [B, d] from [B, d / row_head, d]. */
static clattn__operand apply_plain(const description *d, const clattn__target *target, clattn__plan *plan,
                                   int64_t batch, int buffer, int64_t row_head, clattn__operand from,
                                   clattn__operand lengths) {
    const int64_t size = d->model_size;
    return clattn__cas_apply_rows(plan, target,
                                  &(clattn__cas_rows){.sections = 1,
                                                      .batch = batch,
                                                      .out = size,
                                                      .in = size,
                                                      .row_head = row_head,
                                                      .w = resident(buffer, 0),
                                                      .bias = resident(buffer, size * size),
                                                      .from = from,
                                                      .lengths = lengths});
}

/* All queries see all keys: every token of a sequence has the same row. */
static void forward_plain(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                          clattn__plan *plan) {
    const int64_t size = d->model_size, n = shape->length;
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = input_of(shape);
    const clattn__operand mean = clattn__cas_pool(plan, target, &filters, &input);
    const clattn__operand value =
        apply_plain(d, target, plan, shape->batch, KEEP_VALUE, size / d->heads, mean, input.lengths);
    const clattn__operand row = apply_plain(d, target, plan, shape->batch, KEEP_PROJ, size, value, clattn__cas_none());
    const clattn__cas_shape rows = {shape->batch, 1, n, size, input.lengths};
    const clattn__cas_tensor y = {{CLATTN_LAYER_Y, 0}, shape->type, n * size, 0, size};
    clattn__cas_spread(plan, target, &rows, row, resident(KEEP_PROJ, size * size), &y);
}

static clattn__linear_call call_square(const description *d, const clattn_layer_shape *shape, int buffer,
                                       clattn__operand x, clattn__operand y) {
    const int64_t size = d->model_size;
    return (clattn__linear_call){.linear = square(d),
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x = x,
                                 .x_batch_stride = shape->length * size,
                                 .x_row_stride = size,
                                 .resident = resident(buffer, 0),
                                 .out = {clattn__out_rows(y, shape->length, size)}};
}

static void forward_causal(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                           clattn__plan *plan) {
    const int64_t size = d->model_size, n = shape->length;
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = input_of(shape);
    const clattn__operand values = clattn__plan_scratch(plan, shape->batch * n * size);
    const clattn__operand scores = clattn__cas_scores(plan, &filters, &input);

    clattn__linear_call project = call_square(d, shape, KEEP_VALUE, input.x, values);
    project.x_type = shape->type;
    clattn__linear_apply(plan, target, &project);

    const clattn__cas_shape heads = {shape->batch, d->heads, n, size / d->heads, input.lengths};
    const clattn__cas_tensor v = {values, CLATTN_F32, n * size, size / d->heads, size};
    clattn__cas_scan(plan, target, &heads, scores, &v, &v);

    clattn__linear_call finish = call_square(d, shape, KEEP_PROJ, values, (clattn__operand){CLATTN_LAYER_Y, 0});
    finish.out[0].type = shape->type;
    clattn__linear_apply(plan, target, &finish);
}

/* ---- vit ---- */

/* An operator's weights follow one another. */
enum { TAPS, TAPS_BIAS, NORM, NORM_BIAS, NORM_MEAN, NORM_VARIANCE, GATE, CHANNELS, OPERATOR_WEIGHTS };

enum {
    QKV,
    OPERATOR_Q,
    OPERATOR_K = OPERATOR_Q + OPERATOR_WEIGHTS,
    DWC = OPERATOR_K + OPERATOR_WEIGHTS,
    DWC_BIAS,
    LAST,
    LAST_BIAS,
    QKV_BIAS, /* where there is one */
    VIT_WEIGHTS
};

enum { KEEP_QKV, KEEP_OPERATORS, KEEP_CHANNELS, KEEP_DWC, KEEP_LAST, VIT_BUFFERS };

static void list_vit(const description *d, entry e[VIT_WEIGHTS]) {
#define OPERATOR(name)                                                                                                 \
    {name ".0.block.0.weight", 4, {s, 1, 3, 3}}, {name ".0.block.0.bias", 1, {s}}, {name ".0.block.1.weight", 1, {s}}, \
        {name ".0.block.1.bias", 1, {s}}, {name ".0.block.1.running_mean", 1, {s}},                                    \
        {name ".0.block.1.running_var", 1, {s}}, {name ".0.block.3.weight", 4, {1, s, 1, 1}}, {                        \
        name ".1.block.1.weight", 4, { s, s, 1, 1 }                                                                    \
    }
    const int64_t s = d->model_size;
    const entry q[OPERATOR_WEIGHTS] = {OPERATOR("oper_q")}, k[OPERATOR_WEIGHTS] = {OPERATOR("oper_k")};
#undef OPERATOR
    memcpy(e + OPERATOR_Q, q, sizeof q);
    memcpy(e + OPERATOR_K, k, sizeof k);
    e[QKV] = (entry){"qkv.weight", 4, {3 * s, s, 1, 1}};
    e[DWC] = (entry){"dwc.weight", 4, {s, 1, 3, 3}};
    e[DWC_BIAS] = (entry){"dwc.bias", 1, {s}};
    e[LAST] = (entry){"proj.weight", 4, {s, 1, 3, 3}};
    e[LAST_BIAS] = (entry){"proj.bias", 1, {s}};
    e[QKV_BIAS] = (entry){"qkv.bias", 1, {3 * s}};
}

static clattn__linear qkv_linear(const description *d) {
    return (clattn__linear){.in = d->model_size, .out = d->model_size, .sections = 3, .bias = d->qkv_bias};
}

static void load_qkv(const description *d, const clattn__target *target, clattn__load *load) {
    const int64_t size = d->model_size;
    const clattn__linear linear = qkv_linear(d);
    clattn__operand w[3], b[3];
    for (int s = 0; s < 3; s++) {
        w[s] = (clattn__operand){QKV, s * size * size};
        b[s] = (clattn__operand){QKV_BIAS, s * size};
    }
    clattn__linear_load(&load->plan, target, &linear, w, b, resident(KEEP_QKV, 0));
    load->resident_bytes[KEEP_QKV] = clattn__linear_bytes(&linear, target);
}

static void load_operator(const description *d, const clattn__target *target, clattn__load *load, int slot,
                          int64_t at) {
    const int64_t size = d->model_size, base = at * CLATTN__CAS_GATE_ROWS * size;
    const clattn__operand norm[] = {weight(slot + NORM), weight(slot + NORM_BIAS), weight(slot + NORM_MEAN),
                                    weight(slot + NORM_VARIANCE)};
    clattn__cas_taps(&load->plan, target, size, weight(slot + TAPS), weight(slot + TAPS_BIAS), norm,
                     resident(KEEP_OPERATORS, base));
    clattn__cas_copy(&load->plan, target, weight(slot + GATE),
                     resident(KEEP_OPERATORS, base + CLATTN__CAS_TAP_ROWS * size), size);
    clattn__cas_copy(&load->plan, target, weight(slot + CHANNELS), resident(KEEP_CHANNELS, at * size * size),
                     size * size);
}

static void load_vit(const description *d, const clattn__target *target, clattn__load *load) {
    const int64_t size = d->model_size;
    entry entries[VIT_WEIGHTS];
    list_vit(d, entries);
    bind_all(&load->plan, entries, d->qkv_bias ? VIT_WEIGHTS : QKV_BIAS);
    load_qkv(d, target, load);
    load_operator(d, target, load, OPERATOR_Q, 0);
    load_operator(d, target, load, OPERATOR_K, 1);
    clattn__cas_taps(&load->plan, target, size, weight(DWC), weight(DWC_BIAS), NULL, resident(KEEP_DWC, 0));
    clattn__cas_taps(&load->plan, target, size, weight(LAST), weight(LAST_BIAS), NULL, resident(KEEP_LAST, 0));
    load->resident_bytes[KEEP_OPERATORS] = sizeof(float) * (uint64_t)(2 * CLATTN__CAS_GATE_ROWS * size);
    load->resident_bytes[KEEP_CHANNELS] = sizeof(float) * (uint64_t)(2 * size * size);
    load->resident_bytes[KEEP_DWC] = sizeof(float) * (uint64_t)(CLATTN__CAS_TAP_ROWS * size);
    load->resident_bytes[KEEP_LAST] = load->resident_bytes[KEEP_DWC];
    load->resident_count = VIT_BUFFERS;
}

static clattn_status check_image(const description *d, const clattn_layer_shape *shape, clattn__error *error) {
    if (d->grid[0] * d->grid[1] != shape->length)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "grid %" PRId64 "x%" PRId64 " has %" PRId64 " tokens, but length is %" PRId64, d->grid[0],
                            d->grid[1], d->grid[0] * d->grid[1], shape->length);
    if (shape->has_lengths)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "lengths are given, but mode vit takes whole images");
    return CLATTN_SUCCESS;
}

static void forward_vit(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                        clattn__plan *plan) {
    const int64_t size = d->model_size, n = shape->length, plane = shape->batch * n * size;
    const clattn__operand qkv = clattn__plan_scratch(plan, 3 * plane);
    clattn__linear_call call = call_square(d, shape, KEEP_QKV, (clattn__operand){CLATTN_LAYER_X, 0}, qkv);
    call.linear = qkv_linear(d);
    call.x_type = shape->type;
    for (int s = 0; s < 3; s++)
        call.out[s] = clattn__out_rows((clattn__operand){qkv.slot, qkv.offset + s * plane}, n, size);
    clattn__linear_apply(plan, target, &call);
    clattn__cas_mix(plan, target,
                    &(clattn__cas_image){.batch = shape->batch,
                                         .height = d->grid[0],
                                         .width = d->grid[1],
                                         .model_size = size,
                                         .qkv = qkv,
                                         .operators = resident(KEEP_OPERATORS, 0),
                                         .channels = resident(KEEP_CHANNELS, 0),
                                         .dwc = resident(KEEP_DWC, 0),
                                         .proj = resident(KEEP_LAST, 0),
                                         .y = {CLATTN_LAYER_Y, 0},
                                         .y_type = shape->type});
}

/* ---- the family ---- */

static clattn_status load(const void *desc, const clattn__target *target, clattn__load *load, clattn__error *error) {
    description d;
    clattn_status status = settle(desc, &d, error);
    if (status == CLATTN_SUCCESS)
        (d.mode == CLATTN_CAS_VIT ? load_vit : load_additive)(&d, target, load);
    return status;
}

static clattn_status forward(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    description d;
    clattn_status status = settle(desc, &d, error);
    if (status == CLATTN_SUCCESS && d.mode == CLATTN_CAS_VIT)
        status = check_image(&d, shape, error);
    if (status == CLATTN_SUCCESS)
        (d.mode == CLATTN_CAS_VIT ? forward_vit : d.causal ? forward_causal : forward_plain)(&d, shape, target, plan);
    return status;
}

const clattn__variant clattn__variant_cas = {
    .name = "cas",
    .desc_size = sizeof(description),
    .options = options,
    .defaults = defaults,
    .infer = infer,
    .load = load,
    .forward = forward,
    .core = clattn__cas_core,
};
