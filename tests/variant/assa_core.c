/* The cores of the assa family on strided tensors against their references, indices exactly; special values;
 * invariants. */
#include <clattn/assa.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/gpu_shaped.h"
#include "harness/guarded.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

/* ---- a core's run ---- */

/* Zeros are the defaults: KV heads as many as heads, N = M, DV = D, f32, no window.
 * spread  deviation of q and k; 0 = 1
 * listed  indices and scores are asked for */
typedef struct core_case {
    int B, H, HKV, M, N, D, DV, k;
    bool all, adaptive, listed;
    clattn_causal causal;
    const int *query_lengths, *key_lengths;
    fill fill;
    double spread;
    clattn_type type;
    int window, rows, columns, shift;
    uint64_t seed;
} core_case;

typedef struct core_data {
    core_case c; /* defaults filled in */
    double *q, *k, *v, *mix, *table;
    double *o, *scores, *lse; /* answers */
    double *indices;
} core_data;

static size_t q_count(const core_case *c) { return (size_t)c->B * c->H * c->M; }
static size_t k_count(const core_case *c) { return (size_t)c->B * c->HKV * c->N; }

static double *drawn(rng *r, const core_case *c, fill kind, double spread, size_t count) {
    double *values = ref_array(count);
    rng_fill(r, kind, values, count);
    for (size_t e = 0; e < count; e++)
        values[e] = (float)(spread * values[e]);
    storage_round(c->type, values, count);
    return values;
}

static void data_make(const core_case *given, core_data *d) {
    rng r = rng_make(given->seed + 71);
    *d = (core_data){.c = *given};
    core_case *c = &d->c;
    c->HKV = c->HKV ? c->HKV : c->H;
    c->N = c->N ? c->N : c->M;
    c->DV = c->DV ? c->DV : c->D;
    c->spread = c->spread != 0 ? c->spread : 1;
    int line = 2 * c->window - 1;
    d->q = drawn(&r, c, c->fill, c->spread, q_count(c) * c->D);
    d->k = drawn(&r, c, c->fill, c->spread, k_count(c) * c->D);
    d->v = drawn(&r, c, FILL_NORMAL, 1, k_count(c) * c->DV);
    d->mix = rng_array(&r, 1, 2);
    d->table = rng_array(&r, 0.5, (size_t)line * line * c->H);
}

static void data_free(core_data *d) {
    double *const all[] = {d->q, d->k, d->v, d->mix, d->table, d->o, d->scores, d->lse, d->indices};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* [B, H, n, D] lies in memory as [B, n, row] with row = H D + gap, and comes back; gaps are NaN and stay so. */
enum { GAP = 3 };

static double *spread_out(const double *values, int B, int H, int n, int D) {
    int row = H * D + GAP;
    double *memory = ref_array((size_t)B * n * row);
    for (size_t e = 0; e < (size_t)B * n * row; e++)
        memory[e] = NAN;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < n; i++)
                for (int e = 0; e < D; e++)
                    memory[((size_t)b * n + i) * row + h * D + e] = ref_row(values, H, n, D, b, h, i)[e];
    return memory;
}

static double *gather_back(const double *memory, int B, int H, int n, int D) {
    int row = H * D + GAP;
    double *values = ref_array((size_t)B * H * n * D);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < n; i++)
            for (int e = 0; e < row; e++) {
                double x = memory[((size_t)b * n + i) * row + e];
                if (e < H * D)
                    values[(((size_t)b * H + e / D) * n + i) * D + e % D] = x;
                else
                    ck_assert_msg(isnan(x), "the gap behind row %d was written", i);
            }
    return values;
}

static clattn_tensor spread_tensor(const guarded *g, int B, int H, int n, int D) {
    clattn_tensor t = guarded_tensor(g, 4, B, H, n, D);
    t.stride[0] = (int64_t)n * (H * D + GAP);
    t.stride[1] = D;
    t.stride[2] = H * D + GAP;
    return t;
}

static guarded upload_spread(const fixture *f, clattn_type type, const double *values, int B, int H, int n, int D) {
    double *memory = spread_out(values, B, H, n, D);
    guarded g = guarded_upload(f, type, memory, (size_t)B * n * (H * D + GAP));
    free(memory);
    return g;
}

