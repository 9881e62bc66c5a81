/* Linear layers: both engines against float64, forward and backward, and so against each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "gemm/gemm.h"
#include "harness/close.h"
#include "harness/device.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"
#include "harness/strided.h"

/* Slots of the plans built here. */
enum { X, W, B = W + 3, PACKED = B + 3, Y, DY = Y + 3, DX, DW, DB = DW + 3, LENGTHS = DB + 3, SLOTS };

static const clattn__operand absent = {CLATTN__SLOT_NONE, 0};

/* One product: sizes, and its tensors as float64.
 * own_weights  each batch entry has a w of its own, GAP floats apart once packed; else the first serves all
 * accumulate   gradients are added to copies of what they belong to; else written */
typedef struct product {
    int64_t batch, rows, in, out;
    int sections;
    bool bias, sigmoid, own_weights, accumulate;
    int dy_gap;       /* elements between rows of dy */
    clattn_type type; /* of x and dy */
    double *x, *w[3], *b[3], *dy;
    int *lengths; /* NULL: none */
} product;

enum { GAP = 3 };

static product product_make(int64_t batch, int64_t rows, int64_t in, int64_t out, int sections) {
    product p = {.batch = batch, .rows = rows, .in = in, .out = out, .sections = sections, .bias = true};
    rng r = rng_make((uint64_t)(rows * 131 + in * 17 + out));
    p.x = rng_array(&r, 1, (size_t)(batch * rows * in));
    for (int s = 0; s < sections; s++) {
        p.w[s] = rng_array(&r, 0.3, (size_t)(batch * out * in));
        p.b[s] = rng_array(&r, 1, (size_t)out);
    }
    p.dy = rng_array(&r, 1, (size_t)(batch * rows * out * sections));
    return p;
}

static void product_store(product *p, clattn_type type) {
    p->type = type;
    storage_round(type, p->x, (size_t)(p->batch * p->rows * p->in));
    storage_round(type, p->dy, (size_t)(p->batch * p->rows * p->out * p->sections));
}

static void product_free(product *p) {
    free(p->x);
    free(p->dy);
    free(p->lengths);
    for (int s = 0; s < p->sections; s++) {
        free(p->w[s]);
        free(p->b[s]);
    }
}

static bool padding(const product *p, int64_t row) { return p->lengths && row % p->rows >= p->lengths[row / p->rows]; }

static int64_t weight_sets(const product *p) { return p->own_weights ? p->batch : 1; }

/* ---- float64 ---- */

static const double *weights_of(const product *p, int64_t row, int s) {
    return p->w[s] + row / p->rows % weight_sets(p) * p->out * p->in;
}

static void reference(const product *p, int s, double *y) {
    for (int64_t r = 0; r < p->batch * p->rows; r++) {
        const double *w = weights_of(p, r, s);
        for (int64_t o = 0; o < p->out; o++) {
            double sum = p->bias ? p->b[s][o] : 0;
            for (int64_t i = 0; i < p->in; i++)
                sum += p->x[r * p->in + i] * w[o * p->in + i];
            y[r * p->out + o] = p->sigmoid ? 1 / (1 + exp(-sum)) : sum;
        }
    }
}

static double dy_at(const product *p, int64_t row, int s, int64_t o) {
    return p->dy[(row * p->sections + s) * p->out + o];
}

/* What a gradient is added to. */
static void reference_start(const product *p, double *grad, const double *of, int64_t count) {
    for (int64_t e = 0; e < count; e++)
        grad[e] = p->accumulate ? of[e] : 0;
}

static void reference_dx(const product *p, double *dx) {
    reference_start(p, dx, p->x, p->batch * p->rows * p->in);
    for (int64_t r = 0; r < p->batch * p->rows; r++)
        for (int64_t i = 0; i < p->in; i++)
            for (int s = 0; s < p->sections; s++)
                for (int64_t o = 0; o < p->out; o++)
                    dx[r * p->in + i] += dy_at(p, r, s, o) * p->w[s][o * p->in + i];
}

