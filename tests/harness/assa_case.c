/* Running the assa cores on the device. */
#include "harness/assa_case.h"

#include <math.h>
#include <stdlib.h>

#include "core/layout.h"
#include "harness/run.h"
#include "harness/storage.h"

static double *drawn(rng *r, const assa_case *c, fill kind, double deviation, size_t count) {
    double *values = ref_array(count);
    rng_fill(r, kind, values, count);
    for (size_t e = 0; e < count; e++)
        values[e] = (float)(deviation * values[e]);
    storage_round(c->type, values, count);
    return values;
}

/* NaN in rows [B, H, n, D] of padding. */
static void spoil(double *rows, const int *lengths, int B, int H, int n, int D) {
    for (size_t e = 0; lengths && e < (size_t)B * H * n * D; e++)
        if ((int)(e / D % n) >= lengths[e / ((size_t)H * n * D)])
            rows[e] = NAN;
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
    if (c->nan) {
        spoil(d->q, c->query_lengths, c->B, c->H, c->M, c->D);
        spoil(d->k, c->key_lengths, c->B, c->HKV, c->N, c->D);
        spoil(d->v, c->key_lengths, c->B, c->HKV, c->N, c->DV);
    }
    d->mix = rng_array(&r, 1, 2);
    d->table = rng_array(&r, 0.5, (size_t)line * line * c->H);
}

