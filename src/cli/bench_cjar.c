/* clattn bench: local window, global memory, random links. */
#include <math.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/clock.h"

/* Links of a causal layer fall on either side alike: half of them count. */
static bench_work work(const bench_case *c, int64_t links) {
    const double d = (double)c->d, n = (double)c->n;
    double pairs = bench_pairs(c->n, c->window_left, c->window_right, c->causal) + n * (double)c->memory +
                   (double)links * (c->causal ? 0.5 : 1);
    return (bench_work){4 * pairs * d, 10 * pairs * d, 8 * n * d * d, 16 * n * d * d};
}

static bench_parts parts(const bench_case *c) {
    (void)c;
    return (bench_parts){{"to_qkv.weight", "to_qkv.bias", 0},
                         {"to_qkv.weight", "to_qkv.bias", 1},
                         {"to_qkv.weight", "to_qkv.bias", 2},
                         {"to_out.weight", "to_out.bias", 0}};
}

static size_t hints(const bench_case *c, clattn_weight_info *infos) {
    infos[0] = (clattn_weight_info){.name = "global_mem", .rank = 2, .shape = {c->memory, c->d}};
    return 1;
}

static double scale_of(const bench_case *c) { return c->by_model ? 1 / sqrt((double)c->d) : bench_head_scale(c); }

/* p: scores of the window and the links; what is hidden counts as 0 where it is multiplied. */
static void key_scores(const bench_view *view, int64_t h, int64_t i, double *p) {
    const bench_case *c = view->subject->c;
    const clattn_links *links = &view->subject->links;
    const int64_t columns = c->d / c->heads, last = c->causal ? i : c->n - 1;
    const int64_t from = c->window_left < 0 || c->window_left > i ? 0 : i - c->window_left;
    const int64_t to = c->window_right < 0 || c->window_right > last - i ? last : i + c->window_right;
    bench_scores(view, h, scale_of(c), from, to, p);
    for (int64_t j = 0; c->multiply && j <= last; ++j) {
        p[j] = isinf(p[j]) ? 0 : p[j];
    }
    for (int64_t e = links->count > 0 ? links->starts[i] : 0; links->count > 0 && e < links->starts[i + 1]; ++e) {
        const int64_t j = links->keys[e];
        if (j <= last) {
            p[j] = bench_dot(view->q + h * columns, view->k + j * c->d + h * columns, columns) * scale_of(c);
        }
    }
}

/* o NULL: scores p of the memory's keys; else o += p times its values. */
static void add_memory(const bench_view *view, int64_t h, double *p, double *o) {
    const char *const own = o ? "global_mem_v" : "global_mem_k";
    const bench_array *memory = bench_weight(view->subject, view->subject->c->core ? own : "global_mem");
    const bench_case *c = view->subject->c;
    const int64_t columns = c->d / c->heads;
    for (int64_t t = 0; t < c->memory; ++t) {
        for (int64_t e = h * columns; e < (h + 1) * columns; ++e) {
            if (o) {
                o[e] += p[t] * memory->values[t * c->d + e];
            } else {
                p[t] += view->q[e] * memory->values[t * c->d + e] * scale_of(c);
            }
        }
    }
}

static bool row(const bench_view *view, int64_t i, double *o) {
    const bench_case *c = view->subject->c;
    for (int64_t h = 0; h < c->heads; ++h) {
        double *p = bench_doubles((size_t)(c->n + c->memory));
        key_scores(view, h, i, p);
        add_memory(view, h, p + c->n, NULL);
        bench_softmax(p, c->n + c->memory);
        bench_average(view, h, p, o);
        add_memory(view, h, p + c->n, o);
        free(p);
    }
    return true;
}

/* Memory rows [m, d] seen as the core wants them, [H, m, d/H]: keys and values of their own. */
static bool core_memory(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const int64_t columns = c->d / c->heads, shape[] = {c->heads, c->memory, columns}, stride[] = {columns, c->d, 1};
    const clattn_weight_info k = {.name = "global_mem_k", .rank = 2, .shape = {c->memory, c->d}};
    const clattn_weight_info v = {.name = "global_mem_v", .rank = 2, .shape = {c->memory, c->d}};
    clattn_tensor seen = clattn_tensor_make(NULL, CLATTN_F32, 3, shape);
    for (int i = 0; i < 3; ++i) {
        seen.stride[i] = stride[i];
    }
    return bench_core_weight(s, CLATTN_CJAR_MEMORY_K, CLATTN_CJAR_GRAD_MEMORY_K, &k, &seen, f) &&
           bench_core_weight(s, CLATTN_CJAR_MEMORY_V, CLATTN_CJAR_GRAD_MEMORY_V, &v, &seen, f);
}

static bool core(bench_subject *s, failure *f) {
    const bench_case *c = s->c;
    const bench_core_slots slots = {.count = CLATTN_CJAR_SLOTS,
                                    .inputs = {CLATTN_CJAR_Q, CLATTN_CJAR_K, CLATTN_CJAR_V},
                                    .output = CLATTN_CJAR_O,
                                    .input_grads = {CLATTN_CJAR_GRAD_Q, CLATTN_CJAR_GRAD_K, CLATTN_CJAR_GRAD_V},
                                    .output_grad = CLATTN_CJAR_GRAD_O,
                                    .saved = CLATTN_CJAR_SAVED};
    if (!bench_core_tensors(s, &slots, f) || !core_memory(s, f) ||
        !bench_core_links(s, CLATTN_CJAR_LINK_ROWS, CLATTN_CJAR_LINK_KEYS, f)) {
        return false;
    }
    const clattn_cjar_problem problem = {.q = s->tensors[CLATTN_CJAR_Q],
                                         .k = s->tensors[CLATTN_CJAR_K],
                                         .v = s->tensors[CLATTN_CJAR_V],
                                         .o = s->tensors[CLATTN_CJAR_O],
                                         .memory_k = s->tensors[CLATTN_CJAR_MEMORY_K],
                                         .memory_v = s->tensors[CLATTN_CJAR_MEMORY_V],
                                         .link_rows = s->tensors[CLATTN_CJAR_LINK_ROWS],
                                         .link_keys = s->tensors[CLATTN_CJAR_LINK_KEYS],
                                         .scale = (float)scale_of(c),
                                         .window_left = c->window_left,
                                         .window_right = c->window_right,
                                         .causal = c->causal,
                                         .masked = c->multiply ? CLATTN_CJAR_MULTIPLY : CLATTN_CJAR_EXCLUDE,
                                         .train = c->train,
                                         .grad_o = s->tensors[CLATTN_CJAR_GRAD_O],
                                         .grad_q = s->tensors[CLATTN_CJAR_GRAD_Q],
                                         .grad_k = s->tensors[CLATTN_CJAR_GRAD_K],
                                         .grad_v = s->tensors[CLATTN_CJAR_GRAD_V],
                                         .grad_memory_k = s->tensors[CLATTN_CJAR_GRAD_MEMORY_K],
                                         .grad_memory_v = s->tensors[CLATTN_CJAR_GRAD_MEMORY_V]};
    double start = clock_ms();
    return bench_core_planned(s, clattn_cjar_plan(s->session->context, &problem, &s->plan), start, f);
}

const bench_family bench_family_cjar = {
    .name = "cjar", .links = true, .work = work, .parts = parts, .hints = hints, .row = row, .core = core};
