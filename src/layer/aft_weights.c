/* aft: a layer's weights, bound and packed. */
#include "layer/aft.h"
#include "variant/aft_gram.h"

enum {
    WQ = CLATTN__AFT_WQ,
    WK = CLATTN__AFT_WK,
    BK = CLATTN__AFT_BK,
    WV = CLATTN__AFT_WV,
    BV = CLATTN__AFT_BV,
    WO = CLATTN__AFT_WO,
    BO = CLATTN__AFT_BO,
    EXTRA = CLATTN__AFT_EXTRA
};

bool clattn__aft_may_skip(const clattn_aft_layer_desc *desc, const clattn__target *target) {
    return clattn__aft_is_gated(desc->mode) && !desc->causal && clattn__aft_gram_possible(target);
}

clattn__aft_split clattn__aft_split_of(const clattn_aft_layer_desc *desc, const clattn__target *target) {
    return desc->mode == CLATTN_AFT_CONV        ? CLATTN__AFT_KEY_ALONE
           : clattn__aft_may_skip(desc, target) ? CLATTN__AFT_GATE_ALONE
                                                : CLATTN__AFT_TOGETHER;
}

clattn__linear clattn__aft_linear_in(const clattn_aft_layer_desc *desc, clattn__aft_split how) {
    return (clattn__linear){desc->model_size, desc->model_size, how == CLATTN__AFT_TOGETHER ? 3 : 2, true};
}

clattn__linear clattn__aft_linear_alone(const clattn_aft_layer_desc *desc, clattn__aft_split how) {
    return (clattn__linear){desc->model_size, how == CLATTN__AFT_KEY_ALONE ? desc->heads : desc->model_size, 1, true};
}

static void bind_projections(const clattn_aft_layer_desc *desc, clattn__plan *plan) {
    static const char *const names[EXTRA] = {"Wq.weight", "Wq.bias", "Wk.weight", "Wk.bias",
                                             "Wv.weight", "Wv.bias", "Wo.weight", "Wo.bias"};
    for (int i = 0; i < EXTRA; i++) {
        const bool key = desc->mode == CLATTN_AFT_CONV && (i == WK || i == BK);
        clattn__weight_bind(plan, i, names[i], key ? desc->heads : desc->model_size, i % 2 ? 0 : desc->model_size);
    }
}

static int extra_weights(const clattn_aft_layer_desc *desc) {
    switch (desc->mode) {
    case CLATTN_AFT_SIMPLE:
        return 0;
    case CLATTN_AFT_FULL:
    case CLATTN_AFT_LOCAL:
        return desc->rank > 0 ? 2 : 1;
    case CLATTN_AFT_CONV:
        return desc->reparam ? 3 : 1;
    default:
        return 1;
    }
}

static void bind_all(const clattn_aft_layer_desc *desc, clattn__plan *plan) {
    const int64_t T = desc->max_length, position[] = {desc->heads, 1, 1};
    const int extra = extra_weights(desc);
    clattn__plan_init(plan, EXTRA + extra);
    bind_projections(desc, plan);
    if (clattn__aft_is_gated(desc->mode)) {
        const clattn_tensor layout = clattn_tensor_make(NULL, CLATTN_F32, 3, position);
        clattn__plan_bind(plan, EXTRA, "position_weights", &layout, false);
    } else if (desc->mode == CLATTN_AFT_CONV) {
        clattn__weight_bind(plan, EXTRA, "conv.weight", desc->heads, desc->taps);
        if (desc->reparam) {
            clattn__weight_bind(plan, EXTRA + 1, "conv.gamma", desc->heads, 0);
            clattn__weight_bind(plan, EXTRA + 2, "conv.beta", desc->heads, 0);
        }
    } else if (extra == 2) {
        clattn__weight_bind(plan, EXTRA, "u", T, desc->rank);
        clattn__weight_bind(plan, EXTRA + 1, "v", T, desc->rank);
    } else if (extra == 1) {
        clattn__weight_bind(plan, EXTRA, "w", T, T);
    }
}

static void size(clattn__load *load, int index, int64_t floats) {
    load->resident_bytes[index] = (uint64_t)floats * sizeof(float);
}

static void load_projections(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    static const int together[][3] = {[CLATTN__AFT_TOGETHER] = {WQ, WK, WV},
                                      [CLATTN__AFT_GATE_ALONE] = {WK, WV, WV},
                                      [CLATTN__AFT_KEY_ALONE] = {WQ, WV, WV}};
    const clattn__aft_split how = clattn__aft_split_of(desc, target);
    const clattn__linear in = clattn__aft_linear_in(desc, how), alone = clattn__aft_linear_alone(desc, how);
    const clattn__linear out = {desc->model_size, desc->model_size, 1, true};
    const int lone = how == CLATTN__AFT_KEY_ALONE ? WK : WQ;
    clattn__operand w[3], b[3];
    for (int i = 0; i < 3; i++) {
        w[i] = clattn__slot(together[how][i]);
        b[i] = clattn__slot(together[how][i] + 1);
    }
    const clattn__operand ends[] = {clattn__slot(WO), clattn__slot(BO), clattn__slot(lone), clattn__slot(lone + 1)};
    clattn__self_load(load, target, RESIDENT_IN, &in, w, b);
    clattn__self_load(load, target, RESIDENT_OUT, &out, &ends[0], &ends[1]);
    if (how != CLATTN__AFT_TOGETHER)
        clattn__self_load(load, target, RESIDENT_ALONE, &alone, &ends[2], &ends[3]);
}