static void reference_dw(const product *p, int s, double *dw, double *db) {
    reference_start(p, dw, p->w[s], p->out * p->in);
    reference_start(p, db, p->b[s], p->out);
    for (int64_t r = 0; r < p->batch * p->rows; r++)
        for (int64_t o = 0; o < p->out; o++) {
            db[o] += dy_at(p, r, s, o);
            for (int64_t i = 0; i < p->in && !padding(p, r); i++)
                dw[o * p->in + i] += dy_at(p, r, s, o) * p->x[r * p->in + i];
        }
}

/* ---- the device ---- */

typedef struct rig {
    clattn_context *context;
    clattn_plan *plan;
    guarded buffers[SLOTS];
    clattn_tensor tensors[SLOTS];
} rig;

static void rig_begin(rig *g, clattn_gemm engine) {
    memset(g, 0, sizeof *g);
    const clattn_context_options options = {.gemm = engine};
    ck_assert_int_eq(clattn_context_create(device()->cl, device()->device, &options, &g->context), CLATTN_SUCCESS);
    clattn__error error = {0};
    g->plan = clattn__plan_make(g->context, false, &error);
    ck_assert_ptr_nonnull(g->plan);
    clattn__plan_init(&g->plan->forward.pure, SLOTS);
}

static void rig_bind(rig *g, int slot, guarded buffer) {
    g->buffers[slot] = buffer;
    g->tensors[slot] = guarded_tensor(&buffer, 1, (int64_t)buffer.count, 0, 0, 0);
    clattn__plan_bind(&g->plan->forward.pure, slot, "tensor", &g->tensors[slot], false);
}

static void rig_run(rig *g) {
    clattn__error error = {0};
    ck_assert_msg(clattn__plan_finish_passes(g->plan, &error) == CLATTN_SUCCESS, "%s", error.text);
    run_plan(device(), g->plan, g->tensors, SLOTS);
}

static void rig_end(rig *g) {
    for (int i = 0; i < SLOTS; i++)
        guarded_free(&g->buffers[i]);
    clattn_plan_destroy(g->plan);
    clattn_context_destroy(g->context);
}

static clattn__linear linear_of(const product *p) {
    return (clattn__linear){.in = p->in, .out = p->out, .sections = p->sections, .bias = p->bias};
}

/* Floats from one packed set of weights to the next. */
static int64_t packed_floats(const rig *g, const product *p) {
    const clattn__linear linear = linear_of(p);
    return (int64_t)(clattn__linear_bytes(&linear, &g->context->target) / sizeof(float)) + (p->own_weights ? GAP : 0);
}

static void load_set(rig *g, const product *p, int64_t set) {
    const clattn__linear linear = linear_of(p);
    clattn__operand weights[3], biases[3];
    for (int s = 0; s < p->sections; s++) {
        weights[s] = (clattn__operand){W + s, set * p->out * p->in};
        biases[s] = (clattn__operand){B + s, 0};
    }
    clattn__linear_load(&g->plan->forward.pure, &g->context->target, &linear, weights, biases,
                        (clattn__operand){PACKED, set * packed_floats(g, p)});
}

/* Bind and pack the weights; x and PACKED too. */
static void rig_load(rig *g, const product *p) {
    const int64_t sets = weight_sets(p);
    rig_bind(g, X, guarded_upload(device(), p->type, p->x, (size_t)(p->batch * p->rows * p->in)));
    rig_bind(g, PACKED, guarded_make(device(), CLATTN_F32, (size_t)(sets * packed_floats(g, p))));
    for (int s = 0; s < p->sections; s++) {
        rig_bind(g, W + s, guarded_upload(device(), CLATTN_F32, p->w[s], (size_t)(sets * p->out * p->in)));
        rig_bind(g, B + s, guarded_upload(device(), CLATTN_F32, p->b[s], (size_t)p->out));
    }
    for (int64_t set = 0; set < sets; set++)
        load_set(g, p, set);
}

static void check_buffer(rig *g, int slot, const double *want, const char *name) {
    double *got = guarded_read(device(), &g->buffers[slot], name);
    assert_close(name, got, want, g->buffers[slot].count, 2e-6);
    free(got);
}

/* ---- forward ---- */

