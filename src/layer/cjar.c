/* cjar: projections round the core, and the learnt memory. */
#include <math.h>
#include <string.h>

#include "core/layout.h"
#include "layer/self_backward.h"
#include "variant/cjar_backward.h"

enum { IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS, MEMORY, MEMORY_V, WEIGHTS };
/* The last two, which backward wants, only where keys and values have memories of their own. */
enum {
    RESIDENT_MEMORY_KEYS = CLATTN__RESIDENT_OWN,
    RESIDENT_MEMORY_VALUES,
    RESIDENT_MEMORY_KEY_ROWS,
    RESIDENT_MEMORY_VALUE_PANELS,
};
enum { MOST_MEMORY = 65536 };

static void defaults(void *desc) {
    *(clattn_cjar_layer_desc *)desc = (clattn_cjar_layer_desc)CLATTN_CJAR_LAYER_DEFAULTS;
}

/* A checkpoint without memory rows has none. */
static void infer(void *description, const clattn_weight_info *checkpoint, size_t count) {
    clattn_cjar_layer_desc *desc = description;
    desc->memory = 0;
    for (size_t i = 0; i < count; i++) {
        const bool shared = strcmp(checkpoint[i].name, "global_mem") == 0;
        const bool own = strcmp(checkpoint[i].name, "global_mem_k") == 0;
        if ((shared || own) && checkpoint[i].rank > 0)
            desc->memory = checkpoint[i].shape[0];
        desc->separate_memory = desc->separate_memory || own;
    }
}

