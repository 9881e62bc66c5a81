/* The weights of the cas layers: their names and shapes, and their packing. */
#include <string.h>

#include "layer/cas.h"

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

/* ---- additive ---- */

/* A matrix and its bias behind it, as they are: one row at a time is all that a plain sequence asks for. */
static void keep_plain(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load, int slot,
                       int buffer) {
    const int64_t size = d->model_size;
    clattn__cas_copy(&load->plan, target, clattn__slot(slot), clattn__cas_resident(buffer, 0), size * size);
    clattn__cas_copy(&load->plan, target, clattn__slot(slot + 1), clattn__cas_resident(buffer, size * size), size);
    load->resident_bytes[buffer] = sizeof(float) * (uint64_t)(size * size + size);
}

static void keep_linear(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load, int slot,
                        int buffer) {
    const clattn__linear linear = clattn__cas_square(d);
    const clattn__operand w = clattn__slot(slot), b = clattn__slot(slot + 1);
    clattn__linear_load(&load->plan, target, &linear, &w, &b, clattn__cas_resident(buffer, 0));
    load->resident_bytes[buffer] = clattn__linear_bytes(&linear, target);
}

static void load_additive(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load) {
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
    clattn__cas_fold(&load->plan, target, &filters, clattn__slot(CONV_K), clattn__cas_resident(KEEP_FILTERS, 0));
    load->resident_bytes[KEEP_FILTERS] = clattn__cas_filters_bytes(&filters);
    load->resident_count = ADDITIVE_BUFFERS;
    (d->causal ? keep_linear : keep_plain)(d, target, load, VALUE, KEEP_VALUE);
    (d->causal ? keep_linear : keep_plain)(d, target, load, PROJ, KEEP_PROJ);
}

/* ---- vit ---- */

static void list_vit(const clattn_cas_layer_desc *d, entry e[VIT_WEIGHTS]) {
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

static void load_qkv(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load) {
    const int64_t size = d->model_size;
    const clattn__linear linear = clattn__cas_qkv(d);
    clattn__operand w[3], b[3];
    for (int s = 0; s < 3; s++) {
        w[s] = (clattn__operand){QKV, s * size * size};
        b[s] = (clattn__operand){QKV_BIAS, s * size};
    }
    clattn__linear_load(&load->plan, target, &linear, w, b, clattn__cas_resident(KEEP_QKV, 0));
    load->resident_bytes[KEEP_QKV] = clattn__linear_bytes(&linear, target);
}

/* Statistics have no gradient. */
static void freeze(clattn__plan *plan, int slot) {
    plan->bindings[slot + NORM_MEAN].frozen = true;
    plan->bindings[slot + NORM_VARIANCE].frozen = true;
}

static void load_operator(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load, int slot,
                          int64_t at) {
    const int64_t size = d->model_size, base = at * CLATTN__CAS_GATE_ROWS * size;
    const clattn__operand norm[] = {clattn__slot(slot + NORM), clattn__slot(slot + NORM_BIAS),
                                    clattn__slot(slot + NORM_MEAN), clattn__slot(slot + NORM_VARIANCE)};
    clattn__cas_taps(&load->plan, target, size, clattn__slot(slot + TAPS), clattn__slot(slot + TAPS_BIAS), norm,
                     clattn__cas_resident(KEEP_OPERATORS, base));
    clattn__cas_norm(&load->plan, target, size, clattn__slot(slot + TAPS), clattn__slot(slot + TAPS_BIAS), norm,
                     clattn__cas_resident(KEEP_NORMS, at * CLATTN__CAS_NORM_ROWS * size));
    clattn__cas_copy(&load->plan, target, clattn__slot(slot + GATE),
                     clattn__cas_resident(KEEP_OPERATORS, base + CLATTN__CAS_TAP_ROWS * size), size);
    clattn__cas_copy(&load->plan, target, clattn__slot(slot + CHANNELS),
                     clattn__cas_resident(KEEP_CHANNELS, at * size * size), size * size);
}

static void load_vit(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load) {
    const int64_t size = d->model_size;
    entry entries[VIT_WEIGHTS];
    list_vit(d, entries);
    bind_all(&load->plan, entries, d->qkv_bias ? VIT_WEIGHTS : QKV_BIAS);
    load_qkv(d, target, load);
    freeze(&load->plan, OPERATOR_Q);
    freeze(&load->plan, OPERATOR_K);
    load_operator(d, target, load, OPERATOR_Q, 0);
    load_operator(d, target, load, OPERATOR_K, 1);
    clattn__cas_taps(&load->plan, target, size, clattn__slot(DWC), clattn__slot(DWC_BIAS), NULL,
                     clattn__cas_resident(KEEP_DWC, 0));
    clattn__cas_taps(&load->plan, target, size, clattn__slot(LAST), clattn__slot(LAST_BIAS), NULL,
                     clattn__cas_resident(KEEP_LAST, 0));
    load->resident_bytes[KEEP_OPERATORS] = sizeof(float) * (uint64_t)(2 * CLATTN__CAS_GATE_ROWS * size);
    load->resident_bytes[KEEP_NORMS] = sizeof(float) * (uint64_t)(2 * CLATTN__CAS_NORM_ROWS * size);
    load->resident_bytes[KEEP_CHANNELS] = sizeof(float) * (uint64_t)(2 * size * size);
    load->resident_bytes[KEEP_DWC] = sizeof(float) * (uint64_t)(CLATTN__CAS_TAP_ROWS * size);
    load->resident_bytes[KEEP_LAST] = load->resident_bytes[KEEP_DWC];
    load->resident_count = VIT_BUFFERS;
}

void clattn__cas_load(const clattn_cas_layer_desc *d, const clattn__target *target, clattn__load *load) {
    (d->mode == CLATTN_CAS_VIT ? load_vit : load_additive)(d, target, load);
}
