/* Train one attention layer of each family, forward and backward through the public interface, and print the falling
 * loss.
 *
 *     train [FAMILY] [f32|f16] [STEPS]      default: every family, f32, as many steps as its task takes
 *
 * The task is copying from a distance: token i carries a value, the code of its own place, and the code of the place
 * SHIFT tokens before it. The layer must answer with the value that stands there. Attention solves it by matching codes
 * (dense, assa, cjar: the place lies in its window) or by learning where to look (aft-full's position table). cas gives
 * every query the same answer and aft-gated sums over all places: neither can, and their loss stays near 1.
 *
 * In f16 activations and gradients are stored in float16, with float32 weights in the program and a loss scale
 * (scaler.h). The optimiser, Adam, is the program's own, and so is the data.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/clattn.h>

enum { BATCH = 4, LENGTH = 256, VALUE = 16, CODE = 24, WIDTH = VALUE + 2 * CODE, HEADS = 2, SHIFT = 48, MEMORY = 4 };
enum { TOKENS = BATCH * LENGTH, MAX_WEIGHTS = CLATTN_LAYER_SLOTS - CLATTN_LAYER_GRAD_WEIGHTS, REPORTS = 5 };

/* settings    as on the command line
 * checkpoint  shapes that only weights tell: the position table, the memory
 * rate        Adam's; a position table's is ten times that */
typedef struct family {
    const char *name, *variant;
    clattn_setting settings[2];
    size_t setting_count;
    clattn_weight_info checkpoint;
    float rate;
    int steps;
} family;

static const family families[] = {
    {"dense", "dense", {{0}}, 0, {0}, 0.01f, 200},
    {"assa", "assa", {{"mode", "topk"}, {"k", "32"}}, 2, {0}, 0.01f, 300},
    {"cjar", "cjar", {{0}}, 0, {.name = "global_mem", .rank = 2, .shape = {MEMORY, WIDTH}}, 0.01f, 200},
    {"aft-full", "aft", {{"mode", "full"}}, 1, {.name = "w", .rank = 2, .shape = {LENGTH, LENGTH}}, 0.01f, 200},
    {"aft-gated", "aft", {{"mode", "gated"}}, 1, {0}, 0.01f, 60},
    {"cas", "cas", {{"mode", "additive"}}, 1, {0}, 0.01f, 60},
};

/* A weight with Adam's moments. */
typedef struct weight {
    clattn_weight_info info;
    size_t count;
    float *value, *gradient, *mean, *square;
    cl_mem device;
} weight;

typedef struct trainer {
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue;
    clattn_context *context;
    clattn_layer *layer;
    clattn_plan *plan;
    clattn_scaler *scaler;
    clattn_type type;
    weight weights[MAX_WEIGHTS];
    size_t weight_count;
    clattn_tensor tensors[CLATTN_LAYER_SLOTS];
    clattn_workspace workspace;
    float codes[LENGTH][CODE];
    float x[TOKENS * WIDTH], y[TOKENS * WIDTH], target[TOKENS * VALUE];
    unsigned seed;
} trainer;

/* ---- failures ---- */

