/* Running the assa cores on the device. */
#include "harness/assa_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/guarded.h"
#include "harness/run.h"
#include "harness/storage.h"
#include "reference/reference.h"

static double *drawn(rng *r, const assa_case *c, fill kind, double spread, size_t count) {
    double *values = ref_array(count);
    rng_fill(r, kind, values, count);
    for (size_t e = 0; e < count; e++)
        values[e] = (float)(spread * values[e]);
    storage_round(c->type, values, count);
    return values;
}

void assa_data_make(const assa_case *given, assa_data *d) {
    rng r = rng_make(given->seed + 71);
    *d = (assa_data){.c = *given};
    assa_case *c = &d->c;
    c->HKV = c->HKV ? c->HKV : c->H;
    c->N = c->N ? c->N : c->M;
    c->DV = c->DV ? c->DV : c->D;
    c->spread = c->spread != 0 ? c->spread : 1;
    int line = 2 * c->window - 1;
    d->q = drawn(&r, c, c->fill, c->spread, assa_queries(c) * c->D);
    d->k = drawn(&r, c, c->fill, c->spread, assa_keys(c) * c->D);
    d->v = drawn(&r, c, FILL_NORMAL, 1, assa_keys(c) * c->DV);
    d->mix = rng_array(&r, 1, 2);
    d->table = rng_array(&r, 0.5, (size_t)line * line * c->H);
}

void assa_data_free(assa_data *d) {
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

typedef struct buffers {
    guarded at[CLATTN_ASSA_SLOTS];
    clattn_tensor tensors[CLATTN_ASSA_SLOTS];
} buffers;

static void add_lengths(const fixture *f, buffers *b, int slot, const int *lengths, int B) {
    if (!lengths)
        return;
    b->at[slot] = guarded_ints(f, lengths, (size_t)B);
    b->tensors[slot] = guarded_tensor(&b->at[slot], 1, B, 0, 0, 0);
}

static void add_mode(const fixture *f, const assa_data *d, buffers *b) {
    const assa_case *c = &d->c;
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
    b->at[CLATTN_ASSA_LSE] = guarded_make(f, CLATTN_F32, assa_queries(c));
    b->tensors[CLATTN_ASSA_LSE] = guarded_tensor(&b->at[CLATTN_ASSA_LSE], 3, c->B, c->H, c->M, 0);
    add_lengths(f, b, CLATTN_ASSA_KEY_LENGTHS, c->key_lengths, c->B);
    add_lengths(f, b, CLATTN_ASSA_QUERY_LENGTHS, c->query_lengths, c->B);
    if (c->listed) {
        b->at[CLATTN_ASSA_INDICES] = guarded_make(f, CLATTN_I32, assa_queries(c) * c->k);
        b->at[CLATTN_ASSA_SCORES] = guarded_make(f, CLATTN_F32, assa_queries(c) * c->k);
        for (int s = CLATTN_ASSA_INDICES; s <= CLATTN_ASSA_SCORES; s++)
            b->tensors[s] = guarded_tensor(&b->at[s], 4, c->B, c->H, c->M, c->k);
    }
}

static void upload(const fixture *f, const assa_data *d, buffers *b) {
    const assa_case *c = &d->c;
    *b = (buffers){0};
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

static clattn_assa_problem problem_of(const assa_case *c, const clattn_tensor *t) {
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

void assa_run(const fixture *f, assa_data *d) {
    const assa_case *c = &d->c;
    buffers b;
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