typedef struct core_buffers {
    guarded at[CLATTN_ASSA_SLOTS];
    clattn_tensor tensors[CLATTN_ASSA_SLOTS];
} core_buffers;

static void add_lengths(const fixture *f, core_buffers *b, int slot, const int *lengths, int B) {
    if (!lengths)
        return;
    b->at[slot] = guarded_ints(f, lengths, (size_t)B);
    b->tensors[slot] = guarded_tensor(&b->at[slot], 1, B, 0, 0, 0);
}

static void add_mode(const fixture *f, const core_data *d, core_buffers *b) {
    const core_case *c = &d->c;
    if (c->adaptive) {
        int entries = (2 * c->window - 1) * (2 * c->window - 1);
        b->at[CLATTN_ASSA_MIX] = guarded_upload(f, CLATTN_F32, d->mix, 2);
        b->tensors[CLATTN_ASSA_MIX] = guarded_tensor(&b->at[CLATTN_ASSA_MIX], 1, 2, 0, 0, 0);
        if (c->window) {
            b->at[CLATTN_ASSA_TABLE] = guarded_upload(f, CLATTN_F32, d->table, (size_t)entries * c->H);
            b->tensors[CLATTN_ASSA_TABLE] = guarded_tensor(&b->at[CLATTN_ASSA_TABLE], 2, entries, c->H, 0, 0);
        }
        return;
    }
    b->at[CLATTN_ASSA_LSE] = guarded_make(f, CLATTN_F32, q_count(c));
    b->tensors[CLATTN_ASSA_LSE] = guarded_tensor(&b->at[CLATTN_ASSA_LSE], 3, c->B, c->H, c->M, 0);
    add_lengths(f, b, CLATTN_ASSA_KEY_LENGTHS, c->key_lengths, c->B);
    add_lengths(f, b, CLATTN_ASSA_QUERY_LENGTHS, c->query_lengths, c->B);
    if (c->listed) {
        b->at[CLATTN_ASSA_INDICES] = guarded_make(f, CLATTN_I32, q_count(c) * c->k);
        b->at[CLATTN_ASSA_SCORES] = guarded_make(f, CLATTN_F32, q_count(c) * c->k);
        for (int s = CLATTN_ASSA_INDICES; s <= CLATTN_ASSA_SCORES; s++)
            b->tensors[s] = guarded_tensor(&b->at[s], 4, c->B, c->H, c->M, c->k);
    }
}

static void upload(const fixture *f, const core_data *d, core_buffers *b) {
    const core_case *c = &d->c;
    *b = (core_buffers){0};
    b->at[CLATTN_ASSA_Q] = upload_spread(f, c->type, d->q, c->B, c->H, c->M, c->D);
    b->at[CLATTN_ASSA_K] = upload_spread(f, c->type, d->k, c->B, c->HKV, c->N, c->D);
    b->at[CLATTN_ASSA_V] = upload_spread(f, c->type, d->v, c->B, c->HKV, c->N, c->DV);
    b->at[CLATTN_ASSA_O] = guarded_make(f, c->type, (size_t)c->B * c->M * (c->H * c->DV + GAP));
    b->tensors[CLATTN_ASSA_Q] = spread_tensor(&b->at[CLATTN_ASSA_Q], c->B, c->H, c->M, c->D);
    b->tensors[CLATTN_ASSA_K] = spread_tensor(&b->at[CLATTN_ASSA_K], c->B, c->HKV, c->N, c->D);
    b->tensors[CLATTN_ASSA_V] = spread_tensor(&b->at[CLATTN_ASSA_V], c->B, c->HKV, c->N, c->DV);
    b->tensors[CLATTN_ASSA_O] = spread_tensor(&b->at[CLATTN_ASSA_O], c->B, c->H, c->M, c->DV);
    add_mode(f, d, b);
}

