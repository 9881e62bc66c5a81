/* Gradients of the core of the aft family, on strided tensors, against the formulas in float64. */
#include <clattn/aft.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

/* n tokens of H heads of D channels, batch 2; gap elements lie behind each head; rows of w, or of its factors, are
 * n + spare. keys: their deviation. */
typedef struct gradient_case {
    clattn_aft_mode mode;
    int n, H, D, gap, local, taps, rank, spare;
    bool causal, lengths;
    double keys;
    clattn_type type;
} gradient_case;

/* Those of odd numbers run in a GPU's shape too. */
static const gradient_case cases[] = {
    {CLATTN_AFT_GATED, 70, 2, 16, 0, .causal = true, .type = CLATTN_BF16},
    {CLATTN_AFT_GATED, 70, 3, 11, 3, .lengths = true},
    {CLATTN_AFT_GATED_MATRIX, 40, 2, 16, 0, .type = CLATTN_F16},
    {CLATTN_AFT_GATED_MATRIX, 70, 3, 11, 3, .lengths = true, .causal = true},
    {CLATTN_AFT_SIMPLE, 1, 2, 5, .gap = 0},
    {CLATTN_AFT_SIMPLE, 70, 3, 11, 1, .lengths = true, .keys = 50},
    {CLATTN_AFT_SIMPLE, 70, 2, 16, 0, .causal = true, .type = CLATTN_F16},
    {CLATTN_AFT_LOCAL, 331, 2, 9, 1, .local = 20, .spare = 70, .lengths = true, .keys = 50},
    {CLATTN_AFT_LOCAL, 215, 2, 8, 1, .local = 9, .rank = 2, .spare = 1},
    {CLATTN_AFT_LOCAL, 315, 1, 20, .local = 30, .causal = true, .lengths = true, .rank = 3, .keys = 30},
    {CLATTN_AFT_LOCAL, 65, 2, 9, 1, .local = 1, .lengths = true, .type = CLATTN_F16},
    {CLATTN_AFT_LOCAL, 20, 2, 0, .gap = 1, .local = 4, .rank = 2},
    {CLATTN_AFT_LOCAL, 49, 1, 9, .local = 99, .causal = true, .spare = 20, .rank = 2, .type = CLATTN_BF16},
    {CLATTN_AFT_FULL, 67, 1, 9, .causal = true, .rank = 4, .spare = 5},
    {CLATTN_AFT_FULL, 70, 3, 11, 3, .spare = 2, .lengths = true, .keys = 50},
    {CLATTN_AFT_FULL, 215, 1, 20, .causal = true, .keys = 50, .spare = 70},
    {CLATTN_AFT_FULL, 215, 2, 9, 1, .lengths = true},
    {CLATTN_AFT_FULL, 210, 2, 9, 0, .lengths = true, .rank = 3, .keys = 30},
    {CLATTN_AFT_FULL, 1, 1, 9, .gap = 0},
    {CLATTN_AFT_FULL, 20, 2, 0, .gap = 1, .spare = 3},
    {CLATTN_AFT_CONV, 33, 2, 24, 0, .taps = 3, .causal = true, .keys = 50, .type = CLATTN_BF16},
    {CLATTN_AFT_CONV, 70, 3, 11, 2, .taps = 7, .lengths = true},
};

enum { CASES = sizeof(cases) / sizeof(*cases), B = 2 };

/* What the core reads, dY, and gradients in the order of the slots. */
enum { Q, K, V, POSITION, W, LEFT, RIGHT, TAPS, VALUES };

static const char *const names[VALUES] = {"q", "k", "v", "position", "w", "left", "right", "taps"};
static const int slots[VALUES] = {CLATTN_AFT_Q, CLATTN_AFT_K,      CLATTN_AFT_V,       CLATTN_AFT_POSITION,
                                  CLATTN_AFT_W, CLATTN_AFT_W_LEFT, CLATTN_AFT_W_RIGHT, CLATTN_AFT_TAPS};
static const int gradient_slots[VALUES] = {CLATTN_AFT_GRAD_Q,        CLATTN_AFT_GRAD_K,   CLATTN_AFT_GRAD_V,
                                           CLATTN_AFT_GRAD_POSITION, CLATTN_AFT_GRAD_W,   CLATTN_AFT_GRAD_W_LEFT,
                                           CLATTN_AFT_GRAD_W_RIGHT,  CLATTN_AFT_GRAD_TAPS};

