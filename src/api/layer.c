/* Layers: a description, resident weights, and plans made from both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "core/fill.h"
#include "core/layout.h"

/* ---- lifetime ---- */

void clattn__layer_retain(clattn_layer *layer) { atomic_fetch_add(&layer->references, 1); }

void clattn_layer_destroy(clattn_layer *layer) {
    if (!layer || atomic_fetch_sub(&layer->references, 1) > 1)
        return;
    for (int i = 0; i < CLATTN__MAX_RESIDENT; i++)
        if (layer->resident[i])
            clReleaseMemObject(layer->resident[i]);
    free(layer->loader);
    clattn_context_destroy(layer->context);
    free(layer->desc);
    free(layer);
}

static clattn_status allocate(clattn_layer *layer, clattn__error *error) {
    const clattn__caps *caps = &layer->context->target.caps;
    for (int i = 0; i < layer->load.resident_count; i++) {
        const uint64_t bytes = layer->load.resident_bytes[i];
        cl_int code = CL_SUCCESS;
        if (bytes > caps->max_alloc_bytes)
            return clattn__fail(error, CLATTN_UNSUPPORTED,
                                "weights need a buffer of %" PRIu64 " bytes, the device allocates at most %" PRIu64,
                                bytes, caps->max_alloc_bytes);
        layer->resident[i] = clCreateBuffer(layer->context->runtime->context, CL_MEM_READ_WRITE,
                                            bytes ? (size_t)bytes : sizeof(float), NULL, &code);
        if (code != CL_SUCCESS)
            return clattn__fail(error, code, "a buffer of %" PRIu64 " bytes for weights: %s", bytes,
                                clattn_status_string(code));
    }
    return CLATTN_SUCCESS;
}

static clattn_status fill(clattn_layer *layer, clattn_context *context, const clattn__variant *variant,
                          const void *desc, clattn__error *error) {
    atomic_init(&layer->references, 1);
    atomic_init(&layer->loaded, false);
    layer->context = context;
    clattn__context_retain(context);
    layer->variant = variant;
    layer->desc = malloc(variant->desc_size);
    if (!layer->desc)
        return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a layer");
    memcpy(layer->desc, desc, variant->desc_size);
    clattn_status status = variant->load(layer->desc, &context->target, &layer->load, error);
    for (int i = 0; status == CLATTN_SUCCESS && i < layer->load.plan.slot_count; i++)
        snprintf(layer->gradient_names[i], sizeof layer->gradient_names[i], "gradient of %s",
                 layer->load.plan.bindings[i].name);
    if (status == CLATTN_SUCCESS)
        status = allocate(layer, error);
    return status;
}