static clattn_assa_problem problem_of(const core_case *c, const clattn_tensor *t) {
    return (clattn_assa_problem){.q = t[CLATTN_ASSA_Q],
                                 .k = t[CLATTN_ASSA_K],
                                 .v = t[CLATTN_ASSA_V],
                                 .o = t[CLATTN_ASSA_O],
                                 .mode = c->adaptive ? CLATTN_ASSA_ADAPTIVE : CLATTN_ASSA_TOPK,
                                 .top = c->k,
                                 .normalise = c->all ? CLATTN_ASSA_ALL : CLATTN_ASSA_SELECTED,
                                 .causal = c->causal,
                                 .key_lengths = t[CLATTN_ASSA_KEY_LENGTHS],
                                 .query_lengths = t[CLATTN_ASSA_QUERY_LENGTHS],
                                 .indices = t[CLATTN_ASSA_INDICES],
                                 .scores = t[CLATTN_ASSA_SCORES],
                                 .lse = t[CLATTN_ASSA_LSE],
                                 .mix = t[CLATTN_ASSA_MIX],
                                 .table = t[CLATTN_ASSA_TABLE],
                                 .window = c->window,
                                 .grid = {c->rows, c->columns},
                                 .shift = c->shift};
}

/* Answers into d. */
static void core_run(const fixture *f, core_data *d) {
    const core_case *c = &d->c;
    core_buffers b;
    clattn_plan *plan = NULL;
    upload(f, d, &b);
    const clattn_assa_problem problem = problem_of(c, b.tensors);
    assert_ok(clattn_assa_plan(f->context, &problem, &plan));
    run_plan(f, plan, b.tensors, CLATTN_ASSA_SLOTS);
    clattn_plan_destroy(plan);
    double *memory = guarded_read(f, &b.at[CLATTN_ASSA_O], "o");
    d->o = gather_back(memory, c->B, c->H, c->M, c->DV);
    free(memory);
    if (!c->adaptive)
        d->lse = guarded_read(f, &b.at[CLATTN_ASSA_LSE], "lse");
    if (c->listed) {
        d->indices = guarded_read(f, &b.at[CLATTN_ASSA_INDICES], "indices");
        d->scores = guarded_read(f, &b.at[CLATTN_ASSA_SCORES], "scores");
    }
    for (int s = 0; s < CLATTN_ASSA_SLOTS; s++) {
        if (b.at[s].memory)
            guarded_check(f, &b.at[s], "tensor");
        guarded_free(&b.at[s]);
    }
}

/* ---- top-k against the reference ---- */

static ref_attention attention_of(const core_data *d) {
    const core_case *c = &d->c;
    return (ref_attention){.B = c->B,
                           .H = c->H,
                           .HKV = c->HKV,
                           .M = c->M,
                           .N = c->N,
                           .D = c->D,
                           .DV = c->DV,
                           .scale = 1 / sqrt(c->D),
                           .mask = {.causal = c->causal != CLATTN_CAUSAL_NONE,
                                    .bottom_right = c->causal == CLATTN_CAUSAL_BOTTOM_RIGHT,
                                    .window_left = -1,
                                    .window_right = -1,
                                    .query_lengths = c->query_lengths,
                                    .key_lengths = c->key_lengths},
                           .q = d->q,
                           .k = d->k,
                           .v = d->v};
}

/* The reference lists the largest first, the library by ascending key. */
static void sort_by_key(int *keys, double *scores, int k) {
    for (int i = 1; i < k; i++)
        for (int j = i; j > 0 && keys[j] >= 0 && keys[j - 1] > keys[j]; j--) {
            const int key = keys[j];
            const double score = scores[j];
            keys[j] = keys[j - 1];
            scores[j] = scores[j - 1];
            keys[j - 1] = key;
            scores[j - 1] = score;
        }
}

static void check_lists(const core_data *d, int *keys, double *scores) {
    const core_case *c = &d->c;
    for (size_t row = 0; row < q_count(c); row++) {
        sort_by_key(keys + row * c->k, scores + row * c->k, c->k);
        for (int t = 0; t < c->k; t++)
            ck_assert_msg(keys[row * c->k + t] == (int)d->indices[row * c->k + t],
                          "row %zu, place %d: key %d, wanted %d", row, t, (int)d->indices[row * c->k + t],
                          keys[row * c->k + t]);
    }
    assert_close("scores", d->scores, scores, q_count(c) * c->k, 1e-5);
}