static void check(const trainer *t, const char *step, clattn_status status) {
    char sentence[1024];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_error(t->context, sentence, sizeof sentence);
    fprintf(stderr, "%s: %s. %s\n", step, clattn_status_string(status), sentence);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

/* ---- numbers ---- */

static float uniform(trainer *t) { /* in -1 .. 1, the same on every machine */
    t->seed = t->seed * 1664525u + 1013904223u;
    return (float)(t->seed >> 8) / 8388608.0f - 1.0f;
}

static float sign(trainer *t) { return uniform(t) < 0 ? -1.0f : 1.0f; }

/* ---- float16 on the host: what the device stores ---- */

static unsigned short to_half(float value) {
    union {
        float f;
        unsigned u;
    } bits = {value};
    const unsigned sign_bit = bits.u >> 16 & 0x8000u;
    if (!(fabsf(value) < 65520.0f)) /* infinite after rounding, or NaN */
        return (unsigned short)(sign_bit | (isnan(value) ? 0x7e00u : 0x7c00u));
    if (fabsf(value) < 6.103515625e-5f) /* subnormal: a multiple of 2^-24 */
        return (unsigned short)(sign_bit | (unsigned)lrintf(fabsf(value) * 16777216.0f));
    const unsigned rounded = (bits.u & 0x7fffffffu) + 0xfffu + (bits.u >> 13 & 1u);
    return (unsigned short)(sign_bit | ((rounded - 0x38000000u) >> 13));
}

static float from_half(unsigned short half) {
    const int exponent = half >> 10 & 31;
    const float fraction = (float)(half & 0x3ff);
    const float magnitude = exponent == 31  ? (fraction > 0 ? NAN : INFINITY)
                            : exponent == 0 ? ldexpf(fraction, -24)
                                            : ldexpf(fraction + 1024.0f, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

/* ---- device memory ---- */

static clattn_tensor new_tensor(trainer *t, clattn_type type, int rank, const int64_t *shape) {
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    cl_int code;
    cl_mem memory = clCreateBuffer(t->cl, CL_MEM_READ_WRITE, count * clattn_type_size(type), NULL, &code);
    check(t, "buffer", code);
    return clattn_tensor_make(memory, type, rank, shape);
}

static void put(trainer *t, const clattn_tensor *to, const float *values, size_t count) {
    unsigned short *halves = allocate(count, sizeof *halves);
    for (size_t i = 0; i < count && to->type == CLATTN_F16; i++)
        halves[i] = to_half(values[i]);
    const void *from = to->type == CLATTN_F16 ? (const void *)halves : (const void *)values;
    check(t, "write",
          clEnqueueWriteBuffer(t->queue, to->memory, CL_TRUE, 0, count * clattn_type_size(to->type), from, 0, NULL,
                               NULL));
    free(halves);
}

static void get(trainer *t, const clattn_tensor *from, float *values, size_t count) {
    unsigned short *halves = allocate(count, sizeof *halves);
    void *to = from->type == CLATTN_F16 ? (void *)halves : (void *)values;
    check(t, "read",
          clEnqueueReadBuffer(t->queue, from->memory, CL_TRUE, 0, count * clattn_type_size(from->type), to, 0, NULL,
                              NULL));
    for (size_t i = 0; i < count && from->type == CLATTN_F16; i++)
        values[i] = from_half(halves[i]);
    free(halves);
}

/* ---- set-up ---- */

static void open_device(trainer *t) {
    cl_platform_id platform;
    cl_int code = clGetPlatformIDs(1, &platform, NULL);
    if (code == CL_SUCCESS)
        code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &t->device, NULL);
    check(t, "no OpenCL device", code);
    t->cl = clCreateContext(NULL, 1, &t->device, NULL, NULL, &code);
    check(t, "OpenCL context", code);
    t->queue = clCreateCommandQueue(t->cl, t->device, 0, &code);
    check(t, "queue", code);
    check(t, "context", clattn_context_create(t->cl, t->device, NULL, &t->context));
    for (int i = 0; i < LENGTH; i++)
        for (int c = 0; c < CODE; c++)
            t->codes[i][c] = sign(t);
}

/* Start as PyTorch does: uniform within 1/sqrt(inputs); biases and tables 0. */
static void make_weight(trainer *t, size_t index) {
    weight *w = &t->weights[index];
    check(t, "weight", clattn_layer_weight(t->layer, index, &w->info));
    w->count = 1;
    for (int i = 0; i < w->info.rank; i++)
        w->count *= (size_t)w->info.shape[i];
    float **arrays[] = {&w->value, &w->gradient, &w->mean, &w->square};
    for (int i = 0; i < 4; i++)
        *arrays[i] = allocate(w->count, sizeof(float));
    const int matrix = w->info.rank >= 2 && strcmp(w->info.name, "w") != 0;
    const float range = matrix ? 1.0f / sqrtf((float)(w->count / (size_t)w->info.shape[0])) : 0.0f;
    for (size_t i = 0; i < w->count; i++)
        w->value[i] = range * uniform(t);
    w->device = new_tensor(t, CLATTN_F32, w->info.rank, w->info.shape).memory;
    t->tensors[CLATTN_LAYER_GRAD_WEIGHTS + index] = new_tensor(t, t->type, w->info.rank, w->info.shape);
}

static void load_weights(trainer *t) {
    clattn_tensor tensors[MAX_WEIGHTS] = {{0}};
    for (size_t i = 0; i < t->weight_count; i++) {
        weight *w = &t->weights[i];
        tensors[i] = clattn_tensor_make(w->device, CLATTN_F32, w->info.rank, w->info.shape);
        put(t, &tensors[i], w->value, w->count);
    }
    check(t, "load", clattn_layer_load(t->layer, t->queue, tensors, t->weight_count, 0, NULL, NULL));
}

static void make_layer(trainer *t, const family *f) {
    check(t, "layer",
          clattn_layer_from_settings(t->context, f->variant, WIDTH, HEADS, f->settings, f->setting_count,
                                     &f->checkpoint, f->checkpoint.name ? 1 : 0, &t->layer));
    t->weight_count = clattn_layer_weight_count(t->layer);
    for (size_t i = 0; i < t->weight_count; i++)
        make_weight(t, i);
    load_weights(t);
}

static void make_plan(trainer *t) {
    const int64_t x_shape[] = {BATCH, LENGTH, WIDTH};
    const clattn_layer_shape shape = {
        .batch = BATCH, .length = LENGTH, .type = t->type, .train = true, .grad_type = t->type};
    check(t, "plan", clattn_layer_plan(t->layer, &shape, &t->plan));
    const int slots[] = {CLATTN_LAYER_X, CLATTN_LAYER_Y, CLATTN_LAYER_GRAD_X, CLATTN_LAYER_GRAD_Y};
    for (int i = 0; i < 4; i++)
        t->tensors[slots[i]] = new_tensor(t, t->type, 3, x_shape);
    const int64_t saved = (int64_t)clattn_plan_saved_count(t->plan);
    const int64_t scratch = (int64_t)clattn_plan_workspace_size(t->plan) / (int64_t)sizeof(float);
    if (saved > 0)
        t->tensors[CLATTN_LAYER_SAVED] = new_tensor(t, CLATTN_F32, 1, &saved);
    if (scratch > 0)
        t->workspace.memory = new_tensor(t, CLATTN_F32, 1, &scratch).memory;
    check(t, "scaler", clattn_scaler_create(t->context, NULL, &t->scaler));
}

/* ---- one step ---- */

static void make_batch(trainer *t) {
    for (int token = 0; token < TOKENS; token++)
        for (int c = 0; c < VALUE; c++)
            t->x[token * WIDTH + c] = sign(t);
    for (int token = 0; token < TOKENS; token++) {
        const int place = token % LENGTH, wanted = place < SHIFT ? place : place - SHIFT;
        const float *from = &t->x[(token - place + wanted) * WIDTH];
        memcpy(&t->x[token * WIDTH + VALUE], t->codes[place], sizeof t->codes[place]);
        memcpy(&t->x[token * WIDTH + VALUE + CODE], t->codes[wanted], sizeof t->codes[wanted]);
        memcpy(&t->target[token * VALUE], from, VALUE * sizeof(float));
    }
    put(t, &t->tensors[CLATTN_LAYER_X], t->x, TOKENS * WIDTH);
}

/* Mean squared error of the value; its gradient, times the loss scale, goes to GRAD_Y. */
static float loss_and_gradient(trainer *t, float scale) {
    double sum = 0;
    get(t, &t->tensors[CLATTN_LAYER_Y], t->y, TOKENS * WIDTH);
    for (int token = 0; token < TOKENS; token++)
        for (int c = 0; c < WIDTH; c++) {
            float *y = &t->y[token * WIDTH + c];
            const float error = c < VALUE ? *y - t->target[token * VALUE + c] : 0.0f;
            sum += (double)error * error;
            *y = scale * 2.0f * error / (float)(TOKENS * VALUE);
        }
    put(t, &t->tensors[CLATTN_LAYER_GRAD_Y], t->y, TOKENS * WIDTH);
    return (float)(sum / (TOKENS * VALUE));
}

static void adam(weight *w, float rate, int step) {
    const float keep_mean = 0.9f, keep_square = 0.99f;
    const float unbias_mean = 1.0f - powf(keep_mean, (float)step),
                unbias_square = 1.0f - powf(keep_square, (float)step);
    for (size_t i = 0; i < w->count; i++) {
        const float g = w->gradient[i];
        w->mean[i] = keep_mean * w->mean[i] + (1.0f - keep_mean) * g;
        w->square[i] = keep_square * w->square[i] + (1.0f - keep_square) * g * g;
        w->value[i] -= rate * (w->mean[i] / unbias_mean) / (sqrtf(w->square[i] / unbias_square) + 1e-8f);
    }
}

static void update(trainer *t, const family *f, int step) {
    for (size_t i = 0; i < t->weight_count; i++) {
        weight *w = &t->weights[i];
        if (!w->info.trainable)
            continue;
        get(t, &t->tensors[CLATTN_LAYER_GRAD_WEIGHTS + i], w->gradient, w->count);
        adam(w, strcmp(w->info.name, "w") == 0 ? 10.0f * f->rate : f->rate, step);
    }
    load_weights(t);
}

static float train_step(trainer *t, const family *f, int step) {
    const float scale = t->type == CLATTN_F16 ? clattn_scaler_scale(t->scaler) : 1.0f;
    bool skip = false;
    make_batch(t);
    check(t, "forward",
          clattn_enqueue(t->plan, t->queue, t->tensors, CLATTN_LAYER_SLOTS, &t->workspace, 0, NULL, NULL));
    const float loss = loss_and_gradient(t, scale);
    check(t, "backward",
          clattn_enqueue_backward(t->plan, t->queue, t->tensors, CLATTN_LAYER_SLOTS, &t->workspace, 0, NULL, NULL));
    if (t->type == CLATTN_F16) {
        check(t, "unscale",
              clattn_scaler_unscale(t->scaler, t->queue, t->tensors + CLATTN_LAYER_GRAD_WEIGHTS, t->weight_count, 0,
                                    NULL, NULL));
        check(t, "loss scale", clattn_scaler_update(t->scaler, t->queue, 0, NULL, &skip));
    }
    if (!skip)
        update(t, f, step);
    return loss;
}

/* ---- the program ---- */

static void close_trainer(trainer *t) {
    for (size_t i = 0; i < t->weight_count; i++) {
        weight *w = &t->weights[i];
        free(w->value), free(w->gradient), free(w->mean), free(w->square);
        clReleaseMemObject(w->device);
    }
    for (int i = 0; i < CLATTN_LAYER_SLOTS; i++)
        if (t->tensors[i].memory)
            clReleaseMemObject(t->tensors[i].memory);
    if (t->workspace.memory)
        clReleaseMemObject(t->workspace.memory);
    clattn_scaler_destroy(t->scaler);
    clattn_plan_destroy(t->plan);
    clattn_layer_destroy(t->layer);
    clattn_context_destroy(t->context);
    clReleaseCommandQueue(t->queue);
    clReleaseContext(t->cl);
    free(t);
}

static void train(const family *f, clattn_type type, int steps) {
    trainer *t = allocate(1, sizeof *t);
    t->type = type;
    t->seed = 1;
    open_device(t);
    make_layer(t, f);
    make_plan(t);
    steps = steps > 0 ? steps : f->steps;
    for (int step = 1; step <= steps; step++) {
        const float loss = train_step(t, f, step);
        if (step == 1 || step == steps || step * REPORTS / steps != (step - 1) * REPORTS / steps)
            printf("%-9s %s step %4d loss %.4f\n", f->name, clattn_type_name(type), step, (double)loss);
        fflush(stdout);
    }
    close_trainer(t);
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "all";
    const clattn_type type = argc > 2 && strcmp(argv[2], "f16") == 0 ? CLATTN_F16 : CLATTN_F32;
    const int steps = argc > 3 ? atoi(argv[3]) : 0;
    int found = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(wanted, "all") == 0 || strcmp(wanted, families[i].name) == 0) {
            train(&families[i], type, steps);
            found = 1;
        }
    if (!found)
        fprintf(stderr, "no family '%s': dense, assa, cjar, aft-full, aft-gated, cas or all\n", wanted);
    return found ? 0 : 2;
}