clattn_status clattn__layer_create(clattn_context *context, const clattn__variant *variant, const void *desc,
                                   clattn_layer **layer) {
    clattn__error error = {0};
    if (!context || !layer)
        return CLATTN_INVALID_ARGUMENT;
    *layer = NULL;
    clattn_layer *made = desc ? calloc(1, sizeof *made) : NULL;
    clattn_status status;
    if (!desc)
        status = clattn__fail(&error, CLATTN_INVALID_ARGUMENT, "%s: the layer's description is NULL", variant->name);
    else if (!made)
        status = clattn__fail(&error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a layer");
    else
        status = fill(made, context, variant, desc, &error);
    if (status != CLATTN_SUCCESS) {
        clattn_layer_destroy(made);
        return clattn__report(context, &error);
    }
    *layer = made;
    return CLATTN_SUCCESS;
}

/* Every description begins so. */
typedef struct desc_head {
    int64_t model_size, heads;
} desc_head;

clattn_status clattn_layer_from_settings(clattn_context *context, const char *name, int64_t model_size, int64_t heads,
                                         const clattn_setting *settings, size_t setting_count,
                                         const clattn_weight_info *checkpoint, size_t checkpoint_count,
                                         clattn_layer **layer) {
    clattn__error error = {0};
    if (!context || !layer)
        return CLATTN_INVALID_ARGUMENT;
    *layer = NULL;
    const clattn__variant *variant = name ? clattn__variant_find(name) : NULL;
    if (!variant) {
        clattn__fail(&error, CLATTN_UNKNOWN_NAME, "there is no variant '%s'", name ? name : "(NULL)");
        return clattn__report(context, &error);
    }
    if ((setting_count > 0 && !settings) || (checkpoint_count > 0 && !checkpoint)) {
        clattn__fail(&error, CLATTN_INVALID_ARGUMENT, "%s is NULL, but its count is not 0",
                     setting_count > 0 && !settings ? "settings" : "checkpoint");
        return clattn__report(context, &error);
    }
    void *desc = calloc(1, variant->desc_size);
    if (!desc) {
        clattn__fail(&error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a layer");
        return clattn__report(context, &error);
    }
    variant->defaults(desc);
    *(desc_head *)desc = (desc_head){model_size, heads};
    if (variant->infer && checkpoint_count > 0)
        variant->infer(desc, checkpoint, checkpoint_count);
    clattn_status status = clattn__options_apply(variant, desc, settings, setting_count, &error);
    if (status == CLATTN_SUCCESS)
        status = clattn__layer_create(context, variant, desc, layer);
    else
        clattn__report(context, &error);
    free(desc);
    return status;
}

/* ---- weights ---- */

size_t clattn_layer_weight_count(const clattn_layer *layer) { return layer ? (size_t)layer->load.plan.slot_count : 0; }

clattn_status clattn_layer_weight(const clattn_layer *layer, size_t weight, clattn_weight_info *info) {
    if (!layer || !info || weight >= clattn_layer_weight_count(layer))
        return CLATTN_INVALID_ARGUMENT;
    const clattn__binding *binding = &layer->load.plan.bindings[weight];
    info->name = binding->name;
    info->rank = binding->layout.rank;
    info->trainable = !binding->frozen;
    memcpy(info->shape, binding->layout.shape, sizeof info->shape);
    return CLATTN_SUCCESS;
}

/* What packs weights of a type; slots and resident memory are those of f32. */
static clattn_status plan_loader(const clattn_layer *layer, clattn_type type, clattn__load *load,
                                 clattn__error *error) {
    clattn__target target = layer->context->target;
    target.weight_type = type;
    const clattn_status status = layer->variant->load(layer->desc, &target, load, error);
    for (int i = 0; i < load->plan.slot_count; i++)
        load->plan.bindings[i].layout.type = type;
    return status;
}

/* The packing kernels are compiled at the first load, and when the weights' storage changes. */
static clattn_status make_loader(clattn_layer *layer, clattn_type type, clattn__error *error) {
    clattn__pass *loader = calloc(1, sizeof *loader);
    clattn__load *plan = calloc(1, sizeof *plan);
    clattn_status status;
    if (!loader || !plan)
        status = clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a plan");
    else
        status = plan_loader(layer, type, plan, error);
    if (status == CLATTN_SUCCESS) {
        loader->pure = plan->plan;
        status = clattn__pass_finish(layer->context, loader, error);
    }
    free(plan);
    if (status != CLATTN_SUCCESS) {
        free(loader);
        return status;
    }
    free(layer->loader);
    layer->loader = loader;
    layer->loader_type = type;
    return CLATTN_SUCCESS;
}

static clattn_status check_type(const char *name, clattn_type type, clattn__error *error) {
    if (type >= CLATTN_F32 && type <= CLATTN_BF16)
        return CLATTN_SUCCESS;
    return clattn__fail(error, CLATTN_INVALID_TYPE, "%s is %s, but must be f32, f16 or bf16", name,
                        clattn_type_name(type));
}

/* The first weight tells the storage of all. What is missing is found when the packing runs. */
static clattn_status find_type(const clattn_layer *layer, const clattn_tensor *weights, size_t count, clattn_type *type,
                               clattn__error *error) {
    const clattn__binding *bindings = layer->load.plan.bindings;
    *type = CLATTN_F32;
    if (!weights || count != clattn_layer_weight_count(layer) || !weights[0].memory)
        return CLATTN_SUCCESS;
    *type = weights[0].type;
    for (size_t i = 1; i < count; i++)
        if (weights[i].memory && weights[i].type != *type)
            return clattn__fail(error, CLATTN_INVALID_TYPE, "%s is %s, but %s is %s: weights are stored in one type",
                                bindings[i].name, clattn_type_name(weights[i].type), bindings[0].name,
                                clattn_type_name(*type));
    return check_type(bindings[0].name, *type, error);
}

static clattn_status load(clattn_layer *layer, cl_command_queue queue, const clattn_tensor *weights, size_t count,
                          cl_uint wait_count, const cl_event *wait_list, cl_event *event, clattn__error *error) {
    clattn_type type;
    clattn_status status = find_type(layer, weights, count, &type, error);
    if (status == CLATTN_SUCCESS && (!layer->loader || layer->loader_type != type))
        status = make_loader(layer, type, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__pass_run(layer->context, layer->loader, queue, weights, count, layer->resident, NULL,
                                  wait_count, wait_list, event, error);
    return status;
}

clattn_status clattn_layer_load(clattn_layer *layer, cl_command_queue queue, const clattn_tensor *weights, size_t count,
                                cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    clattn__error error = {0};
    if (event)
        *event = NULL;
    if (!layer)
        return CLATTN_INVALID_ARGUMENT;
    clattn_status status = load(layer, queue, weights, count, wait_count, wait_list, event, &error);
    if (status != CLATTN_SUCCESS)
        return clattn__report(layer->context, &error);
    atomic_store(&layer->loaded, true);
    return CLATTN_SUCCESS;
}

/* ---- plans ---- */

/* No buffer of the device could hold a larger x; and below it no size in a plan overflows. */
static clattn_status check_size(const clattn_layer *layer, const clattn_layer_shape *shape, clattn__error *error) {
    const uint64_t row = (uint64_t)((const desc_head *)layer->desc)->model_size * clattn_type_size(shape->type);
    const uint64_t most = layer->context->target.caps.max_alloc_bytes;
    if ((uint64_t)shape->batch * (uint64_t)shape->length <= most / row)
        return CLATTN_SUCCESS;
    return clattn__fail(error, CLATTN_UNSUPPORTED,
                        "x has %" PRId64 " x %" PRId64 " tokens of %" PRIu64
                        " bytes, the device allocates at most %" PRIu64,
                        shape->batch, shape->length, row, most);
}

static clattn_status check_shape(const clattn_layer *layer, const clattn_layer_shape *shape, clattn__error *error) {
    clattn_status status = clattn__range_check("batch", shape->batch, 0, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("length", shape->length, 0, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("links", shape->links, 0, INT64_MAX / 16, error);
    if (status == CLATTN_SUCCESS && shape->links > 0 && !layer->variant->links)
        status = clattn__fail(error, CLATTN_UNSUPPORTED, "links is %" PRId64 ", but %s takes no links", shape->links,
                              layer->variant->name);
    if (status == CLATTN_SUCCESS)
        status = check_type("type", shape->type, error);
    if (status == CLATTN_SUCCESS)
        status = check_type("grad_type", shape->grad_type, error);
    if (status == CLATTN_SUCCESS)
        status = check_size(layer, shape, error);
    return status;
}

static void bind_inputs(const clattn_layer_shape *shape, const clattn_tensor *x, clattn__plan *plan) {
    clattn__plan_bind(plan, CLATTN_LAYER_X, "x", x, false);
    if (shape->has_lengths) {
        const clattn_tensor lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &shape->batch);
        clattn__plan_bind(plan, CLATTN_LAYER_LENGTHS, "lengths", &lengths, false);
    }
    if (shape->links > 0) {
        const int64_t rows = shape->length + 1;
        const clattn_tensor starts = clattn_tensor_make(NULL, CLATTN_I64, 1, &rows);
        const clattn_tensor keys = clattn_tensor_make(NULL, CLATTN_I32, 1, &shape->links);
        clattn__plan_bind(plan, CLATTN_LAYER_LINK_ROWS, "link rows", &starts, false);
        clattn__plan_bind(plan, CLATTN_LAYER_LINK_KEYS, "link keys", &keys, false);
    }
}

static void bind_gradients(clattn_layer *layer, const clattn_layer_shape *shape, const clattn_tensor *x,
                           clattn__plan *plan) {
    clattn__plan_bind(plan, CLATTN_LAYER_GRAD_Y, "gradient of y", x, false);
    clattn__plan_bind(plan, CLATTN_LAYER_GRAD_X, "gradient of x", x, false);
    for (int i = 0; i < layer->load.plan.slot_count; i++) {
        const clattn__binding *weight = &layer->load.plan.bindings[i];
        if (weight->frozen)
            continue;
        clattn_tensor layout = weight->layout;
        layout.type = shape->grad_type;
        clattn__plan_bind(plan, CLATTN_LAYER_GRAD_WEIGHTS + i, layer->gradient_names[i], &layout, false);
    }
}

/* Without tokens every gradient is zero. */
static void append_zeros(const clattn_layer *layer, clattn__plan *plan) {
    for (int i = 0; i < layer->load.plan.slot_count; i++) {
        const clattn__binding *gradient = &plan->bindings[CLATTN_LAYER_GRAD_WEIGHTS + i];
        if (gradient->name)
            clattn__fill_append(plan, clattn__slot(CLATTN_LAYER_GRAD_WEIGHTS + i),
                                (int64_t)clattn__layout_extent(&gradient->layout), gradient->layout.type, 0);
    }
}

static clattn_status fill_forward(clattn_layer *layer, const clattn_layer_shape *shape, const clattn_tensor *x,
                                  clattn__plan *plan, clattn__error *error) {
    clattn__plan_init(plan, CLATTN_LAYER_SLOTS);
    bind_inputs(shape, x, plan);
    clattn__plan_bind(plan, CLATTN_LAYER_Y, "y", x, false);
    if (shape->batch == 0 || shape->length == 0)
        return CLATTN_SUCCESS;
    return layer->variant->forward(layer->desc, shape, &layer->context->target, plan, error);
}

static clattn_status fill_backward(clattn_layer *layer, const clattn_layer_shape *shape, const clattn_tensor *x,
                                   clattn__plan *plan, clattn__error *error) {
    if (!layer->variant->backward)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "%s has no backward pass yet", layer->variant->name);
    clattn__plan_init(plan, CLATTN_LAYER_SLOTS);
    bind_inputs(shape, x, plan);
    bind_gradients(layer, shape, x, plan);
    if (shape->batch > 0 && shape->length > 0)
        return layer->variant->backward(layer->desc, shape, &layer->context->target, plan, error);
    if (!shape->accumulate)
        append_zeros(layer, plan);
    return CLATTN_SUCCESS;
}

static clattn_status fill_plan(clattn_layer *layer, const clattn_layer_shape *shape, clattn_plan *plan,
                               clattn__error *error) {
    const int64_t x_shape[] = {shape->batch, shape->length, ((const desc_head *)layer->desc)->model_size};
    const clattn_tensor x = clattn_tensor_make(NULL, shape->type, 3, x_shape);
    clattn_status status = fill_forward(layer, shape, &x, &plan->forward.pure, error);
    if (status == CLATTN_SUCCESS && plan->backward)
        status = fill_backward(layer, shape, &x, &plan->backward->pure, error);
    return status == CLATTN_SUCCESS ? clattn__plan_finish_passes(plan, error) : status;
}

static clattn_status plan_layer(clattn_layer *layer, const clattn_layer_shape *shape, clattn_plan **plan,
                                clattn__error *error) {
    if (!shape)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "shape is NULL");
    clattn_status status = check_shape(layer, shape, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn_plan *made = clattn__plan_make(layer->context, shape->train, error);
    if (!made)
        return CLATTN_OUT_OF_HOST_MEMORY;
    made->layer = layer;
    clattn__layer_retain(layer);
    status = fill_plan(layer, shape, made, error);
    if (status == CLATTN_SUCCESS)
        *plan = made;
    else
        clattn_plan_destroy(made);
    return status;
}

clattn_status clattn_layer_plan(clattn_layer *layer, const clattn_layer_shape *shape, clattn_plan **plan) {
    clattn__error error = {0};
    if (!layer || !plan)
        return CLATTN_INVALID_ARGUMENT;
    *plan = NULL;
    clattn_status status = plan_layer(layer, shape, plan, &error);
    return status == CLATTN_SUCCESS ? status : clattn__report(layer->context, &error);
}
