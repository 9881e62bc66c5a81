/* assa: projections round the two cores. */
#include <inttypes.h>
#include <math.h>

#include "core/fill.h"
#include "core/layout.h"
#include "layer/self_backward.h"
#include "variant/assa_backward.h"

typedef clattn_assa_layer_desc description;

enum { DEFAULT_K = 32 };

enum { Q_WEIGHT, Q_BIAS, K_WEIGHT, K_BIAS, V_WEIGHT, V_BIAS, TOPK_OUT_WEIGHT, TOPK_OUT_BIAS, TOPK_WEIGHTS };

enum { TO_Q_WEIGHT, TO_Q_BIAS, KV_WEIGHT, KV_BIAS, OUT_WEIGHT, OUT_BIAS, MIX, TABLE, ADAPTIVE_WEIGHTS };

enum { RESIDENT_MIX = CLATTN__RESIDENT_OWN, RESIDENT_TABLE };

/* ---- description ---- */

static void defaults(void *desc) { *(description *)desc = (description){.k = DEFAULT_K}; }

static clattn_status check_topk(const description *d, clattn__error *error) {
    if (d->window != 0 || d->shift != 0)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "window is %" PRId64 " and shift %" PRId64 ", but mode topk has no windows", d->window,
                            d->shift);
    return clattn__range_check("k", d->k, 1, INT32_MAX / 4, error);
}

static clattn_status check_adaptive(const description *d, clattn__assa_window *window, clattn__error *error) {
    if (d->causal)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "causal is set, but mode adaptive sees all tokens");
    return clattn__assa_window_check(d->window, d->grid, d->shift, window, error);
}

