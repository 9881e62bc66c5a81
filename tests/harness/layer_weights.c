/* Random weights of every layer, under PyTorch's names and shapes. */
#include "harness/layer_weights.h"

#include <math.h>
#include <string.h>

/* Append a weight of normal numbers; name is static. Returns its numbers. */
static double *add(layer_data *data, rng *r, const char *name, double deviation, int rank, const int *shape) {
    size_t count = 1;
    ref_weight *weight = &data->weights[data->weight_count++];
    *weight = (ref_weight){.name = name, .rank = rank};
    for (int axis = 0; axis < rank; axis++) {
        weight->shape[axis] = shape[axis];
        count *= (size_t)shape[axis];
    }
    double *values = rng_array(r, deviation, count);
    weight->data = values;
    return values;
}

/* c, r and data are those of the function around. */
#define ADD(name, deviation, rank, ...) add(data, r, name, deviation, rank, (const int[]){__VA_ARGS__})
#define LINEAR(name, out, in) (ADD(name ".weight", 1 / sqrt(in), 2, out, in), ADD(name ".bias", 0.1, 1, out))

static void dense_weights(const layer_case *c, rng *r, layer_data *data) {
    ADD("in_proj_weight", 1 / sqrt(c->d), 2, 3 * c->d, c->d);
    ADD("in_proj_bias", 0.1, 1, 3 * c->d);
    LINEAR("out_proj", c->d, c->d);
}

static void topk_weights(const layer_case *c, rng *r, layer_data *data) {
    LINEAR("q_proj", c->d, c->d);
    LINEAR("k_proj", c->d, c->d);
    LINEAR("v_proj", c->d, c->d);
    LINEAR("out_proj", c->d, c->d);
}

static void adaptive_weights(const layer_case *c, rng *r, layer_data *data) {
    int window = settings_int(&data->settings, "window", 0), side = 2 * window - 1;
    LINEAR("qkv.to_q", c->d, c->d);
    LINEAR("qkv.to_kv", 2 * c->d, c->d);
    LINEAR("proj", c->d, c->d);
    ADD("w", 1, 1, 2);
    if (window)
        ADD("relative_position_bias_table", 0.5, 2, side * side, c->H);
}

static void additive_weights(const layer_case *c, rng *r, layer_data *data) {
    int kernel = c->kernel ? c->kernel : 3;
    double deviation = 1 / sqrt(c->d * kernel);
    ADD("conv_q.weight", deviation, 3, c->d, c->d, kernel);
    ADD("conv_q.bias", 0.1, 1, c->d);
    ADD("conv_k.weight", deviation, 3, c->d, c->d, kernel);
    ADD("conv_k.bias", 0.1, 1, c->d);
    LINEAR("linear_v", c->d, c->d);
    LINEAR("proj", c->d, c->d);
}

/* A variance lies in [0.5, 2). */
static void variance(rng *r, double *values, int count) {
    for (int e = 0; e < count; e++)
        values[e] = (float)rng_uniform(r, 0.5, 2);
}

#define OPERATOR(name)                                                                                                 \
    do {                                                                                                               \
        ADD(name ".0.block.0.weight", 1.0 / 3, 4, c->d, 1, 3, 3);                                                      \
        ADD(name ".0.block.0.bias", 0.1, 1, c->d);                                                                     \
        ADD(name ".0.block.1.weight", 1, 1, c->d);                                                                     \
        ADD(name ".0.block.1.bias", 0.1, 1, c->d);                                                                     \
        ADD(name ".0.block.1.running_mean", 0.1, 1, c->d);                                                             \
        variance(r, ADD(name ".0.block.1.running_var", 1, 1, c->d), c->d);                                             \
        ADD(name ".0.block.3.weight", 1 / sqrt(c->d), 4, 1, c->d, 1, 1);                                               \
        ADD(name ".1.block.1.weight", 1 / sqrt(c->d), 4, c->d, c->d, 1, 1);                                            \
    } while (0)

static void vit_weights(const layer_case *c, rng *r, layer_data *data) {
    ADD("qkv.weight", 1 / sqrt(c->d), 4, 3 * c->d, c->d, 1, 1);
    OPERATOR("oper_q");
    OPERATOR("oper_k");
    ADD("dwc.weight", 1.0 / 3, 4, c->d, 1, 3, 3);
    ADD("dwc.bias", 0.1, 1, c->d);
    ADD("proj.weight", 1.0 / 3, 4, c->d, 1, 3, 3);
    ADD("proj.bias", 0.1, 1, c->d);
}

static void cjar_weights(const layer_case *c, rng *r, layer_data *data) {
    int memory = c->memory ? c->memory : 4;
    LINEAR("to_qkv", 3 * c->d, c->d);
    LINEAR("to_out", c->d, c->d);
    if (memory > 0 && c->memory_kv) {
        ADD("global_mem_k", 1, 2, memory, c->d);
        ADD("global_mem_v", 1, 2, memory, c->d);
    } else if (memory > 0) {
        ADD("global_mem", 1, 2, memory, c->d);
    }
}

/* NaN in the rows and columns of a matrix that are not read. */
static void hide_rest(double *values, int rows, int columns, int read_rows, int read_columns) {
    for (int e = 0; e < rows * columns; e++)
        if (e / columns >= read_rows || e % columns >= read_columns)
            values[e] = NAN;
}

static void aft_weights(const layer_case *c, const char *mode, rng *r, layer_data *data) {
    bool conv = strcmp(mode, "conv") == 0, matrix = strcmp(mode, "full") == 0 || strcmp(mode, "local") == 0;
    int table = c->table ? c->table : c->n;
    LINEAR("Wq", c->d, c->d);
    LINEAR("Wk", conv ? c->H : c->d, c->d);
    LINEAR("Wv", c->d, c->d);
    LINEAR("Wo", c->d, c->d);
    if (strncmp(mode, "gated", 5) == 0)
        ADD("position_weights", 1, 3, c->H, 1, 1);
    if (conv)
        ADD("conv.weight", 1, 2, c->H, c->kernel ? c->kernel : 5);
    if (conv && c->reparam) {
        ADD("conv.gamma", 1, 1, c->H);
        ADD("conv.beta", 1, 1, c->H);
    }
    if (matrix && !c->rank)
        hide_rest(ADD("w", 1, 2, table, table), table, table, c->n, c->n);
    if (matrix && c->rank) {
        hide_rest(ADD("u", 0.5, 2, table, c->rank), table, c->rank, c->n, c->rank);
        hide_rest(ADD("v", 0.5, 2, table, c->rank), table, c->rank, c->n, c->rank);
    }
}

void layer_weights_make(const layer_case *c, rng *r, layer_data *data) {
    const char *mode = settings_mode(&data->settings, c->variant);
    if (strcmp(c->variant, "dense") == 0)
        dense_weights(c, r, data);
    else if (strcmp(c->variant, "cjar") == 0)
        cjar_weights(c, r, data);
    else if (strcmp(c->variant, "aft") == 0)
        aft_weights(c, mode, r, data);
    else if (strcmp(mode, "topk") == 0)
        topk_weights(c, r, data);
    else if (strcmp(mode, "adaptive") == 0)
        adaptive_weights(c, r, data);
    else if (strcmp(mode, "additive") == 0)
        additive_weights(c, r, data);
    else if (strcmp(mode, "vit") == 0)
        vit_weights(c, r, data);
}