/* Log of the sum of exponentials that the weights were divided by. */
static double *expect_lse(const core_data *d, const double *kept, ref_attention *a) {
    const core_case *c = &d->c;
    double *lse = ref_array(q_count(c)), *p = ref_array((size_t)c->k + 1), *o = ref_array(q_count(c) * c->DV);
    bool *sees = ref_flags((size_t)c->k);
    for (int t = 0; t < c->k; t++)
        sees[t] = true;
    if (c->all)
        ref_dense_core(a, o, lse);
    for (size_t row = 0; row < q_count(c) && !c->all; row++)
        lse[row] = ref_softmax(kept + row * c->k, sees, c->k, p);
    free(sees);
    free(o);
    free(p);
    return lse;
}

static void check_topk(const fixture *f, const core_case *given) {
    core_data d;
    data_make(given, &d);
    const core_case *c = &d.c;
    ref_attention a = attention_of(&d);
    double *o = ref_array(q_count(c) * c->DV), *kept = ref_array(q_count(c) * c->k);
    int *keys = calloc(q_count(c) * c->k + 1, sizeof(int));
    ck_assert_ptr_nonnull(keys);
    core_run(f, &d);
    ref_assa_topk_core(&a, c->k, c->all ? REF_ALL : REF_SELECTED, o, keys, kept);
    double *lse = expect_lse(&d, kept, &a);
    if (c->listed)
        check_lists(&d, keys, kept);
    assert_close("o", d.o, o, q_count(c) * c->DV, c->spread > 10 ? 1e-4 : storage_tolerance(c->type));
    assert_close("lse", d.lse, lse, q_count(c), 1e-5);
    free(lse);
    free(keys);
    free(kept);
    free(o);
    data_free(&d);
}

static const int short_keys[] = {300, 0, 1, 257}, short_queries[] = {0, 33, 40, 12};

#define SIZES(B_, H_, M_, N_, D_, k_) .B = B_, .H = H_, .M = M_, .N = N_, .D = D_, .k = k_

/* Blocks of a CPU are 8 or 12 queries by 128, 256 or 512 keys, of a GPU 32 by 32. */
static const core_case topk_cases[] = {
    {SIZES(1, 1, 1, 1, 8, 1), .listed = true},
    {SIZES(1, 2, 13, 33, 8, 1), .listed = true},
    {SIZES(1, 2, 33, 31, 8, 1), .all = true, .listed = true},
    {SIZES(1, 1, 12, 256, 8, 32), .listed = true},
    {SIZES(1, 1, 11, 257, 8, 31), .all = true, .listed = true},
    {SIZES(1, 1, 8, 513, 64, 33), .listed = true},
    {SIZES(1, 2, 25, 1031, 8, 7), .all = true, .listed = true},
    {SIZES(1, 1, 31, 255, 8, 254), .listed = true},
    {SIZES(1, 1, 9, 700, 8, 257), .all = true, .listed = true},
    {SIZES(2, 1, 40, 300, 8, 300), .listed = true},              /* k = N, listed */
    {SIZES(2, 1, 40, 300, 8, 400), .all = true, .listed = true}, /* lists longer than there are keys */
    {SIZES(2, 2, 40, 300, 8, 300)},                              /* k = N without lists: dense */
    {SIZES(2, 2, 40, 300, 8, 5000), .all = true},
    {SIZES(1, 1, 14, 1500, 8, 1000), .listed = true},              /* lists past a GPU's local memory */
    {SIZES(1, 2, 26, 3000, 8, 1200), .all = true, .listed = true}, /* and past a CPU's private arrays */
    {SIZES(2, 4, 40, 90, 16, 6), .HKV = 2, .DV = 40, .listed = true},
    {SIZES(1, 1, 13, 90, 256, 6), .DV = 1, .listed = true},
    {SIZES(1, 1, 13, 90, 1, 6), .DV = 256, .all = true, .listed = true},
    {SIZES(1, 2, 300, 300, 8, 16), .causal = CLATTN_CAUSAL_TOP_LEFT, .listed = true},
    {SIZES(1, 2, 270, 40, 8, 5), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT, .all = true, .listed = true}, /* rows see none */
    {SIZES(1, 1, 40, 270, 8, 300), .causal = CLATTN_CAUSAL_BOTTOM_RIGHT},
    {SIZES(4, 1, 40, 300, 8, 16), .key_lengths = short_keys, .query_lengths = short_queries, .listed = true},
    {SIZES(4, 1, 40, 300, 8, 16), .key_lengths = short_keys, .all = true, .causal = CLATTN_CAUSAL_BOTTOM_RIGHT,
     .query_lengths = short_queries, .listed = true},
    {SIZES(4, 2, 40, 300, 8, 500), .key_lengths = short_keys, .causal = CLATTN_CAUSAL_TOP_LEFT},
    {SIZES(1, 1, 30, 1100, 8, 32), .fill = FILL_TIES, .listed = true}, /* hundreds of equal scores */
    {SIZES(1, 1, 30, 1100, 8, 300), .fill = FILL_TIES, .all = true, .listed = true},
    {SIZES(1, 1, 30, 1100, 1, 6), .fill = FILL_TIES, .all = true, .causal = CLATTN_CAUSAL_TOP_LEFT, .listed = true},
    {SIZES(1, 2, 30, 1100, 8, 32), .fill = FILL_CONSTANT, .listed = true},
    {SIZES(1, 1, 14, 1300, 8, 1024), .fill = FILL_TIES, .listed = true},
    {SIZES(1, 1, 30, 300, 8, 300), .fill = FILL_DENORMAL},       /* products underflow: no order among them */
    {SIZES(1, 2, 30, 600, 8, 32), .spread = 30, .listed = true}, /* logits of thousands */
    {SIZES(1, 2, 30, 300, 16, 300), .type = CLATTN_F16, .all = true},
    {SIZES(1, 2, 30, 600, 16, 20), .type = CLATTN_BF16, .listed = true},
    {SIZES(1, 2, 30, 600, 16, 20), .type = CLATTN_F16, .fill = FILL_TIES, .listed = true},
};