/* Wv and Wk with their biases as columns, as linear layers, by way of RESIDENT_FACTOR, where Wk stays transposed. */
static void load_augmented(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const int64_t d = desc->model_size, columns = d + 1;
    const clattn__operand rows = clattn__resident(RESIDENT_FACTOR);
    const clattn__linear linear = clattn__aft_linear_augmented(desc);
    clattn__target floats = *target;
    floats.weight_type = CLATTN_F32;
    size(load, RESIDENT_FACTOR, d * columns);
    for (int i = 0; i < 2; i++) {
        const int weight = i == 0 ? WV : WK;
        clattn__aft_augment(&load->plan, target, clattn__slot(weight), clattn__slot(weight + 1), rows, d, d, columns, 1);
        clattn__self_load(load, &floats, i == 0 ? RESIDENT_VALUE : RESIDENT_KEY, &linear, &rows, NULL);
    }
    clattn__aft_augment(&load->plan, target, clattn__slot(WK), clattn__slot(WK + 1), rows, d, d, 1, d);
}

/* LOCAL: the factors, the right one transposed, for backward. */
static void load_factors(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const int64_t T = desc->max_length, r = desc->rank, columns = clattn__aft_columns(T);
    const clattn__aft_rows right = {clattn__slot(EXTRA + 1), r};
    clattn__operand to = clattn__resident(RESIDENT_FACTOR);
    if (T * r == 0)
        return;
    size(load, RESIDENT_FACTOR, T * r + r * columns);
    clattn__aft_copy(&load->plan, target, clattn__slot(EXTRA), to, T * r);
    to.offset += T * r;
    clattn__aft_transpose(&load->plan, target, right, to, T, r, columns);
}

/* CONV: taps as they are used, and, for backward, what they are made of. */
static void load_taps(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const clattn__operand gamma = desc->reparam ? clattn__slot(EXTRA + 1) : clattn__none(),
                          beta = desc->reparam ? clattn__slot(EXTRA + 2) : clattn__none();
    const int64_t count = desc->heads * desc->taps;
    clattn__operand to = clattn__resident(RESIDENT_FACTOR);
    size(load, RESIDENT_BIAS, count);
    clattn__aft_taps(&load->plan, target, clattn__slot(EXTRA), gamma, beta, clattn__resident(RESIDENT_BIAS),
                     desc->heads, desc->taps);
    if (!desc->reparam)
        return;
    size(load, RESIDENT_FACTOR, count + desc->heads);
    clattn__aft_copy(&load->plan, target, clattn__slot(EXTRA), to, count);
    to.offset += count;
    clattn__aft_copy(&load->plan, target, gamma, to, desc->heads);
}

static void load_bias(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    const int64_t T = desc->max_length, r = desc->rank;
    const clattn__operand bias = clattn__resident(RESIDENT_BIAS);
    const clattn__aft_rows w = {clattn__slot(EXTRA), r > 0 ? r : T}, right = {clattn__slot(EXTRA + 1), r};
    if (desc->mode == CLATTN_AFT_LOCAL) {
        size(load, RESIDENT_BIAS, T * (2 * clattn__aft_band(desc) + 1));
        clattn__aft_bias(&load->plan, target, w, right, bias, T, r, clattn__aft_band(desc));
        load_factors(desc, target, load);
        return;
    }
    size(load, RESIDENT_BIAS, T * w.row);
    clattn__aft_copy(&load->plan, target, w.at, bias, T * w.row);
    if (r > 0) {
        size(load, RESIDENT_FACTOR, r * clattn__aft_columns(T));
        clattn__aft_transpose(&load->plan, target, right, clattn__resident(RESIDENT_FACTOR), T, r,
                              clattn__aft_columns(T));
    }
}

void clattn__aft_load(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load) {
    bind_all(desc, &load->plan);
    load_projections(desc, target, load);
    if (clattn__aft_is_gated(desc->mode)) {
        size(load, RESIDENT_BIAS, desc->heads);
        clattn__aft_copy(&load->plan, target, clattn__slot(EXTRA), clattn__resident(RESIDENT_BIAS), desc->heads);
        if (clattn__aft_may_skip(desc, target))
            load_augmented(desc, target, load);
    } else if (desc->mode == CLATTN_AFT_CONV) {
        load_taps(desc, target, load);
    } else if (desc->mode != CLATTN_AFT_SIMPLE) {
        load_bias(desc, target, load);
    }
    load->resident_count = RESIDENTS;
}
