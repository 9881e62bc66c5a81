/* assa, backwards: what all visible pairs have a part in, as products of tiles (cl/assa_backward_joint.cl where it serves, else
 * cl/assa_backward_pairs.cl). */
#include <inttypes.h>

#include "core/layout.h"
#include "core/tile.h"
#include "variant/assa_backward.h"

/* FORM of cl/include/assa_backward.h. */
enum form { SOFTMAX, MIXED, REST };

/* TERMS  floats of a query
 * JOINT, SEPARATE  products of a pair of either plan
 * BLOCK  bytes of a joint block's operands, sums and pairs that a core's own caches hold */
enum { TERMS = 4, JOINT = 5, SEPARATE = 9, BLOCK = 384 << 10 };

/* One pass: its form, its gradients, and operands in the order of windows. */
typedef struct pass {
    const clattn__assa_pairs *pairs;
    const clattn__core_gradients *gradients;
    enum form form;
    clattn__tile tile;
    clattn__operand q_rows, o_rows, k_panels, v_panels, k_rows, terms;
} pass;

static int64_t heads_per_kv(const clattn__sizes *s) { return s->kv_heads > 0 ? s->heads / s->kv_heads : 0; }

/* ---- shapes ---- */

/* Operands, P and G with a margin, terms and sums of each row, and what queries and keys see. */
static uint64_t local_bytes(const clattn__tile *t, const clattn__sizes *s) {
    const int64_t items = t->wg > t->bm ? t->wg / t->bm : 1;
    const int64_t row = s->head_size + s->value_size + 2 * ((int64_t)t->bn + 1) + 6 + 3 * items;
    return t->wg == 1 ? 0 : sizeof(float) * (uint64_t)(t->bm * row + 2 * t->bn + 2 * t->vw);
}

/* A CPU's blocks are 8 micro-tiles high and about 6 panels wide. */
static clattn__tile tile_of(const clattn__target *target, const clattn__sizes *s) {
    clattn__tile tile = target->attention;
    const int both = clattn__tile_both_ways(&tile);
    if (tile.wg == 1) {
        tile.bm = 8 * tile.tm;
        tile.bn = 6 * tile.pw;
    }
    tile.bn = (int)clattn__ceil_div(tile.bn, both) * both;
    while (local_bytes(&tile, s) > target->caps.local_bytes && tile.bm % (2 * tile.tm) == 0)
        tile.bm /= 2;
    return tile;
}

/* That of the joint plan: all keys of a window are one block. Sequences, which grow, have one width. */
static clattn__tile joint_tile(const clattn__target *target, const clattn__assa_pairs *pairs) {
    clattn__tile tile = tile_of(target, &pairs->sizes);
    const int both = clattn__tile_both_ways(&tile);
    if (pairs->window.side > 0)
        tile.bn = (int)(clattn__ceil_div(pairs->sizes.keys, both) * both);
    return tile;
}

/* Why the joint plan does not serve, in text; NULL: it does. */
static const char *joint_reject(const clattn__target *target, const clattn__assa_pairs *pairs, enum form form,
                                char *text, size_t size) {
    const clattn__sizes *s = &pairs->sizes;
    const clattn__tile tile = joint_tile(target, pairs);
    const int64_t units = target->caps.compute_units > 0 ? target->caps.compute_units : 1;
    const int64_t tasks = s->batch * s->kv_heads, row = s->head_size + s->value_size;
    const int64_t bytes = (int64_t)sizeof(float) * ((tile.bm + tile.bn) * row + 2 * (int64_t)tile.bm * tile.bn);
    clattn__text reason = {text, size, 0};
    if (form == REST)
        clattn__text_add(&reason, "normalise all");
    else if (tile.wg > 1)
        clattn__text_add(&reason, "work-groups of %d", tile.wg);
    else if (s->keys > tile.bn)
        clattn__text_add(&reason, "%" PRId64 " keys in blocks of %d", s->keys, tile.bn);
    else if (bytes > BLOCK)
        clattn__text_add(&reason, "a block of %d keys takes %" PRId64 " bytes", tile.bn, bytes);
    else if (JOINT * clattn__ceil_div(tasks, units) * units > SEPARATE * tasks)
        clattn__text_add(&reason, "%" PRId64 " heads for %" PRId64 " compute units", tasks, units);
    return reason.length > 0 ? text : NULL;
}

