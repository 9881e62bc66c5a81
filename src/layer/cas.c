/* The cas layers: their options and their forward passes. */
#include "layer/cas.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/layout.h"

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

/* ---- what is saved ---- */

static clattn__operand reserve(clattn__plan *plan, const clattn_layer_shape *shape, int64_t count) {
    return shape->train ? clattn__plan_save(plan, CLATTN_LAYER_SAVED, count) : clattn__plan_scratch(plan, count);
}

clattn__cas_plain_saved clattn__cas_save_plain(clattn__plan *plan, const description *d,
                                               const clattn_layer_shape *shape) {
    const int64_t rows = shape->batch * d->heads;
    clattn__cas_plain_saved saved = {.pool = {reserve(plan, shape, rows * d->model_size), clattn__none()},
                                     .value = reserve(plan, shape, shape->batch * d->model_size)};
    if (shape->train)
        saved.pool.states = reserve(plan, shape, rows * 2);
    return saved;
}

clattn__cas_causal_saved clattn__cas_save_causal(clattn__plan *plan, const description *d,
                                                 const clattn_layer_shape *shape) {
    const int64_t count = shape->batch * shape->length * d->model_size;
    clattn__cas_causal_saved saved = {.values = reserve(plan, shape, count), .steps = clattn__none()};
    saved.outputs = saved.values;
    if (shape->train) {
        saved.outputs = reserve(plan, shape, count);
        saved.steps = reserve(plan, shape, shape->batch * d->heads * shape->length * 2);
    }
    return saved;
}

clattn__cas_image clattn__cas_save_vit(clattn__plan *plan, const description *d, const clattn_layer_shape *shape) {
    const int64_t size = d->model_size, pixels = shape->batch * shape->length, plane = pixels * size;
    clattn__cas_image image = {.batch = shape->batch,
                               .height = d->grid[0],
                               .width = d->grid[1],
                               .model_size = size,
                               .qkv = reserve(plan, shape, 3 * plane),
                               .gates = reserve(plan, shape, 2 * pixels),
                               .means = reserve(plan, shape, 2 * shape->batch * size),
                               .channel_gates = reserve(plan, shape, 2 * shape->batch * size),
                               .operators = clattn__cas_resident(KEEP_OPERATORS, 0),
                               .channels = clattn__cas_resident(KEEP_CHANNELS, 0),
                               .dwc = clattn__cas_resident(KEEP_DWC, 0),
                               .proj = clattn__cas_resident(KEEP_LAST, 0),
                               .y = {CLATTN_LAYER_Y, 0},
                               .y_type = shape->type};
    image.mixed = (clattn__operand){image.qkv.slot, image.qkv.offset + 2 * plane};
    return image;
}

/* ---- additive ---- */

clattn__cas_input clattn__cas_input_of(const clattn_layer_shape *shape) {
    return (clattn__cas_input){
        .batch = shape->batch,
        .length = shape->length,
        .x = {CLATTN_LAYER_X, 0},
        .lengths = clattn__slot_if(shape->has_lengths, CLATTN_LAYER_LENGTHS),
        .filters = clattn__cas_resident(KEEP_FILTERS, 0),
        .type = shape->type,
    };
}

/* One row through a kept matrix: [B, d] from [B, d / row_head, d]. */
static clattn__cas_rows apply_plain(const description *d, int64_t batch, int buffer, int64_t row_head,
                                    clattn__operand from, clattn__operand to) {
    const int64_t size = d->model_size;
    return (clattn__cas_rows){.sections = 1,
                              .batch = batch,
                              .out = size,
                              .in = size,
                              .row_head = row_head,
                              .w = clattn__cas_resident(buffer, 0),
                              .bias = clattn__cas_resident(buffer, size * size),
                              .from = from,
                              .lengths = clattn__none(),
                              .to = to};
}