typedef struct gradient_data {
    int lengths[B], key_size, T;
    double *value[VALUES], *grad[VALUES], *dy;
    size_t count[VALUES];
} gradient_data;

static bool is_gated(const gradient_case *c) {
    return c->mode == CLATTN_AFT_GATED || c->mode == CLATTN_AFT_GATED_MATRIX;
}

static bool uses(const gradient_case *c, int what) {
    const bool biased = c->mode == CLATTN_AFT_FULL || c->mode == CLATTN_AFT_LOCAL;
    return what <= V || (what == POSITION && is_gated(c)) || (what == W && biased && !c->rank) ||
           ((what == LEFT || what == RIGHT) && biased && c->rank) || (what == TAPS && c->mode == CLATTN_AFT_CONV);
}

static bool in_band(const gradient_case *c, int i, int j) {
    return c->mode == CLATTN_AFT_FULL || (c->mode == CLATTN_AFT_LOCAL && abs(i - j) < c->local);
}

/* NaN where w, or its factors, must not be read: outside the band, and past n. */
static void hide_weights(const gradient_case *c, gradient_data *data) {
    for (int i = 0; i < data->T; i++) {
        for (int j = 0; j < data->T && data->count[W] > 0; j++)
            if (i >= c->n || j >= c->n || !in_band(c, i, j))
                data->value[W][(size_t)i * (size_t)data->T + (size_t)j] = NAN;
        for (int r = 0; r < c->rank && i >= c->n; r++)
            data->value[LEFT][i * c->rank + r] = data->value[RIGHT][i * c->rank + r] = NAN;
    }
}

static gradient_data data_make(const gradient_case *c) {
    rng r = rng_make(900 + (uint64_t)(c - cases));
    gradient_data data = {
        .lengths = {c->n, c->n / 2}, .key_size = c->mode == CLATTN_AFT_CONV ? 1 : c->D, .T = c->n + c->spare};
    const size_t rows = (size_t)(B * c->n * c->H), d = (size_t)c->D, t = (size_t)data.T;
    const size_t counts[VALUES] = {rows * d,
                                   rows * (size_t)data.key_size,
                                   rows * d,
                                   (size_t)c->H,
                                   t * t,
                                   t * (size_t)c->rank,
                                   t * (size_t)c->rank,
                                   (size_t)(c->H * c->taps)};
    for (int i = 0; i < VALUES; i++) {
        data.count[i] = uses(c, i) ? counts[i] : 0;
        data.value[i] = rng_array(&r, i == K && c->keys != 0 ? c->keys : 1, data.count[i] + 1);
        data.grad[i] = ref_array(data.count[i] + 1);
        if (i <= V)
            storage_round(c->type, data.value[i], data.count[i]);
    }
    hide_weights(c, &data);
    data.dy = rng_array(&r, 1, rows * d);
    storage_round(c->type, data.dy, rows * d);
    return data;
}

static void data_free(gradient_data *data) {
    for (int i = 0; i < VALUES; i++) {
        free(data->value[i]);
        free(data->grad[i]);
    }
    free(data->dy);
}

/* ---- the formulas ---- */

static int seen(const gradient_case *c, const gradient_data *data, int b) {
    return c->lengths ? data->lengths[b] : c->n;
}

/* First element of a token and head of q, v, dy; keys have their own width. */
static size_t at(const gradient_case *c, int b, int i, int h, int width) {
    return ((size_t)(b * c->n + i) * (size_t)c->H + (size_t)h) * (size_t)width;
}

static int tap_of(const gradient_case *c, int i, int j) {
    const int tap = j - i + c->taps / 2;
    return tap >= 0 && tap < c->taps ? tap : -1;
}

static double bias(const gradient_case *c, const gradient_data *data, int h, int i, int j) {
    if (c->mode == CLATTN_AFT_CONV)
        return tap_of(c, i, j) >= 0 ? data->value[TAPS][h * c->taps + tap_of(c, i, j)] : 0;
    if (!in_band(c, i, j))
        return 0;
    return c->rank ? ref_dot(data->value[LEFT] + i * c->rank, data->value[RIGHT] + j * c->rank, c->rank)
                   : data->value[W][(size_t)i * (size_t)data->T + (size_t)j];
}