enum { TOPK_CASES = sizeof(topk_cases) / sizeof(*topk_cases) };

START_TEST(topk) { check_topk(device(), &topk_cases[_i]); }
END_TEST

/* Every second one: its programs take long to compile. */
START_TEST(topk_gpu_shaped) { check_topk(&gpu_shaped, &topk_cases[2 * _i + 1]); }
END_TEST

START_TEST(topk_off_alignment) {
    device()->shift = 1; /* until aligned_again */
    check_topk(device(), &topk_cases[_i]);
}
END_TEST

static void aligned_again(void) { device()->shift = 0; }

/* ---- special values ---- */

/* Put x into channel 0 of key j, of batch and head 0. */
static void set_key(core_data *d, int j, double x) { d->k[(size_t)j * d->c.D] = x; }

static bool row_is_nan(const core_data *d, int i) {
    bool nan = true;
    for (int e = 0; e < d->c.DV; e++)
        nan = nan && isnan(d->o[(size_t)i * d->c.DV + e]);
    return nan;
}

static bool row_is_finite(const core_data *d, int i) {
    bool finite = true;
    for (int e = 0; e < d->c.DV; e++)
        finite = finite && isfinite(d->o[(size_t)i * d->c.DV + e]);
    return finite;
}

/* A NaN among the keys of a causal problem: the rows before it are those of the shorter one, the others NaN; every
 * index stays inside and ascends. */
START_TEST(nan_scores_stay_in_their_rows) {
    const core_case c = {SIZES(1, 1, 300, 300, 8, 21), .causal = CLATTN_CAUSAL_TOP_LEFT, .all = _i % 2, .listed = true};
    static const double poison[] = {NAN, INFINITY};
    core_data d, clean;
    data_make(&c, &d);
    data_make(&c, &clean);
    for (int i = 0; i < c.M; i++)
        d.q[(size_t)i * c.D] = fabs(d.q[(size_t)i * c.D]) + 1;
    memcpy(clean.q, d.q, (size_t)c.M * c.D * sizeof(double));
    set_key(&d, 150, poison[_i / 2]);
    set_key(&d, 151, poison[_i / 2]);
    core_run(device(), &d);
    core_run(device(), &clean);
    for (int i = 0; i < c.M; i++) {
        ck_assert_msg(i < 150 ? row_is_finite(&d, i) : row_is_nan(&d, i), "row %d", i);
        for (int t = 0; t < c.k; t++) {
            int key = (int)d.indices[i * c.k + t], before = t ? (int)d.indices[i * c.k + t - 1] : -1;
            ck_assert_msg(key <= i && (key > before || (key == -1 && t > i)), "row %d: key %d", i, key);
        }
    }
    assert_close("rows before", d.o, clean.o, (size_t)150 * c.D, 0);
    data_free(&clean);
    data_free(&d);
}
END_TEST