/* ---- operands ---- */

static clattn__operand rows_of(clattn__plan *plan, const clattn__target *target, const pass *p,
                               const clattn__view *view, int64_t heads, int64_t rows, int64_t width) {
    const clattn__stream stream = {view, p->pairs->sizes.batch, heads, rows, width, 1};
    if (p->pairs->window.side == 0)
        return clattn__stream_rows(plan, target, &stream);
    const clattn__sizes sizes = {stream.batch, heads, heads, 0, rows, width, width};
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.values = clattn__plan_scratch(plan, packed.value_batch_stride * stream.batch);
    clattn__assa_window_values(plan, target, &sizes, &p->pairs->window, view, &packed);
    return packed.values;
}

static clattn__operand panels_of(clattn__plan *plan, const clattn__target *target, const pass *p,
                                 const clattn__view *view, int64_t width) {
    const clattn__sizes *s = &p->pairs->sizes;
    const clattn__stream stream = {view, s->batch, s->kv_heads, s->keys, width, 1};
    if (p->pairs->window.side == 0)
        return clattn__stream_panels(plan, target, &stream);
    const clattn__sizes sizes = {stream.batch, s->kv_heads, s->kv_heads, 0, s->keys, width, width};
    clattn__packed packed = clattn__packed_layout(target, &sizes);
    packed.keys = clattn__plan_scratch(plan, packed.key_batch_stride * stream.batch);
    clattn__assa_window_keys(plan, target, &sizes, &p->pairs->window, view, &packed);
    return packed.keys;
}

static void pack(clattn__plan *plan, const clattn__target *target, pass *p) {
    const clattn__assa_pairs *pairs = p->pairs;
    const clattn__sizes *s = &pairs->sizes;
    p->q_rows = rows_of(plan, target, p, &pairs->q, s->heads, s->queries, s->head_size);
    p->k_rows = rows_of(plan, target, p, &pairs->k, s->kv_heads, s->keys, s->head_size);
    p->k_panels = panels_of(plan, target, p, &pairs->k, s->head_size);
    p->o_rows = p->v_panels = clattn__none();
    if (p->form == REST)
        return;
    p->o_rows = rows_of(plan, target, p, &p->gradients->o, s->heads, s->queries, s->value_size);
    p->v_panels = panels_of(plan, target, p, &pairs->v, s->value_size);
}

/* ---- stages ---- */

static void define(clattn__plan *plan, clattn__stage *stage, const pass *p, clattn_type grad_type) {
    clattn__tile_defines(plan, stage, &p->tile);
    clattn__stage_define(plan, stage, "D", p->pairs->sizes.head_size);
    clattn__stage_define(plan, stage, "DV", p->pairs->sizes.value_size);
    clattn__stage_define(plan, stage, "TYPE_Q", CLATTN_F32);
    clattn__stage_define(plan, stage, "TYPE_O", grad_type);
    clattn__stage_define(plan, stage, "TYPE_G", p->pairs->grad_type);
    clattn__stage_define(plan, stage, "FORM", p->form);
    clattn__stage_define(plan, stage, "WINDOW", p->pairs->window.side > 0);
}

