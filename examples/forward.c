/* A dense attention layer (torch.nn.MultiheadAttention) on the first OpenCL device, from arrays in C.
 *
 *     cc forward.c $(pkg-config --cflags --libs clattn) -o forward && ./forward
 *
 * The OpenCL context, the queue and every buffer are the program's own; clattn borrows them.
 */
#include <stdio.h>
#include <stdlib.h>

#include <clattn/clattn.h>

enum { BATCH = 2, LENGTH = 16, WIDTH = 32, HEADS = 4, MAX_WEIGHTS = 8 };

/* All that has to be released. */
typedef struct program {
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue;
    clattn_context *context;
    clattn_layer *layer;
    clattn_plan *plan;
    cl_mem x, y, scratch, weights[MAX_WEIGHTS];
} program;

/* ---- failures ---- */

/* Every call answers a status; the context keeps a sentence for the last one that failed. */
static int done(const program *p, const char *step, clattn_status status) {
    char sentence[1024];
    if (status == CLATTN_SUCCESS)
        return 1;
    clattn_context_error(p->context, sentence, sizeof sentence);
    fprintf(stderr, "%s: %s. %s\n", step, clattn_status_string(status), sentence);
    return 0;
}

static void print_line(void *user, clattn_log_level level, const char *line) {
    (void)user, (void)level;
    fprintf(stderr, "clattn: %s\n", line);
}

/* ---- OpenCL: the program's own business ---- */

static int open_device(program *p) {
    cl_platform_id platform;
    cl_uint platforms = 0;
    cl_int code = clGetPlatformIDs(1, &platform, &platforms);
    if (code == CL_SUCCESS && platforms > 0)
        code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &p->device, NULL);
    if (code != CL_SUCCESS || platforms == 0)
        return fprintf(stderr, "there is no OpenCL device here\n"), 0;
    p->cl = clCreateContext(NULL, 1, &p->device, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        p->queue = clCreateCommandQueue(p->cl, p->device, 0, &code);
    return done(p, "OpenCL context and queue", code);
}

/* Numbers that look random and are the same everywhere, in -scale .. scale. */
static void fill(float *values, size_t count, float scale, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

/* A device buffer of count floats. */
static cl_mem upload(const program *p, size_t count, float scale, unsigned seed, cl_int *code) {
    float *values = malloc(count * sizeof *values);
    if (!values) {
        *code = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    fill(values, count, scale, seed);
    cl_mem memory =
        clCreateBuffer(p->cl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count * sizeof *values, values, code);
    free(values);
    return memory;
}

/* ---- the layer ---- */

static int make_layer(program *p) {
    const clattn_context_options options = {.log = print_line, .log_level = CLATTN_LOG_WARNING};
    const clattn_dense_layer_desc desc = {.model_size = WIDTH, .heads = HEADS, .causal = true};
    return done(p, "context", clattn_context_create(p->cl, p->device, &options, &p->context)) &&
           done(p, "layer", clattn_dense_layer(p->context, &desc, &p->layer));
}

/* The layer names its weights and their shapes, as PyTorch's state_dict does; a program with a checkpoint looks them up
 * by these names. */
static int load_weights(program *p) {
    clattn_tensor tensors[MAX_WEIGHTS] = {{0}};
    const size_t count = clattn_layer_weight_count(p->layer);
    if (count > MAX_WEIGHTS)
        return fprintf(stderr, "the layer takes %zu weights, there is room for %d\n", count, MAX_WEIGHTS), 0;
    for (size_t w = 0; w < count; w++) {
        clattn_weight_info info;
        cl_int code = CL_SUCCESS;
        if (!done(p, "weight", clattn_layer_weight(p->layer, w, &info)))
            return 0;
        size_t floats = 1;
        for (int axis = 0; axis < info.rank; axis++)
            floats *= (size_t)info.shape[axis];
        p->weights[w] = upload(p, floats, info.rank == 2 ? 0.3f : 0.1f, 100 + (unsigned)w, &code);
        if (!done(p, info.name, code))
            return 0;
        tensors[w] = clattn_tensor_make(p->weights[w], CLATTN_F32, info.rank, info.shape);
    }
    return done(p, "weights", clattn_layer_load(p->layer, p->queue, tensors, count, 0, NULL, NULL));
}

/* A plan compiles its kernels once (and keeps them on disk); it can be run any number of times. */
static int make_plan(program *p) {
    const clattn_layer_shape shape = {.batch = BATCH, .length = LENGTH, .type = CLATTN_F32};
    cl_int code = CL_SUCCESS;
    if (!done(p, "plan", clattn_layer_plan(p->layer, &shape, &p->plan)))
        return 0;
    const size_t bytes = (size_t)clattn_plan_workspace_size(p->plan);
    if (bytes > 0)
        p->scratch = clCreateBuffer(p->cl, CL_MEM_READ_WRITE, bytes, NULL, &code);
    return done(p, "workspace", code);
}

static int run(program *p, float *y) {
    const int64_t shape[] = {BATCH, LENGTH, WIDTH};
    const size_t count = (size_t)BATCH * LENGTH * WIDTH;
    cl_int code;
    p->x = upload(p, count, 1.0f, 1, &code);
    if (code == CL_SUCCESS)
        p->y = clCreateBuffer(p->cl, CL_MEM_READ_WRITE, count * sizeof *y, NULL, &code);
    if (!done(p, "buffers", code))
        return 0;
    clattn_tensor tensors[CLATTN_LAYER_SLOTS] = {{0}}; /* what is absent stays zero */
    tensors[CLATTN_LAYER_X] = clattn_tensor_make(p->x, CLATTN_F32, 3, shape);
    tensors[CLATTN_LAYER_Y] = clattn_tensor_make(p->y, CLATTN_F32, 3, shape);
    const clattn_workspace workspace = {.memory = p->scratch};
    cl_event finished = NULL;
    if (!done(p, "forward",
              clattn_enqueue(p->plan, p->queue, tensors, CLATTN_LAYER_SLOTS, &workspace, 0, NULL, &finished)))
        return 0;
    code = clEnqueueReadBuffer(p->queue, p->y, CL_TRUE, 0, count * sizeof *y, y, 1, &finished, NULL);
    clReleaseEvent(finished);
    return done(p, "reading the answer", code);
}

/* Destroy accepts NULL; OpenCL's releases do not. The order does not matter: each object keeps what it needs. */
static void close_program(program *p) {
    clattn_plan_destroy(p->plan);
    clattn_layer_destroy(p->layer);
    clattn_context_destroy(p->context);
    const cl_mem buffers[] = {p->x, p->y, p->scratch};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i])
            clReleaseMemObject(buffers[i]);
    for (size_t w = 0; w < MAX_WEIGHTS; w++)
        if (p->weights[w])
            clReleaseMemObject(p->weights[w]);
    if (p->queue)
        clReleaseCommandQueue(p->queue);
    if (p->cl)
        clReleaseContext(p->cl);
}

int main(void) {
    static float y[BATCH * LENGTH * WIDTH];
    program p = {0};
    const int ok = open_device(&p) && make_layer(&p) && load_weights(&p) && make_plan(&p) && run(&p, y);
    if (ok) {
        printf("y[0, %d]:", LENGTH - 1);
        for (int c = 0; c < WIDTH; c++)
            printf(" %.5f", (double)y[(LENGTH - 1) * WIDTH + c]);
        printf("\n");
    }
    close_program(&p);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