static clattn_status check(const clattn_cjar_layer_desc *desc, clattn__error *error) {
    clattn_status status = clattn__self_check(desc->model_size, desc->heads, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("memory", desc->memory, 0, MOST_MEMORY, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("window_left", desc->window_left, -1, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("window_right", desc->window_right, -1, INT32_MAX / 2, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("scale_by", desc->scale_by, 0, CLATTN_CJAR_SCALE_BY_MODEL, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("masked", desc->masked, 0, CLATTN_CJAR_MULTIPLY, error);
    return status;
}

/* One memory in both forms. */
static void load_rows(const clattn_cjar_layer_desc *desc, const clattn__target *target, clattn__load *load, int weight,
                      int panels, int rows) {
    const int64_t d = desc->model_size, dh = d / desc->heads;
    const clattn__sizes sizes = clattn__cjar_memory_sizes(desc->memory, desc->heads, dh);
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.keys = clattn__resident(panels);
    packed.values = clattn__resident(rows);
    load->resident_bytes[panels] = sizeof(float) * (uint64_t)packed.key_batch_stride;
    load->resident_bytes[rows] = sizeof(float) * (uint64_t)packed.value_batch_stride;
    load->resident_count = desc->separate_memory ? RESIDENT_MEMORY_VALUE_PANELS + 1 : RESIDENT_MEMORY_VALUES + 1;
    const clattn__view memory = {{weight, 0}, target->weight_type, 0, dh, d};
    clattn__packed_keys(&load->plan, target, &sizes, &memory, &packed);
    clattn__packed_values(&load->plan, target, &sizes, &memory, &packed);
}

static void load_memory(const clattn_cjar_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    if (!desc->separate_memory) {
        load_rows(desc, target, load, MEMORY, RESIDENT_MEMORY_KEYS, RESIDENT_MEMORY_VALUES);
        return;
    }
    load_rows(desc, target, load, MEMORY, RESIDENT_MEMORY_KEYS, RESIDENT_MEMORY_KEY_ROWS);
    load_rows(desc, target, load, MEMORY_V, RESIDENT_MEMORY_VALUE_PANELS, RESIDENT_MEMORY_VALUES);
}

static clattn_status load(const void *description, const clattn__target *target, clattn__load *load,
                          clattn__error *error) {
    const clattn_cjar_layer_desc *desc = description;
    const int64_t d = desc->model_size;
    clattn_status status = check(desc, error);
    if (status != CLATTN_SUCCESS)
        return status;
    clattn__plan_init(&load->plan, desc->memory == 0 ? MEMORY : desc->separate_memory ? WEIGHTS : MEMORY_V);
    clattn__weight_bind(&load->plan, IN_WEIGHT, "to_qkv.weight", 3 * d, d);
    clattn__weight_bind(&load->plan, IN_BIAS, "to_qkv.bias", 3 * d, 0);
    clattn__weight_bind(&load->plan, OUT_WEIGHT, "to_out.weight", d, d);
    clattn__weight_bind(&load->plan, OUT_BIAS, "to_out.bias", d, 0);
    if (desc->memory > 0)
        clattn__weight_bind(&load->plan, MEMORY, desc->separate_memory ? "global_mem_k" : "global_mem", desc->memory,
                            d);
    if (desc->memory > 0 && desc->separate_memory)
        clattn__weight_bind(&load->plan, MEMORY_V, "global_mem_v", desc->memory, d);
    clattn__self_load(load, target, CLATTN__RESIDENT_QKV,
                      &(clattn__linear){.in = d, .out = d, .sections = 3, .bias = true},
                      (clattn__operand[]){{IN_WEIGHT, 0}, {IN_WEIGHT, d * d}, {IN_WEIGHT, 2 * d * d}},
                      (clattn__operand[]){{IN_BIAS, 0}, {IN_BIAS, d}, {IN_BIAS, 2 * d}});
    clattn__self_load(load, target, CLATTN__RESIDENT_OUT,
                      &(clattn__linear){.in = d, .out = d, .sections = 1, .bias = true},
                      &(clattn__operand){OUT_WEIGHT, 0}, &(clattn__operand){OUT_BIAS, 0});
    if (desc->memory > 0)
        load_memory(desc, target, load);
    return CLATTN_SUCCESS;
}

static clattn__cjar core_of(const clattn_cjar_layer_desc *desc, const clattn_layer_shape *shape,
                            const clattn__self *self) {
    const bool links = shape->links > 0, memory = desc->memory > 0;
    const int64_t scaled_by = desc->scale_by == CLATTN_CJAR_SCALE_BY_MODEL ? desc->model_size : self->sizes.head_size;
    return (clattn__cjar){.sizes = self->sizes,
                          .q = self->q,
                          .k = self->k,
                          .v = self->v,
                          .o = self->o,
                          .packed = self->packed,
                          .memory = desc->memory,
                          .memory_keys = clattn__slot_if(memory, CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_KEYS),
                          .memory_values = clattn__slot_if(memory, CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_VALUES),
                          .key_rows = self->key_rows,
                          .link_rows = clattn__slot_if(links, CLATTN_LAYER_LINK_ROWS),
                          .link_keys = clattn__slot_if(links, CLATTN_LAYER_LINK_KEYS),
                          .lengths = self->lengths,
                          .saved = self->lse,
                          .link_count = shape->links,
                          .scale = 1.0f / sqrtf((float)scaled_by),
                          .left = desc->window_left,
                          .right = desc->window_right,
                          .causal = desc->causal,
                          .masked = (clattn_cjar_masked)desc->masked};
}

static clattn_status forward(const void *description, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    const clattn_cjar_layer_desc *desc = description;
    (void)error;
    const clattn__self self =
        clattn__self_project(plan, target, desc->model_size, desc->heads, shape, shape->links > 0);
    const clattn__cjar core = core_of(desc, shape, &self);
    clattn__cjar_append(plan, target, &core);
    clattn__self_output(plan, target, desc->model_size, shape, self.o.at);
    return CLATTN_SUCCESS;
}

/* What the core's backward pass wants beside its gradients. */
static clattn__cjar_gradients memory_of(const clattn_cjar_layer_desc *desc, const clattn_layer_shape *shape,
                                        const clattn__core_gradients *core) {
    const int64_t d = desc->model_size, dh = d / desc->heads;
    const bool memory = desc->memory > 0, own = desc->separate_memory;
    const int rows = own ? RESIDENT_MEMORY_KEY_ROWS : RESIDENT_MEMORY_VALUES;
    const int panels = own ? RESIDENT_MEMORY_VALUE_PANELS : RESIDENT_MEMORY_KEYS;
    return (clattn__cjar_gradients){.core = *core,
                                    .memory_key_rows = clattn__slot_if(memory, CLATTN__SLOT_RESIDENT + rows),
                                    .memory_value_panels = clattn__slot_if(memory, CLATTN__SLOT_RESIDENT + panels),
                                    .memory_k = {{CLATTN_LAYER_GRAD_WEIGHTS + MEMORY, 0}, shape->grad_type, 0, dh, d},
                                    .memory_v = {{CLATTN_LAYER_GRAD_WEIGHTS + MEMORY_V, 0}, shape->grad_type, 0, dh, d},
                                    .one_memory = !own,
                                    .accumulate = shape->accumulate};
}

static clattn_status backward(const void *description, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan, clattn__error *error) {
    const clattn_cjar_layer_desc *desc = description;
    clattn_status status = clattn__cjar_backward_check(shape->links, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const clattn__self self = clattn__self_saved(plan, desc->model_size, desc->heads, shape);
    const clattn__self_weights weights =
        clattn__self_weights_joined(desc->model_size, IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS);
    const clattn__core_gradients core_gradients = clattn__self_backward_output(plan, target, &self, shape, &weights);
    const clattn__cjar_gradients gradients = memory_of(desc, shape, &core_gradients);
    const clattn__cjar core = core_of(desc, shape, &self);
    clattn__cjar_backward_append(plan, target, &core, &gradients);
    clattn__self_backward_project(plan, target, &self, shape, &weights, &core_gradients);
    return CLATTN_SUCCESS;
}

static const char *const scales[] = {"head", "model", NULL};
static const char *const maskings[] = {"exclude", "multiply", NULL};

static const clattn__option options[] = {
    {"causal", CLATTN__OPTION_FLAG, offsetof(clattn_cjar_layer_desc, causal), 0, NULL},
    {"window-left", CLATTN__OPTION_LIMIT, offsetof(clattn_cjar_layer_desc, window_left), 0, NULL},
    {"window-right", CLATTN__OPTION_LIMIT, offsetof(clattn_cjar_layer_desc, window_right), 0, NULL},
    {"scale-by", CLATTN__OPTION_CHOICE, offsetof(clattn_cjar_layer_desc, scale_by), 0, scales},
    {"masked", CLATTN__OPTION_CHOICE, offsetof(clattn_cjar_layer_desc, masked), 0, maskings},
    {0},
};

const clattn__variant clattn__variant_cjar = {.name = "cjar",
                                              .desc_size = sizeof(clattn_cjar_layer_desc),
                                              .options = options,
                                              .links = true,
                                              .defaults = defaults,
                                              .infer = infer,
                                              .load = load,
                                              .forward = forward,
                                              .backward = backward,
                                              .core = clattn__cjar_core,
                                              .core_trains = clattn__cjar_core_trains,
                                              .core_backward = clattn__cjar_core_backward};