/* dw_ij goes on to what w is made of. */
static void add_bias(const gradient_case *c, gradient_data *data, int h, int i, int j, double dw) {
    if (c->mode == CLATTN_AFT_CONV && tap_of(c, i, j) >= 0)
        data->grad[TAPS][h * c->taps + tap_of(c, i, j)] += dw;
    if (!in_band(c, i, j))
        return;
    if (!c->rank)
        data->grad[W][(size_t)i * (size_t)data->T + (size_t)j] += dw;
    for (int r = 0; r < c->rank; r++) {
        data->grad[LEFT][i * c->rank + r] += dw * data->value[RIGHT][j * c->rank + r];
        data->grad[RIGHT][j * c->rank + r] += dw * data->value[LEFT][i * c->rank + r];
    }
}

/* One query and channel of an average over `keys` keys; p and logits are scratch. */
static void average(const gradient_case *c, gradient_data *data, int b, int i, int h, int e, int keys, double *logits,
                    double *p) {
    const int ke = data->key_size == 1 ? 0 : e;
    const size_t q = at(c, b, i, h, c->D) + (size_t)e;
    double top = -INFINITY, sum = 0, o = 0;
    for (int j = 0; j < keys; j++) {
        logits[j] = data->value[K][at(c, b, j, h, data->key_size) + (size_t)ke] + bias(c, data, h, i, j);
        top = fmax(top, logits[j]);
    }
    for (int j = 0; j < keys; j++)
        sum += p[j] = exp(logits[j] - top);
    for (int j = 0; j < keys; j++)
        o += (p[j] /= sum) * data->value[V][at(c, b, j, h, c->D) + (size_t)e];
    const double g = ref_sigmoid(data->value[Q][q]), go = data->dy[q] * g;
    data->grad[Q][q] += go * o * (1 - g);
    for (int j = 0; j < keys; j++) {
        const size_t v = at(c, b, j, h, c->D) + (size_t)e;
        const double ds = p[j] * go * (data->value[V][v] - o);
        data->grad[V][v] += p[j] * go;
        data->grad[K][at(c, b, j, h, data->key_size) + (size_t)ke] += ds;
        add_bias(c, data, h, i, j, ds);
    }
}

/* y_e += p g_a k_a v_e for one pair of tokens: a = e, or every a of the head. */
static void gated_pair(const gradient_case *c, gradient_data *data, int b, int i, int j, int h) {
    const double weight = data->value[POSITION][h];
    for (int e = 0; e < c->D; e++)
        for (int a = 0; a < c->D; a++) {
            if (c->mode == CLATTN_AFT_GATED && a != e)
                continue;
            const size_t q = at(c, b, i, h, c->D) + (size_t)a, k = at(c, b, j, h, c->D) + (size_t)a;
            const size_t v = at(c, b, j, h, c->D) + (size_t)e, y = at(c, b, i, h, c->D) + (size_t)e;
            const double g = ref_sigmoid(data->value[Q][q]), key = data->value[K][k], value = data->value[V][v];
            data->grad[Q][q] += data->dy[y] * weight * key * value * g * (1 - g);
            data->grad[K][k] += data->dy[y] * weight * g * value;
            data->grad[V][v] += data->dy[y] * weight * g * key;
            data->grad[POSITION][h] += data->dy[y] * g * key * value;
        }
}

static void expect(const gradient_case *c, gradient_data *data) {
    double *logits = ref_array((size_t)c->n), *p = ref_array((size_t)c->n);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < seen(c, data, b); i++)
            for (int h = 0; h < c->H; h++) {
                const int keys = c->causal ? i + 1 : seen(c, data, b);
                for (int e = 0; e < c->D && !is_gated(c); e++)
                    average(c, data, b, i, h, e, keys, logits, p);
                for (int j = 0; j < keys && is_gated(c); j++)
                    gated_pair(c, data, b, i, j, h);
            }
    free(p);
    free(logits);
}

/* ---- the device ---- */

/* [B, n, H, size] with gap elements behind each head. */
static clattn_tensor layout(const gradient_case *c, int size) {
    const int64_t shape[] = {B, c->n, c->H, size};
    clattn_tensor t = clattn_tensor_make(NULL, c->type, 4, shape);
    t.stride[2] = size + c->gap;
    t.stride[1] = c->H * t.stride[2];
    t.stride[0] = c->n * t.stride[1];
    return t;
}

static clattn_tensor place(clattn_tensor t, const guarded *g) {
    t.memory = g->memory;
    t.offset = g->before / clattn_type_size(t.type);
    return t;
}