/* The description with defaults filled in, and its windows. */
static clattn_status settle(const void *desc, description *d, clattn__assa_window *window, clattn__error *error) {
    *d = *(const description *)desc;
    *window = (clattn__assa_window){0};
    if (d->k == 0)
        d->k = DEFAULT_K;
    clattn_status status = clattn__self_check(d->model_size, d->heads, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("mode", d->mode, 0, CLATTN_ASSA_ADAPTIVE, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("normalise", d->normalise, 0, CLATTN_ASSA_ALL, error);
    if (status == CLATTN_SUCCESS)
        status = d->mode == CLATTN_ASSA_TOPK ? check_topk(d, error) : check_adaptive(d, window, error);
    return status;
}

/* ---- weights ---- */

static clattn__linear linear_qkv(int64_t d) { return (clattn__linear){.in = d, .out = d, .sections = 3, .bias = true}; }

static void load_out(const description *desc, const clattn__target *target, clattn__load *load, int weight, int bias) {
    const int64_t d = desc->model_size;
    clattn__self_load(load, target, CLATTN__RESIDENT_OUT,
                      &(clattn__linear){.in = d, .out = d, .sections = 1, .bias = true}, &(clattn__operand){weight, 0},
                      &(clattn__operand){bias, 0});
}

static void load_topk(const description *desc, const clattn__target *target, clattn__load *load) {
    static const char *const names[TOPK_WEIGHTS] = {"q_proj.weight", "q_proj.bias", "k_proj.weight",   "k_proj.bias",
                                                    "v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias"};
    const int64_t d = desc->model_size;
    const clattn__linear linear = linear_qkv(d);
    clattn__plan_init(&load->plan, TOPK_WEIGHTS);
    for (int i = 0; i < TOPK_WEIGHTS; i++)
        clattn__weight_bind(&load->plan, i, names[i], d, i % 2 ? 0 : d);
    clattn__self_load(load, target, CLATTN__RESIDENT_QKV, &linear,
                      (clattn__operand[]){{Q_WEIGHT, 0}, {K_WEIGHT, 0}, {V_WEIGHT, 0}},
                      (clattn__operand[]){{Q_BIAS, 0}, {K_BIAS, 0}, {V_BIAS, 0}});
    load_out(desc, target, load, TOPK_OUT_WEIGHT, TOPK_OUT_BIAS);
}

static void load_own(const description *desc, const clattn__target *target, clattn__load *load) {
    clattn__assa_mix(&load->plan, target, clattn__slot(MIX), clattn__resident(RESIDENT_MIX));
    load->resident_bytes[RESIDENT_MIX] = sizeof(float) * CLATTN__ASSA_MIX_FLOATS;
    load->resident_count = RESIDENT_MIX + 1;
    if (desc->window == 0)
        return;
    const int64_t floats = clattn__assa_table_floats(desc->window, desc->heads);
    clattn__assa_table(&load->plan, target, desc->window, desc->heads, clattn__slot(TABLE),
                       clattn__resident(RESIDENT_TABLE));
    load->resident_bytes[RESIDENT_TABLE] = sizeof(float) * (uint64_t)floats;
    load->resident_count = RESIDENT_TABLE + 1;
}

static void load_adaptive(const description *desc, const clattn__target *target, clattn__load *load) {
    const int64_t d = desc->model_size, line = 2 * desc->window - 1;
    const clattn__linear linear = linear_qkv(d);
    clattn__plan_init(&load->plan, desc->window > 0 ? ADAPTIVE_WEIGHTS : TABLE);
    clattn__weight_bind(&load->plan, TO_Q_WEIGHT, "qkv.to_q.weight", d, d);
    clattn__weight_bind(&load->plan, TO_Q_BIAS, "qkv.to_q.bias", d, 0);
    clattn__weight_bind(&load->plan, KV_WEIGHT, "qkv.to_kv.weight", 2 * d, d);
    clattn__weight_bind(&load->plan, KV_BIAS, "qkv.to_kv.bias", 2 * d, 0);
    clattn__weight_bind(&load->plan, OUT_WEIGHT, "proj.weight", d, d);
    clattn__weight_bind(&load->plan, OUT_BIAS, "proj.bias", d, 0);
    clattn__weight_bind(&load->plan, MIX, "w", 2, 0);
    if (desc->window > 0)
        clattn__weight_bind(&load->plan, TABLE, "relative_position_bias_table", line * line, desc->heads);
    clattn__self_load(load, target, CLATTN__RESIDENT_QKV, &linear,
                      (clattn__operand[]){{TO_Q_WEIGHT, 0}, {KV_WEIGHT, 0}, {KV_WEIGHT, d * d}},
                      (clattn__operand[]){{TO_Q_BIAS, 0}, {KV_BIAS, 0}, {KV_BIAS, d}});
    load_out(desc, target, load, OUT_WEIGHT, OUT_BIAS);
    load_own(desc, target, load);
}

static clattn_status load(const void *desc, const clattn__target *target, clattn__load *load, clattn__error *error) {
    description d;
    clattn__assa_window window;
    clattn_status status = settle(desc, &d, &window, error);
    if (status == CLATTN_SUCCESS)
        (d.mode == CLATTN_ASSA_TOPK ? load_topk : load_adaptive)(&d, target, load);
    return status;
}

/* ---- forward ---- */

/* What top-k saves beside q, k, v, o and the log-sum-exp: lists, unless k leaves nothing out. */
typedef struct topk_lists {
    clattn__operand indices, scores;
} topk_lists;

static topk_lists save_lists(const description *desc, const clattn_layer_shape *shape, clattn__plan *plan) {
    const int64_t count = shape->batch * desc->heads * shape->length * desc->k;
    if (!shape->train || desc->k >= shape->length)
        return (topk_lists){clattn__none(), clattn__none()};
    topk_lists lists;
    lists.indices = clattn__plan_save(plan, CLATTN_LAYER_SAVED, count);
    lists.scores = clattn__plan_save(plan, CLATTN_LAYER_SAVED, count);
    return lists;
}

static void contiguous(int64_t heads, int64_t rows, int64_t columns, int64_t stride[3]) {
    stride[2] = columns;
    stride[1] = columns * rows;
    stride[0] = columns * rows * heads;
}

static void forward_topk(const description *desc, const clattn_layer_shape *shape, const clattn__target *target,
                         clattn__plan *plan) {
    const clattn__self self = clattn__self_project(plan, target, desc->model_size, desc->heads, shape, false);
    const topk_lists lists = save_lists(desc, shape, plan);
    clattn__assa_topk core = {.sizes = self.sizes,
                              .q = self.q,
                              .o = self.o,
                              .packed = self.packed,
                              .indices = lists.indices,
                              .scores = lists.scores,
                              .lse = self.lse,
                              .key_lengths = self.lengths,
                              .query_lengths = self.lengths,
                              .scale = 1.0f / sqrtf((float)self.sizes.head_size),
                              .k = desc->k,
                              .right = desc->causal ? 0 : -1,
                              .normalise_all = desc->normalise == CLATTN_ASSA_ALL};
    contiguous(desc->heads, shape->length, desc->k, core.indices_stride);
    contiguous(desc->heads, shape->length, desc->k, core.scores_stride);
    contiguous(desc->heads, shape->length, 1, core.lse_stride);
    clattn__assa_topk_append(plan, target, &core);
    clattn__self_output(plan, target, desc->model_size, shape, self.o.at);
}

/* Q, K, V of whole sequences as rows [B, n, d]; windows are picked out of them. */
static void project_rows(const description *desc, const clattn_layer_shape *shape, const clattn__target *target,
                         clattn__plan *plan, clattn__view *const views[3]) {
    const int64_t d = desc->model_size, n = shape->length;
    clattn__linear_call call = {.linear = linear_qkv(d),
                                .batch = shape->batch,
                                .rows = n,
                                .x = {CLATTN_LAYER_X, 0},
                                .x_type = shape->type,
                                .x_batch_stride = n * d,
                                .x_row_stride = d,
                                .resident = clattn__resident(CLATTN__RESIDENT_QKV)};
    for (int i = 0; i < 3; i++) {
        call.out[i] = clattn__out_rows(views[i]->at, n, d);
        call.out[i].batch_stride = views[i]->batch_stride;
        call.out[i].row_stride = views[i]->row_stride;
    }
    clattn__linear_apply(plan, target, &call);
}

/* q, k, v and o as rows of whole grids: saved, or in the workspace. */
static clattn__self whole_grids(const description *desc, const clattn_layer_shape *shape, clattn__plan *plan) {
    const int64_t n = shape->length, d = desc->model_size, dh = d / desc->heads;
    if (shape->train)
        return clattn__self_saved(plan, d, desc->heads, shape);
    clattn__self self = {.sizes = {shape->batch, desc->heads, desc->heads, n, n, dh, dh},
                         .lse = clattn__none(),
                         .lengths = clattn__none()};
    clattn__view *const views[] = {&self.q, &self.k, &self.v, &self.o};
    for (int i = 0; i < 4; i++)
        *views[i] = (clattn__view){clattn__plan_scratch(plan, shape->batch * n * d), CLATTN_F32, n * d, dh, d};
    return self;
}

static clattn__self project_windows(const description *desc, const clattn_layer_shape *shape,
                                    const clattn__assa_window *window, const clattn__target *target,
                                    clattn__plan *plan) {
    clattn__self self = whole_grids(desc, shape, plan);
    project_rows(desc, shape, target, plan, (clattn__view *const[]){&self.q, &self.k, &self.v});
    self.sizes = clattn__assa_window_sizes(&self.sizes, window);
    self.packed = clattn__packed_reserve(plan, target, &self.sizes);
    clattn__assa_window_keys(plan, target, &self.sizes, window, &self.k, &self.packed);
    clattn__assa_window_values(plan, target, &self.sizes, window, &self.v, &self.packed);
    return self;
}

static void forward_adaptive(const description *desc, const clattn_layer_shape *shape,
                             const clattn__assa_window *window, const clattn__target *target, clattn__plan *plan) {
    const clattn__self self = window->side > 0
                                  ? project_windows(desc, shape, window, target, plan)
                                  : clattn__self_project(plan, target, desc->model_size, desc->heads, shape, false);
    clattn__assa_mixed core = {.sizes = self.sizes,
                               .q = self.q,
                               .o = self.o,
                               .packed = self.packed,
                               .mix = clattn__resident(RESIDENT_MIX),
                               .table = window->side > 0 ? clattn__resident(RESIDENT_TABLE) : clattn__none(),
                               .lse = self.lse,
                               .key_lengths = clattn__none(),
                               .query_lengths = clattn__none(),
                               .scale = 1.0f / sqrtf((float)self.sizes.head_size),
                               .right = -1,
                               .window = *window};
    contiguous(desc->heads, shape->length, 1, core.lse_stride);
    clattn__assa_mixed_append(plan, target, &core);
    clattn__self_output(plan, target, desc->model_size, shape, self.o.at);
}

static clattn_status forward(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error) {
    description d;
    clattn__assa_window window;
    clattn_status status = settle(desc, &d, &window, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (d.mode == CLATTN_ASSA_TOPK) {
        forward_topk(&d, shape, target, plan);
        return CLATTN_SUCCESS;
    }
    if (shape->has_lengths)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "lengths are given, but mode adaptive takes whole sequences");
    status = clattn__assa_length_check(&window, shape->length, error);
    if (status == CLATTN_SUCCESS)
        forward_adaptive(&d, shape, &window, target, plan);
    return status;
}

/* ---- backward ---- */

static clattn__operand gradient(int slot, int64_t offset) {
    return (clattn__operand){CLATTN_LAYER_GRAD_WEIGHTS + slot, offset};
}

static clattn__self_weights weights_of(const description *desc) {
    const int64_t d = desc->model_size;
    if (desc->mode == CLATTN_ASSA_TOPK)
        return (clattn__self_weights){.weight = {gradient(Q_WEIGHT, 0), gradient(K_WEIGHT, 0), gradient(V_WEIGHT, 0)},
                                      .bias = {gradient(Q_BIAS, 0), gradient(K_BIAS, 0), gradient(V_BIAS, 0)},
                                      .out_weight = gradient(TOPK_OUT_WEIGHT, 0),
                                      .out_bias = gradient(TOPK_OUT_BIAS, 0)};
    return (clattn__self_weights){
        .weight = {gradient(TO_Q_WEIGHT, 0), gradient(KV_WEIGHT, 0), gradient(KV_WEIGHT, d * d)},
        .bias = {gradient(TO_Q_BIAS, 0), gradient(KV_BIAS, 0), gradient(KV_BIAS, d)},
        .out_weight = gradient(OUT_WEIGHT, 0),
        .out_bias = gradient(OUT_BIAS, 0)};
}

/* What a key bias adds is the same for all of a query's scores: neither the choice nor the softmax changes, and the
 * gradient is exactly 0. */
static void zero_key_bias(const description *desc, const clattn_layer_shape *shape, clattn__plan *plan,
                          clattn__self_weights *weights) {
    if (!shape->accumulate)
        clattn__fill_append(plan, weights->bias[1], desc->model_size, shape->grad_type, 0);
    weights->bias[1] = clattn__none();
}

static clattn__assa_pairs pairs_of(const description *desc, const clattn_layer_shape *shape, const clattn__self *self,
                                   const clattn__assa_window *window) {
    const bool adaptive = desc->mode == CLATTN_ASSA_ADAPTIVE, windows = window->side > 0;
    return (clattn__assa_pairs){.sizes = windows ? clattn__assa_window_sizes(&self->sizes, window) : self->sizes,
                                .tokens = shape->length,
                                .q = self->q,
                                .k = self->k,
                                .v = self->v,
                                .lse = self->lse,
                                .mix = adaptive ? clattn__resident(RESIDENT_MIX) : clattn__none(),
                                .table = windows ? clattn__resident(RESIDENT_TABLE) : clattn__none(),
                                .key_lengths = self->lengths,
                                .query_lengths = self->lengths,
                                .scale = 1.0f / sqrtf((float)self->sizes.head_size),
                                .right = desc->causal ? 0 : -1,
                                .window = *window,
                                .grad_type = shape->grad_type,
                                .accumulate = shape->accumulate};
}

static clattn_status backward(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan, clattn__error *error) {
    description d;
    clattn__assa_window window;
    clattn_status status = settle(desc, &d, &window, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const bool adaptive = d.mode == CLATTN_ASSA_ADAPTIVE;
    if (!adaptive && d.k < shape->length)
        status = clattn__assa_backward_check(shape->batch * d.heads, shape->length, d.k, error);
    if (status != CLATTN_SUCCESS)
        return status;
    const clattn__self self = clattn__self_saved(plan, d.model_size, d.heads, shape);
    const topk_lists lists = adaptive ? (topk_lists){clattn__none(), clattn__none()} : save_lists(&d, shape, plan);
    clattn__self_weights weights = weights_of(&d);
    if (!adaptive)
        zero_key_bias(&d, shape, plan, &weights);
    const clattn__core_gradients gradients = clattn__self_backward_output(plan, target, &self, shape, &weights);
    const clattn__assa_pairs pairs = pairs_of(&d, shape, &self, &window);
    if (clattn__given(lists.indices))
        clattn__assa_topk_backward(plan, target, &pairs, lists.indices, lists.scores, d.k,
                                   d.normalise == CLATTN_ASSA_ALL, &gradients);
    else
        clattn__assa_pairs_backward(plan, target, &pairs, &gradients,
                                    window.side > 0 ? gradient(TABLE, 0) : clattn__none(),
                                    adaptive ? gradient(MIX, 0) : clattn__none());
    clattn__self_backward_project(plan, target, &self, shape, &weights, &gradients);
    return CLATTN_SUCCESS;
}

static const char *const modes[] = {"topk", "adaptive", NULL};
static const char *const normalisations[] = {"selected", "all", NULL};

static const clattn__option options[] = {
    {"mode", CLATTN__OPTION_CHOICE, offsetof(description, mode), 0, modes},
    {"k", CLATTN__OPTION_INT, offsetof(description, k), 1, NULL},
    {"normalise", CLATTN__OPTION_CHOICE, offsetof(description, normalise), 0, normalisations},
    {"causal", CLATTN__OPTION_FLAG, offsetof(description, causal), 0, NULL},
    {"window", CLATTN__OPTION_INT, offsetof(description, window), 0, NULL},
    {"grid", CLATTN__OPTION_PAIR, offsetof(description, grid), 1, NULL},
    {"shift", CLATTN__OPTION_INT, offsetof(description, shift), 0, NULL},
    {0},
};

const clattn__variant clattn__variant_assa = {.name = "assa",
                                              .desc_size = sizeof(description),
                                              .options = options,
                                              .defaults = defaults,
                                              .load = load,
                                              .forward = forward,
                                              .backward = backward,
                                              .core = clattn__assa_core,
                                              .core_trains = clattn__assa_core_trains,
                                              .core_backward = clattn__assa_core_backward};