/* All queries see all keys: every token of a sequence has the same row. */
static void forward_plain(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                          clattn__plan *plan) {
    const int64_t size = d->model_size, n = shape->length, batch = shape->batch;
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = clattn__cas_input_of(shape);
    const clattn__cas_plain_saved saved = clattn__cas_save_plain(plan, d, shape);
    const clattn__operand row = clattn__plan_scratch(plan, batch * size);
    clattn__cas_pool(plan, target, &filters, &input, &saved.pool);
    clattn__cas_rows apply = apply_plain(d, batch, KEEP_VALUE, size / d->heads, saved.pool.means, saved.value);
    apply.lengths = input.lengths;
    clattn__cas_apply_rows(plan, target, &apply);
    apply = apply_plain(d, batch, KEEP_PROJ, size, saved.value, row);
    clattn__cas_apply_rows(plan, target, &apply);
    const clattn__cas_shape rows = {batch, 1, n, size, input.lengths};
    const clattn__cas_tensor y = {{CLATTN_LAYER_Y, 0}, shape->type, n * size, 0, size};
    clattn__cas_spread(plan, target, &rows, row, clattn__cas_resident(KEEP_PROJ, size * size), &y);
}

static clattn__linear_call call_square(const description *d, const clattn_layer_shape *shape, int buffer,
                                       clattn__operand x, clattn__operand y) {
    const int64_t size = d->model_size;
    return (clattn__linear_call){.linear = clattn__cas_square(d),
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x = x,
                                 .x_batch_stride = shape->length * size,
                                 .x_row_stride = size,
                                 .resident = clattn__cas_resident(buffer, 0),
                                 .out = {clattn__out_rows(y, shape->length, size)}};
}

static void forward_causal(const description *d, const clattn_layer_shape *shape, const clattn__target *target,
                           clattn__plan *plan) {
    const clattn__cas_filters filters = clattn__cas_filters_make(target, d);
    const clattn__cas_input input = clattn__cas_input_of(shape);
    const clattn__cas_causal_saved saved = clattn__cas_save_causal(plan, d, shape);
    const clattn__operand scores = clattn__plan_scratch(plan, shape->batch * d->heads * shape->length);
    clattn__cas_scores(plan, &filters, &input, scores);

    clattn__linear_call project = call_square(d, shape, KEEP_VALUE, input.x, saved.values);
    project.x_type = shape->type;
    clattn__linear_apply(plan, target, &project);

    const clattn__cas_shape heads = {shape->batch, d->heads, shape->length, d->model_size / d->heads, input.lengths};
    const clattn__cas_tensor v = clattn__cas_heads(d, shape, saved.values);
    const clattn__cas_tensor o = clattn__cas_heads(d, shape, saved.outputs);
    clattn__cas_scan(plan, target, &heads, scores, &v, &o, saved.steps);

    clattn__linear_call finish = call_square(d, shape, KEEP_PROJ, saved.outputs, clattn__slot(CLATTN_LAYER_Y));
    finish.out[0].type = shape->type;
    clattn__linear_apply(plan, target, &finish);
}

/* ---- vit ---- */

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
    clattn__cas_image image = clattn__cas_save_vit(plan, d, shape);
    clattn__linear_call call = call_square(d, shape, KEEP_QKV, clattn__slot(CLATTN_LAYER_X), image.qkv);
    call.linear = clattn__cas_qkv(d);
    call.x_type = shape->type;
    for (int s = 0; s < 3; s++)
        call.out[s] = clattn__out_rows((clattn__operand){image.qkv.slot, image.qkv.offset + s * plane}, n, size);
    clattn__linear_apply(plan, target, &call);
    if (shape->train)
        image.mixed = clattn__plan_scratch(plan, plane);
    clattn__cas_mix(plan, target, &image);
}

/* ---- the family ---- */

static clattn_status load(const void *desc, const clattn__target *target, clattn__load *load, clattn__error *error) {
    description d;
    clattn_status status = settle(desc, &d, error);
    if (status == CLATTN_SUCCESS)
        clattn__cas_load(&d, target, load);
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

static clattn_status backward(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan, clattn__error *error) {
    description d;
    clattn_status status = settle(desc, &d, error);
    if (status == CLATTN_SUCCESS)
        (d.mode == CLATTN_CAS_VIT ? clattn__cas_backward_vit : clattn__cas_backward_additive)(&d, shape, target, plan);
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
    .backward = backward,
    .core = clattn__cas_core,
    .core_trains = clattn__cas_core_trains,
    .core_backward = clattn__cas_core_backward,
};