/* −inf hides a key; a row of nothing else gives 0. */
START_TEST(minus_infinity_is_never_kept) {
    const core_case c = {SIZES(1, 1, 20, 90, 8, 12), .all = _i % 2, .listed = true};
    core_data d;
    data_make(&c, &d);
    for (int i = 0; i < c.M; i++)
        d.q[(size_t)i * c.D] = 1;
    for (int j = 0; j < c.N; j++)
        if (j != 40 || _i / 2)
            set_key(&d, j, -INFINITY);
    core_run(device(), &d);
    for (int i = 0; i < c.M; i++) {
        ck_assert_int_eq((int)d.indices[i * c.k], _i / 2 ? -1 : 40);
        ck_assert_int_eq((int)d.indices[i * c.k + 1], -1);
        for (int e = 0; e < c.D; e++)
            ck_assert_double_eq_tol(d.o[i * c.D + e], _i / 2 ? 0 : d.v[40 * c.D + e], 1e-6);
    }
    data_free(&d);
}
END_TEST

/* What lies past the lengths, NaN or Inf, changes no bit. */
START_TEST(padding_does_not_leak) {
    const core_case c = {SIZES(4, 2, 40, 300, 8, 16), .key_lengths = short_keys, .query_lengths = short_queries,
                         .all = _i % 2, .listed = true};
    core_data clean, d;
    data_make(&c, &clean);
    data_make(&c, &d);
    for (int b = 0; b < c.B; b++)
        for (int h = 0; h < c.H; h++) {
            for (int j = c.key_lengths[b]; j < c.N; j++)
                for (int e = 0; e < c.D; e++) {
                    d.k[(((size_t)b * c.H + h) * c.N + j) * c.D + e] = e % 2 ? NAN : INFINITY;
                    d.v[(((size_t)b * c.H + h) * c.N + j) * c.D + e] = NAN;
                }
            for (int i = c.query_lengths[b]; i < c.M; i++)
                d.q[(((size_t)b * c.H + h) * c.M + i) * c.D] = NAN;
        }
    const fixture *f = _i / 2 ? &gpu_shaped : device();
    core_run(f, &clean);
    core_run(f, &d);
    ck_assert_int_eq(memcmp(d.o, clean.o, (size_t)4 * 2 * 40 * 8 * sizeof(double)), 0);
    ck_assert_int_eq(memcmp(d.indices, clean.indices, (size_t)4 * 2 * 40 * 16 * sizeof(double)), 0);
    data_free(&clean);
    data_free(&d);
}
END_TEST

/* ---- invariants ---- */

START_TEST(permuting_keys_with_values_changes_nothing) {
    const core_case c = {SIZES(1, 1, 30, 500, 8, 21), .all = _i, .listed = true};
    core_data d, turned;
    data_make(&c, &d);
    data_make(&c, &turned);
    for (int j = 0; j < c.N; j++) {
        int to = (j * 177 + 31) % c.N; /* 177 and 500 share no factor */
        memcpy(turned.k + (size_t)to * c.D, d.k + (size_t)j * c.D, c.D * sizeof(double));
        memcpy(turned.v + (size_t)to * c.D, d.v + (size_t)j * c.D, c.D * sizeof(double));
    }
    core_run(device(), &d);
    core_run(device(), &turned);
    assert_close("o", turned.o, d.o, (size_t)c.M * c.D, 2e-6);
    data_free(&turned);
    data_free(&d);
}
END_TEST

START_TEST(same_inputs_same_bits) {
    const core_case c = {SIZES(1, 2, 40, 700, 8, 21), .all = _i, .listed = true};
    core_data a, b;
    data_make(&c, &a);
    data_make(&c, &b);
    core_run(device(), &a);
    core_run(device(), &b);
    ck_assert_int_eq(memcmp(a.o, b.o, (size_t)2 * 40 * 8 * sizeof(double)), 0);
    data_free(&a);
    data_free(&b);
}
END_TEST

/* ---- adaptive against the reference ---- */