void assa_data_free(assa_data *d) {
    double *const all[] = {d->q, d->k, d->v, d->mix, d->table, d->o, d->scores, d->lse, d->indices};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

ref_attention assa_attention(const assa_data *d) {
    const assa_case *c = &d->c;
    return (ref_attention){.B = c->B,
                           .H = c->H,
                           .HKV = c->HKV,
                           .M = c->M,
                           .N = c->N,
                           .D = c->D,
                           .DV = c->DV,
                           .scale = c->scale != 0 ? c->scale : 1 / sqrt(c->D),
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

/* ---- the problem ---- */

static clattn_tensor plain(clattn_type type, int32_t rank, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
    return clattn_tensor_make(NULL, type, rank, (const int64_t[]){s0, s1, s2, s3});
}

/* Memory is [B, n, H, D + 3]. */
static clattn_tensor rows_of(const assa_case *c, int H, int n, int D) {
    return strided_layout(c->type, (spread){.by_token = true, .gap = 3}, (const int64_t[]){c->B, H, n, D});
}

static void add_topk(const assa_case *c, clattn_assa_problem *p) {
    p->top = c->k;
    p->normalise = c->all ? CLATTN_ASSA_ALL : CLATTN_ASSA_SELECTED;
    p->causal = c->causal;
    if (!c->no_lse)
        p->lse = plain(CLATTN_F32, 3, c->B, c->H, c->M, 0);
    if (c->key_lengths)
        p->key_lengths = plain(CLATTN_I32, 1, c->B, 0, 0, 0);
    if (c->query_lengths)
        p->query_lengths = plain(CLATTN_I32, 1, c->B, 0, 0, 0);
    if (c->listed) {
        p->indices = plain(CLATTN_I32, 4, c->B, c->H, c->M, c->k);
        p->scores = plain(CLATTN_F32, 4, c->B, c->H, c->M, c->k);
    }
}

static void add_adaptive(const assa_case *c, clattn_assa_problem *p) {
    const int line = 2 * c->window - 1;
    p->mode = CLATTN_ASSA_ADAPTIVE;
    p->mix = plain(CLATTN_F32, 1, 2, 0, 0, 0);
    p->window = c->window;
    p->grid[0] = c->rows;
    p->grid[1] = c->columns;
    p->shift = c->shift;
    if (c->window)
        p->table = plain(CLATTN_F32, 2, (int64_t)line * line, c->H, 0, 0);
}

clattn_assa_problem assa_problem(const assa_case *c, bool train) {
    clattn_assa_problem p = {.q = rows_of(c, c->H, c->M, c->D),
                             .k = rows_of(c, c->HKV, c->N, c->D),
                             .v = rows_of(c, c->HKV, c->N, c->DV),
                             .o = rows_of(c, c->H, c->M, c->DV),
                             .scale = c->scale,
                             .train = train,
                             .accumulate = c->before != 0};
    (c->adaptive ? add_adaptive : add_topk)(c, &p);
    if (train) {
        p.grad_o = p.o;
        p.grad_q = p.q;
        p.grad_k = p.k;
        p.grad_v = p.v;
        p.grad_mix = p.mix;
        p.grad_table = p.table;
    }
    return p;
}

/* ---- the device ---- */

static void describe(const clattn_assa_problem *p, core_job *j) {
    const clattn_tensor all[CLATTN_ASSA_SLOTS] = {[CLATTN_ASSA_Q] = p->q,
                                                  [CLATTN_ASSA_K] = p->k,
                                                  [CLATTN_ASSA_V] = p->v,
                                                  [CLATTN_ASSA_O] = p->o,
                                                  [CLATTN_ASSA_INDICES] = p->indices,
                                                  [CLATTN_ASSA_SCORES] = p->scores,
                                                  [CLATTN_ASSA_LSE] = p->lse,
                                                  [CLATTN_ASSA_KEY_LENGTHS] = p->key_lengths,
                                                  [CLATTN_ASSA_QUERY_LENGTHS] = p->query_lengths,
                                                  [CLATTN_ASSA_MIX] = p->mix,
                                                  [CLATTN_ASSA_TABLE] = p->table,
                                                  [CLATTN_ASSA_GRAD_O] = p->grad_o,
                                                  [CLATTN_ASSA_GRAD_Q] = p->grad_q,
                                                  [CLATTN_ASSA_GRAD_K] = p->grad_k,
                                                  [CLATTN_ASSA_GRAD_V] = p->grad_v,
                                                  [CLATTN_ASSA_GRAD_MIX] = p->grad_mix,
                                                  [CLATTN_ASSA_GRAD_TABLE] = p->grad_table};
    for (int slot = 0; slot < CLATTN_ASSA_SLOTS; slot++)
        j->tensors[slot] = all[slot];
}

static bool has(const core_job *j, int slot) { return j->tensors[slot].rank > 0; }

static void put_topk(const assa_case *c, core_job *j) {
    const size_t rows = assa_queries(c);
    if (has(j, CLATTN_ASSA_LSE))
        core_job_put(j, CLATTN_ASSA_LSE, guarded_make(j->f, CLATTN_F32, rows));
    if (c->key_lengths)
        core_job_put(j, CLATTN_ASSA_KEY_LENGTHS, guarded_ints(j->f, c->key_lengths, (size_t)c->B));
    if (c->query_lengths)
        core_job_put(j, CLATTN_ASSA_QUERY_LENGTHS, guarded_ints(j->f, c->query_lengths, (size_t)c->B));
    if (c->listed) {
        core_job_put(j, CLATTN_ASSA_INDICES, guarded_make(j->f, CLATTN_I32, rows * c->k));
        core_job_put(j, CLATTN_ASSA_SCORES, guarded_make(j->f, CLATTN_F32, rows * c->k));
    }
}

/* A weight's gradient: NaN, or what was there before. */
static guarded before(const core_job *j, const assa_case *c, size_t count) {
    double *values = ref_array(count);
    for (size_t e = 0; e < count; e++)
        values[e] = c->before != 0 ? c->before : NAN;
    const guarded g = guarded_upload(j->f, CLATTN_F32, values, count);
    free(values);
    return g;
}

static void put_weight(const assa_case *c, core_job *j, int slot, int grad_slot, const double *values) {
    const size_t count = (size_t)clattn__layout_extent(&j->tensors[slot]);
    core_job_put(j, slot, guarded_upload(j->f, CLATTN_F32, values, count));
    if (has(j, grad_slot))
        core_job_put(j, grad_slot, before(j, c, count));
}

core_job assa_job(const fixture *f, const assa_data *d, const double *grad_o) {
    const assa_case *c = &d->c;
    const clattn_assa_problem p = assa_problem(c, grad_o != NULL);
    core_job j = {.f = f, .slots = CLATTN_ASSA_SLOTS};
    describe(&p, &j);
    assert_ok(clattn_assa_plan(f->context, &p, &j.plan));
    const struct {
        int slot;
        const double *values;
    } rows[] = {{CLATTN_ASSA_Q, d->q},      {CLATTN_ASSA_K, d->k},        {CLATTN_ASSA_V, d->v},
                {CLATTN_ASSA_O, NULL},      {CLATTN_ASSA_GRAD_O, grad_o}, {CLATTN_ASSA_GRAD_Q, NULL},
                {CLATTN_ASSA_GRAD_K, NULL}, {CLATTN_ASSA_GRAD_V, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (has(&j, rows[i].slot))
            core_job_put_rows(&j, rows[i].slot, rows[i].values);
    if (!c->adaptive)
        put_topk(c, &j);
    if (c->adaptive)
        put_weight(c, &j, CLATTN_ASSA_MIX, CLATTN_ASSA_GRAD_MIX, d->mix);
    if (c->window)
        put_weight(c, &j, CLATTN_ASSA_TABLE, CLATTN_ASSA_GRAD_TABLE, d->table);
    core_job_put_saved(&j, CLATTN_ASSA_SAVED);
    return j;
}

static double *answer(const core_job *j, int slot, const char *name) {
    return has(j, slot) ? guarded_read(j->f, &j->buffers[slot], name) : NULL;
}

void assa_run(const fixture *f, assa_data *d) {
    core_job j = assa_job(f, d, NULL);
    run_plan(f, j.plan, j.tensors, j.slots);
    d->o = core_job_rows(&j, CLATTN_ASSA_O, "o");
    d->lse = answer(&j, CLATTN_ASSA_LSE, "lse");
    d->indices = answer(&j, CLATTN_ASSA_INDICES, "indices");
    d->scores = answer(&j, CLATTN_ASSA_SCORES, "scores");
    core_job_release(&j);
}
