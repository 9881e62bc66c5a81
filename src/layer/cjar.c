/* cjar: projections round the core, and the learnt memory. */
#include <math.h>
#include <string.h>

#include "core/layout.h"
#include "layer/self.h"
#include "variant/cjar.h"

enum { IN_WEIGHT, IN_BIAS, OUT_WEIGHT, OUT_BIAS, MEMORY, MEMORY_V, WEIGHTS };
enum { RESIDENT_MEMORY_KEYS = CLATTN__RESIDENT_OWN, RESIDENT_MEMORY_VALUES, RESIDENTS };
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

static void load_memory(const clattn_cjar_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const int64_t d = desc->model_size, dh = d / desc->heads;
    const clattn__sizes sizes = clattn__cjar_memory_sizes(desc->memory, desc->heads, dh);
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.keys = (clattn__operand){CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_KEYS, 0};
    packed.values = (clattn__operand){CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_VALUES, 0};
    load->resident_bytes[RESIDENT_MEMORY_KEYS] = sizeof(float) * (uint64_t)packed.key_batch_stride;
    load->resident_bytes[RESIDENT_MEMORY_VALUES] = sizeof(float) * (uint64_t)packed.value_batch_stride;
    load->resident_count = RESIDENTS;
    const clattn__view k = {{MEMORY, 0}, CLATTN_F32, 0, dh, d};
    const clattn__view v = {{desc->separate_memory ? MEMORY_V : MEMORY, 0}, CLATTN_F32, 0, dh, d};
    clattn__packed_keys(&load->plan, target, &sizes, &k, &packed);
    clattn__packed_values(&load->plan, target, &sizes, &v, &packed);
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
        clattn__weight_bind(&load->plan, MEMORY, desc->separate_memory ? "global_mem_k" : "global_mem", desc->memory, d);
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

static clattn__operand when(bool present, int slot) {
    return (clattn__operand){present ? slot : CLATTN__SLOT_NONE, 0};
}

static clattn_status forward(const void *description, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    const clattn_cjar_layer_desc *desc = description;
    const bool links = shape->links > 0, memory = desc->memory > 0;
    (void)error;
    const clattn__self self =
        clattn__self_project(plan, target, desc->model_size, desc->heads, shape, links);
    const int64_t scaled_by =
        desc->scale_by == CLATTN_CJAR_SCALE_BY_MODEL ? desc->model_size : self.sizes.head_size;
    const clattn__cjar core = {.sizes = self.sizes,
                               .q = self.q,
                               .o = self.o,
                               .packed = self.packed,
                               .memory = desc->memory,
                               .memory_keys = when(memory, CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_KEYS),
                               .memory_values = when(memory, CLATTN__SLOT_RESIDENT + RESIDENT_MEMORY_VALUES),
                               .key_rows = self.key_rows,
                               .link_rows = when(links, CLATTN_LAYER_LINK_ROWS),
                               .link_keys = when(links, CLATTN_LAYER_LINK_KEYS),
                               .lengths = self.lengths,
                               .link_count = shape->links,
                               .scale = 1.0f / sqrtf((float)scaled_by),
                               .left = desc->window_left,
                               .right = desc->window_right,
                               .causal = desc->causal,
                               .masked = (clattn_cjar_masked)desc->masked};
    clattn__cjar_append(plan, target, &core);
    clattn__self_output(plan, target, desc->model_size, shape, self.o.at);
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
                                              .core = clattn__cjar_core};