static void check_adaptive(const fixture *f, const core_case *given) {
    core_data d;
    data_make(given, &d);
    const core_case *c = &d.c;
    double *o = ref_array(q_count(c) * c->DV);
    ref_attention a = attention_of(&d);
    core_run(f, &d);
    ref_assa_adaptive_core(&a, d.mix, o);
    assert_close("o", d.o, o, q_count(c) * c->DV, storage_tolerance(c->type));
    free(o);
    data_free(&d);
}

#define ADAPTIVE(B_, H_, n_, D_) SIZES(B_, H_, n_, 0, D_, 0), .adaptive = true

static const core_case adaptive_cases[] = {
    {ADAPTIVE(1, 1, 1, 1)},
    {ADAPTIVE(2, 3, 13, 8)},
    {ADAPTIVE(1, 1, 255, 20)},
    {ADAPTIVE(1, 1, 257, 64), .spread = 2},
    {ADAPTIVE(1, 1, 520, 5), .DV = 33, .spread = 3},
    {ADAPTIVE(2, 4, 33, 16), .HKV = 2, .DV = 40},
    {ADAPTIVE(1, 1, 40, 256)},
    {ADAPTIVE(1, 2, 70, 8), .fill = FILL_CONSTANT},
    {ADAPTIVE(1, 2, 70, 16), .type = CLATTN_BF16},
};

enum { ADAPTIVE_CASES = sizeof(adaptive_cases) / sizeof(*adaptive_cases) };

START_TEST(adaptive) { check_adaptive(device(), &adaptive_cases[_i]); }
END_TEST

START_TEST(adaptive_gpu_shaped) { check_adaptive(&gpu_shaped, &adaptive_cases[_i]); }
END_TEST

/* Windows of one token, without neighbours: softmax is 1, and o = (w'0 + w'1 relu(s)^2) v. */
START_TEST(windows_of_one_token) {
    const core_case c = {ADAPTIVE(2, 3, 15, 4), .window = 1, .rows = 3, .columns = 5};
    core_data d;
    data_make(&c, &d);
    core_run(_i ? &gpu_shaped : device(), &d);
    double mix[2], *o = ref_array(q_count(&d.c) * c.D);
    ref_softmax(d.mix, (bool[]){true, true}, 2, mix);
    for (size_t row = 0; row < q_count(&d.c); row++) {
        double s = ref_dot(d.q + row * c.D, d.k + row * c.D, c.D) / 2 + d.table[row / c.M % c.H];
        for (int e = 0; e < c.D; e++)
            o[row * c.D + e] = (mix[0] + (s > 0 ? mix[1] * s * s : 0)) * d.v[row * c.D + e];
    }
    assert_close("o", d.o, o, q_count(&d.c) * c.D, 2e-6);
    free(o);
    data_free(&d);
}
END_TEST

START_TEST(no_keys_give_zeros) {
    static const int none[] = {0, 0};
    const core_case c = {SIZES(2, 1, 20, 30, 8, _i ? 40 : 5), .key_lengths = none, .listed = _i == 0};
    check_topk(device(), &c);
    check_topk(&gpu_shaped, &c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("assa core");
    TCase *t = tcase_create("assa core");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, make_gpu_shaped, free_gpu_shaped);
    tcase_add_checked_fixture(t, NULL, aligned_again);
    tcase_add_loop_test(t, topk, 0, TOPK_CASES);
    tcase_add_loop_test(t, topk_gpu_shaped, 0, TOPK_CASES / 2);
    tcase_add_loop_test(t, topk_off_alignment, 0, TOPK_CASES);
    tcase_add_loop_test(t, nan_scores_stay_in_their_rows, 0, 4);
    tcase_add_loop_test(t, minus_infinity_is_never_kept, 0, 4);
    tcase_add_loop_test(t, padding_does_not_leak, 0, 4);
    tcase_add_loop_test(t, permuting_keys_with_values_changes_nothing, 0, 2);
    tcase_add_loop_test(t, same_inputs_same_bits, 0, 2);
    tcase_add_loop_test(t, adaptive, 0, ADAPTIVE_CASES);
    tcase_add_loop_test(t, adaptive_gpu_shaped, 0, ADAPTIVE_CASES);
    tcase_add_loop_test(t, windows_of_one_token, 0, 2);
    tcase_add_loop_test(t, no_keys_give_zeros, 0, 2);
    suite_add_tcase(suite, t);
    return run_device_suite(suite);
}