/* SCENE_PARAMETERS. */
static clattn__stage *scene(clattn__plan *plan, const char *file, const char *kernel, const pass *p) {
    const clattn__assa_pairs *pairs = p->pairs;
    const clattn__sizes *s = &pairs->sizes;
    const clattn__assa_window *w = &pairs->window;
    clattn__stage *stage = clattn__plan_kernel(plan, file, kernel);
    define(plan, stage, p, p->gradients->q.type);
    stage->local_bytes = (size_t)local_bytes(&p->tile, s);
    const clattn__operand operands[] = {p->q_rows,  p->o_rows,    p->k_panels,        p->v_panels,         p->terms,
                                        pairs->mix, pairs->table, pairs->key_lengths, pairs->query_lengths};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    const int64_t sizes[] = {s->queries, s->keys, s->heads, heads_per_kv(s)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        clattn__stage_int(plan, stage, (int32_t)sizes[i]);
    clattn__stage_float(plan, stage, pairs->scale);
    const int64_t places[] = {pairs->right, pairs->bottom_right, w->side, w->rows, w->columns, w->shift};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        clattn__stage_int(plan, stage, (int32_t)places[i]);
    return stage;
}

static void add_view(clattn__plan *plan, clattn__stage *stage, const clattn__view *view) {
    clattn__stage_operand(plan, stage, view->at);
    clattn__stage_strides(plan, stage, view);
}

static void sums(clattn__plan *plan, const pass *p, clattn__operand chosen) {
    const clattn__sizes *s = &p->pairs->sizes;
    clattn__stage *stage = scene(plan, "assa_backward_pairs", "assa_backward_pairs_sums", p);
    clattn__stage_operand(plan, stage, p->pairs->lse);
    clattn__stage_operand(plan, stage, chosen);
    clattn__stage_long(plan, stage, p->pairs->tokens);
    clattn__stage_range(stage, clattn__ceil_div(s->queries, p->tile.bm), s->heads, s->batch, p->tile.wg);
}

static void queries(clattn__plan *plan, const pass *p, clattn__operand tables, int64_t shares) {
    clattn__stage *stage = scene(plan, "assa_backward_pairs", "assa_backward_pairs_queries", p);
    clattn__stage_operand(plan, stage, p->k_rows);
    clattn__stage_operand(plan, stage, tables);
    add_view(plan, stage, &p->gradients->q);
    clattn__stage_long(plan, stage, p->pairs->sizes.batch);
    clattn__stage_range(stage, shares, p->pairs->sizes.heads, 1, p->tile.wg);
}

static void keys(clattn__plan *plan, const pass *p) {
    const clattn__sizes *s = &p->pairs->sizes;
    clattn__stage *stage = scene(plan, "assa_backward_pairs", "assa_backward_pairs_keys", p);
    add_view(plan, stage, &p->gradients->k);
    add_view(plan, stage, &p->gradients->v);
    clattn__stage_range(stage, clattn__ceil_div(s->keys, p->tile.bn), s->kv_heads, s->batch, p->tile.wg);
}

static void joint(clattn__plan *plan, const pass *p, clattn__operand tables, int64_t shares) {
    clattn__stage *stage = scene(plan, "assa_backward_joint", "assa_backward_joint", p);
    clattn__stage_operand(plan, stage, p->pairs->lse);
    clattn__stage_long(plan, stage, p->pairs->tokens);
    clattn__stage_operand(plan, stage, p->k_rows);
    clattn__stage_operand(plan, stage, tables);
    add_view(plan, stage, &p->gradients->q);
    add_view(plan, stage, &p->gradients->k);
    add_view(plan, stage, &p->gradients->v);
    clattn__stage_long(plan, stage, p->pairs->sizes.batch);
    clattn__stage_range(stage, shares, p->pairs->sizes.kv_heads, 1, 1);
}

/* ---- the bias table ---- */

/* Floats of one part of one head's table. */
static int64_t table_size(const pass *p) {
    const int64_t line = 2 * p->pairs->window.side - 1;
    return line * clattn__ceil_div(line, p->tile.vw) * p->tile.vw;
}

/* Work-groups for `tasks` of a head: as many; with a table no more than whose parts of it take the memory of dQ. */
static int64_t shares_of(const pass *p, int64_t tasks, bool table) {
    const clattn__sizes *s = &p->pairs->sizes;
    const int64_t most = table ? s->batch * s->queries * s->head_size / table_size(p) : tasks;
    return most < 1 && tasks > 0 ? 1 : most < tasks ? most : tasks;
}

static void sum_tables(clattn__plan *plan, const pass *p, clattn__operand tables, int64_t shares,
                       clattn__operand grad) {
    const int64_t line = 2 * p->pairs->window.side - 1;
    clattn__stage *stage = clattn__plan_kernel(plan, "assa_backward_pairs", "assa_backward_pairs_table");
    define(plan, stage, p, p->gradients->q.type);
    clattn__stage_operand(plan, stage, tables);
    clattn__stage_operand(plan, stage, grad);
    clattn__stage_int(plan, stage, (int32_t)p->pairs->window.side);
    clattn__stage_long(plan, stage, shares);
    clattn__stage_int(plan, stage, p->pairs->accumulate);
    clattn__stage_range(stage, line * line, p->pairs->sizes.heads, 1, 1);
}

static void mix(clattn__plan *plan, const pass *p, clattn__operand grad) {
    const clattn__sizes *s = &p->pairs->sizes;
    clattn__stage *stage = clattn__plan_kernel(plan, "assa_backward_pairs", "assa_backward_pairs_mix");
    define(plan, stage, p, p->gradients->q.type);
    clattn__stage_operand(plan, stage, p->terms);
    clattn__stage_operand(plan, stage, p->pairs->mix);
    clattn__stage_operand(plan, stage, grad);
    clattn__stage_long(plan, stage, s->batch * s->heads * s->queries);
    clattn__stage_int(plan, stage, p->pairs->accumulate);
    clattn__stage_range(stage, 1, 1, 1, 1);
}

/* ---- the passes ---- */

/* chosen: of REST. grad_table: slot NONE where there is none. */
static pass append(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                   const clattn__core_gradients *g, enum form form, clattn__operand chosen,
                   clattn__operand grad_table) {
    const clattn__sizes *s = &pairs->sizes;
    const bool table = clattn__given(grad_table);
    char text[160];
    const char *reason = joint_reject(target, pairs, form, text, sizeof text);
    pass p = {.pairs = pairs, .gradients = g, .form = form};
    p.tile = reason ? tile_of(target, s) : joint_tile(target, pairs);
    p.terms = clattn__plan_scratch(plan, TERMS * s->batch * s->heads * s->queries);
    pack(plan, target, &p);
    const int64_t tasks = s->batch * (reason ? clattn__ceil_div(s->queries, p.tile.bm) : 1);
    const int64_t shares = shares_of(&p, tasks, table);
    const clattn__operand tables =
        table ? clattn__plan_scratch(plan, shares * s->heads * table_size(&p)) : clattn__none();
    if (reason) {
        clattn__plan_note(plan, "assa backward: separate; not joint: %s", reason);
        sums(plan, &p, chosen);
        queries(plan, &p, tables, shares);
        keys(plan, &p);
    } else {
        clattn__plan_note(plan, "assa backward: joint");
        joint(plan, &p, tables, shares);
    }
    if (table)
        sum_tables(plan, &p, tables, shares, grad_table);
    return p;
}

void clattn__assa_pairs_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                                 const clattn__core_gradients *g, clattn__operand grad_table,
                                 clattn__operand grad_mix) {
    const uint64_t mark = plan->workspace_used;
    const enum form form = clattn__given(pairs->mix) ? MIXED : SOFTMAX;
    const pass p = append(plan, target, pairs, g, form, clattn__none(), grad_table);
    if (clattn__given(grad_mix))
        mix(plan, &p, grad_mix);
    clattn__plan_release(plan, mark);
}

void clattn__assa_rest_backward(clattn__plan *plan, const clattn__target *target, const clattn__assa_pairs *pairs,
                                const clattn__core_gradients *g, clattn__operand chosen) {
    const uint64_t mark = plan->workspace_used;
    append(plan, target, pairs, g, REST, chosen, clattn__none());
    clattn__plan_release(plan, mark);
}