static void check_forward(clattn_gemm engine, const product *p) {
    rig g;
    rig_begin(&g, engine);
    rig_load(&g, p);
    clattn__linear_call call = {.linear = linear_of(p),
                                .batch = p->batch,
                                .rows = p->rows,
                                .x = {X, 0},
                                .x_type = p->type,
                                .x_batch_stride = p->rows * p->in,
                                .x_row_stride = p->in,
                                .resident = {PACKED, 0},
                                .resident_batch_stride = p->own_weights ? packed_floats(&g, p) : 0};
    for (int s = 0; s < p->sections; s++) {
        rig_bind(&g, Y + s, guarded_make(device(), CLATTN_F32, (size_t)(p->batch * p->rows * p->out)));
        call.out[s] = clattn__out_rows((clattn__operand){Y + s, 0}, p->rows, p->out);
        call.out[s].activation = p->sigmoid ? CLATTN__SIGMOID : CLATTN__IDENTITY;
    }
    clattn__linear_apply(&g.plan->forward.pure, &g.context->target, &call);
    rig_run(&g);
    double *want = calloc((size_t)(p->batch * p->rows * p->out), sizeof *want);
    for (int s = 0; s < p->sections; s++) {
        reference(p, s, want);
        check_buffer(&g, Y + s, want, "y");
    }
    free(want);
    rig_end(&g);
}

/* ---- backward ---- */

static void bind_gradient(rig *g, const product *p, int slot, const double *of, int64_t count) {
    rig_bind(g, slot,
             p->accumulate ? guarded_upload(device(), CLATTN_F32, of, (size_t)count)
                           : guarded_make(device(), CLATTN_F32, (size_t)count));
}

static void bind_gradients(rig *g, const product *p, clattn__linear_grad *grad) {
    const int64_t rows = p->batch * p->rows;
    clattn_tensor dy =
        strided_layout(p->type, (spread){.gap = p->dy_gap}, (int64_t[]){1, 1, rows, p->out * p->sections});
    rig_bind(g, DY, strided_make(device(), &dy, p->dy));
    grad->dy_row_stride = p->dy_gap > 0 ? dy.stride[2] : 0;
    bind_gradient(g, p, DX, p->x, rows * p->in);
    for (int s = 0; s < p->sections; s++) {
        bind_gradient(g, p, DW + s, p->w[s], p->out * p->in);
        bind_gradient(g, p, DB + s, p->b[s], p->out);
        grad->dw[s] = (clattn__operand){DW + s, 0};
        grad->db[s] = (clattn__operand){DB + s, 0};
    }
    if (p->lengths) {
        rig_bind(g, LENGTHS, guarded_ints(device(), p->lengths, (size_t)p->batch));
        grad->lengths = (clattn__operand){LENGTHS, 0};
    }
}

static void check_gradients(rig *g, const product *p) {
    double *dx = calloc((size_t)(p->batch * p->rows * p->in), sizeof *dx);
    double *dw = calloc((size_t)(p->out * p->in), sizeof *dw), *db = calloc((size_t)p->out, sizeof *db);
    reference_dx(p, dx);
    check_buffer(g, DX, dx, "dx");
    for (int s = 0; s < p->sections; s++) {
        reference_dw(p, s, dw, db);
        check_buffer(g, DW + s, dw, "dw");
        check_buffer(g, DB + s, db, "db");
    }
    free(dx);
    free(dw);
    free(db);
}

static void check_backward(clattn_gemm engine, const product *p) {
    rig g;
    rig_begin(&g, engine);
    rig_load(&g, p);
    clattn__linear_grad grad = {.linear = linear_of(p),
                                .batch = p->batch,
                                .rows = p->rows,
                                .x = {X, 0},
                                .x_type = p->type,
                                .x_batch_stride = p->rows * p->in,
                                .x_row_stride = p->in,
                                .lengths = absent,
                                .dy = {DY, 0},
                                .dy_type = p->type,
                                .resident = {PACKED, 0},
                                .dx = {DX, 0},
                                .add_dx = p->accumulate,
                                .accumulate = p->accumulate};
    bind_gradients(&g, p, &grad);
    clattn__linear_backward(&g.plan->forward.pure, &g.context->target, &grad);
    rig_run(&g);
    check_gradients(&g, p);
    rig_end(&g);
}