/* Values (NULL: none) among NaN gaps; tokens of padding NaN. */
static guarded upload(const fixture *f, const gradient_case *c, const gradient_data *data, const double *values,
                      int size) {
    const int stride = size + c->gap;
    const size_t count = (size_t)(B * c->n * c->H * stride);
    double *copy = ref_array(count);
    for (size_t e = 0; e < count; e++) {
        const size_t row = e / (size_t)stride, column = e % (size_t)stride, token = row / (size_t)c->H;
        const bool padding = (int)(token % (size_t)c->n) >= seen(c, data, (int)(token / (size_t)c->n));
        copy[e] = !values || padding || (int)column >= size ? NAN : values[row * (size_t)size + column];
    }
    const guarded g = guarded_upload(f, c->type, copy, count);
    free(copy);
    return g;
}

/* A gradient of q, k or v without its gaps, which must still be NaN; frees raw. */
static double *without_gaps(const gradient_case *c, double *raw, int size) {
    const int stride = size + c->gap, rows = B * c->n * c->H;
    double *values = ref_array((size_t)(rows * size));
    for (int row = 0; row < rows; row++) {
        memcpy(values + (size_t)row * (size_t)size, raw + (size_t)row * (size_t)stride, (size_t)size * sizeof(double));
        for (int e = size; e < stride; e++)
            ck_assert_msg(isnan(raw[row * stride + e]), "row %d: the gap was written", row);
    }
    free(raw);
    return values;
}

static clattn_tensor weight_layout(const gradient_case *c, const gradient_data *data, int what) {
    const int64_t shapes[VALUES][2] = {[POSITION] = {c->H, 0},
                                       [W] = {data->T, data->T},
                                       [LEFT] = {data->T, c->rank},
                                       [RIGHT] = {data->T, c->rank},
                                       [TAPS] = {c->H, c->taps}};
    return clattn_tensor_make(NULL, CLATTN_F32, what == POSITION ? 1 : 2, shapes[what]);
}

typedef struct device_side {
    guarded value[VALUES], grad[VALUES], y, dy, lengths, saved, scratch;
    clattn_tensor t[CLATTN_AFT_SLOTS];
} device_side;

static void place_all(const fixture *f, const gradient_case *c, const gradient_data *data, device_side *s) {
    for (int i = 0; i < VALUES; i++) {
        if (!uses(c, i))
            continue;
        const int size = i == K ? data->key_size : c->D;
        const clattn_tensor like = i <= V ? layout(c, size) : weight_layout(c, data, i);
        s->value[i] = i <= V ? upload(f, c, data, data->value[i], size)
                             : guarded_upload(f, CLATTN_F32, data->value[i], data->count[i]);
        s->grad[i] = i <= V ? upload(f, c, data, NULL, size) : guarded_make(f, CLATTN_F32, data->count[i]);
        s->t[slots[i]] = place(like, &s->value[i]);
        s->t[gradient_slots[i]] = place(like, &s->grad[i]);
    }
    s->y = upload(f, c, data, NULL, c->D);
    s->dy = upload(f, c, data, data->dy, c->D);
    s->t[CLATTN_AFT_Y] = place(layout(c, c->D), &s->y);
    s->t[CLATTN_AFT_GRAD_Y] = place(layout(c, c->D), &s->dy);
    s->lengths = guarded_ints(f, data->lengths, B);
    if (c->lengths)
        s->t[CLATTN_AFT_LENGTHS] = guarded_tensor(&s->lengths, 1, B, 0, 0, 0);
}