/* ---- cases ---- */

static const struct {
    int64_t batch, rows, in, out;
    int sections;
} shapes[] = {
    {1, 1, 1, 1, 1},     {2, 5, 7, 3, 3},     {1, 48, 16, 16, 1},   {1, 47, 33, 15, 2},
    {3, 49, 255, 17, 1}, {1, 97, 256, 33, 1}, {2, 31, 257, 190, 3}, {1, 300, 512, 193, 1},
};

static const clattn_type types[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};

static product product_of(int shape) {
    return product_make(shapes[shape].batch, shapes[shape].rows, shapes[shape].in, shapes[shape].out,
                        shapes[shape].sections);
}

static void on_both_engines(void (*check)(clattn_gemm, const product *), const product *p) {
    check(CLATTN_GEMM_TILE, p);
    check(CLATTN_GEMM_CLBLAST, p);
}

START_TEST(both_engines_agree_with_float64) {
    product p = product_of(_i);
    on_both_engines(check_forward, &p);
    product_free(&p);
}
END_TEST

START_TEST(both_engines_give_gradients) {
    product p = product_of(_i);
    on_both_engines(check_backward, &p);
    product_free(&p);
}
END_TEST

START_TEST(inputs_are_stored_in_sixteen_bits) {
    product p = product_make(2, 31, 57, 19, 3);
    product_store(&p, types[_i]);
    on_both_engines(check_forward, &p);
    on_both_engines(check_backward, &p);
    product_free(&p);
}
END_TEST

START_TEST(bias_may_be_absent_and_sigmoid_is_fused) {
    product p = product_make(2, 19, 20, 21, 2);
    p.bias = false;
    p.sigmoid = true;
    on_both_engines(check_forward, &p);
    product_free(&p);
}
END_TEST

START_TEST(each_sequence_may_have_weights_of_its_own) {
    product p = product_make(3, 49, 57, 35, 2);
    product_store(&p, types[_i]);
    p.bias = false;
    p.own_weights = true;
    on_both_engines(check_forward, &p);
    product_free(&p);
}
END_TEST

START_TEST(rows_of_dy_may_lie_apart_and_gradients_add_up) {
    product p = product_make(3, 49, 57, 35, 2);
    product_store(&p, types[_i]);
    p.dy_gap = 5;
    on_both_engines(check_backward, &p);
    p.accumulate = true;
    on_both_engines(check_backward, &p);
    product_free(&p);
}
END_TEST

START_TEST(nan_in_padding_rows_leaves_gradients_alone) {
    product p = product_make(2, 19, 20, 21, 2);
    p.lengths = calloc(2, sizeof *p.lengths);
    p.lengths[1] = 7;
    for (int64_t row = 0; row < 2 * 19; row++)
        for (int64_t i = 0; i < 20 && padding(&p, row); i++)
            p.x[row * 20 + i] = NAN;
    for (int64_t i = 0; i < 2 * 19 * 42; i++)
        p.dy[i] = padding(&p, i / 42) ? 0 : p.dy[i];
    on_both_engines(check_backward, &p);
    product_free(&p);
}
END_TEST

int main(void) {
    const int count = sizeof shapes / sizeof *shapes;
    Suite *suite = suite_create("gemm");
    TCase *tests = tcase_create("linear");
    tcase_add_loop_test(tests, both_engines_agree_with_float64, 0, count);
    tcase_add_loop_test(tests, both_engines_give_gradients, 0, count);
    tcase_add_loop_test(tests, inputs_are_stored_in_sixteen_bits, 1, 3);
    tcase_add_test(tests, bias_may_be_absent_and_sigmoid_is_fused);
    tcase_add_loop_test(tests, each_sequence_may_have_weights_of_its_own, 0, 3);
    tcase_add_loop_test(tests, rows_of_dy_may_lie_apart_and_gradients_add_up, 0, 3);
    tcase_add_test(tests, nan_in_padding_rows_leaves_gradients_alone);
    suite_add_tcase(suite, tests);
    return run_device_suite(suite);
}