static void enqueue(const fixture *f, device_side *s, const clattn_plan *plan, bool backward) {
    cl_event done = NULL;
    guarded_refill(f, &s->scratch);
    const clattn_workspace workspace = {.memory = s->scratch.memory, .offset = s->scratch.before};
    assert_ok((backward ? clattn_enqueue_backward : clattn_enqueue)(plan, f->queue, s->t, CLATTN_AFT_SLOTS, &workspace,
                                                                    0, NULL, &done));
    ck_assert_int_eq(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    guarded_check(f, &s->scratch, "workspace");
}

static void run(const fixture *f, const gradient_case *c, device_side *s) {
    clattn_plan *plan = NULL;
    clattn_aft_problem p = {.mode = (int)c->mode, .causal = c->causal, .local = c->local, .train = true};
    memcpy(p.tensor, s->t, sizeof s->t);
    assert_ok(clattn_aft_plan(f->context, &p, &plan));
    s->scratch = guarded_bytes(f, clattn_plan_workspace_size(plan));
    const size_t saved = clattn_plan_saved_count(plan);
    ck_assert_int_eq(saved > 0, !is_gated(c));
    if (saved > 0) {
        s->saved = guarded_make(f, CLATTN_F32, saved);
        s->t[CLATTN_AFT_SAVED] = guarded_tensor(&s->saved, 1, (int64_t)saved, 0, 0, 0);
    }
    enqueue(f, s, plan, false);
    enqueue(f, s, plan, true);
    if (saved > 0)
        guarded_check(f, &s->saved, "saved");
    clattn_plan_destroy(plan);
}

static void compare(const fixture *f, const gradient_case *c, const gradient_data *data, const device_side *s) {
    const double tolerance = c->type == CLATTN_F32 ? 1e-5 : 2 * storage_tolerance(c->type);
    char name[80];
    for (int i = 0; i < VALUES; i++) {
        if (!uses(c, i))
            continue;
        snprintf(name, sizeof name, "case %d, gradient of %s", (int)(c - cases), names[i]);
        double *got = guarded_read(f, &s->grad[i], name);
        if (i <= V)
            got = without_gaps(c, got, i == K ? data->key_size : c->D);
        assert_close(name, got, data->grad[i], data->count[i], tolerance);
        free(got);
    }
}

static void side_free(device_side *s) {
    for (int i = 0; i < VALUES; i++) {
        guarded_free(&s->value[i]);
        guarded_free(&s->grad[i]);
    }
    guarded *const others[] = {&s->y, &s->dy, &s->lengths, &s->saved, &s->scratch};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        guarded_free(others[i]);
}

static void check_case(const fixture *f, const gradient_case *c) {
    gradient_data data = data_make(c);
    device_side s = {0};
    expect(c, &data);
    place_all(f, c, &data, &s);
    run(f, c, &s);
    compare(f, c, &data, &s);
    side_free(&s);
    data_free(&data);
}

START_TEST(gradients) { check_case(device(), &cases[_i]); }
END_TEST

START_TEST(gradients_gpu_shaped) { check_case(&gpu_shaped, &cases[2 * _i + 1]); }
END_TEST

START_TEST(bad_gradients_are_refused) {
    const clattn_tensor x = clattn_tensor_make(NULL, CLATTN_F32, 4, (const int64_t[]){1, 20, 2, 8});
    clattn_aft_problem good = {.train = true};
    const int given[] = {CLATTN_AFT_Q,      CLATTN_AFT_K,      CLATTN_AFT_V,      CLATTN_AFT_Y,
                         CLATTN_AFT_GRAD_Q, CLATTN_AFT_GRAD_K, CLATTN_AFT_GRAD_V, CLATTN_AFT_GRAD_Y};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        good.tensor[given[i]] = x;
    clattn_plan *plan = NULL;
    clattn_aft_problem p = good;
    p.tensor[CLATTN_AFT_GRAD_V].shape[1] = 19;
    assert_refused(clattn_aft_plan(device()->context, &p, &plan), CLATTN_INVALID_SHAPE, "grad_v has shape");
    p = good;
    p.tensor[CLATTN_AFT_GRAD_Q].type = CLATTN_F16;
    assert_refused(clattn_aft_plan(device()->context, &p, &plan), CLATTN_INVALID_TYPE, "grad_q has type f16");
    p = good;
    p.tensor[CLATTN_AFT_GRAD_POSITION] = clattn_tensor_make(NULL, CLATTN_F32, 1, (const int64_t[]){2});
    assert_refused(clattn_aft_plan(device()->context, &p, &plan), CLATTN_INVALID_ARGUMENT,
                   "grad_position is given, but position is not");
    p.mode = CLATTN_AFT_SIMPLE;
    assert_refused(clattn_aft_plan(device()->context, &p, &plan), CLATTN_INVALID_ARGUMENT,
                   "the mode does not read position");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("aft_gradients");
    TCase *core = tcase_create("core");
    tcase_add_unchecked_fixture(core, make_gpu_shaped, free_gpu_shaped);
    tcase_add_loop_test(core, gradients, 0, CASES);
    tcase_add_loop_test(core, gradients_gpu_shaped, 0, CASES / 2);
    tcase_add_test(core, bad_gradients_are_refused);
    suite_add_tcase(suite, core);
    return run_device_suite(suite);
}
