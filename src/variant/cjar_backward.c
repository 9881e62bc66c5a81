/* cjar, backwards: stages. */
#include "variant/cjar_backward.h"

#include <inttypes.h>

/* SPAN    queries whose part of the memory's gradients one work-group computes
 * BLOCK   keys of a work-item that adds up counts of links
 * CHUNKS  most work-items that sort links, each with a count for every key */
enum { SPAN = 1024, BLOCK = 256, CHUNKS = 64 };

static clattn__stage *kernel(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c, const char *name,
                             clattn_type q_type, clattn_type grad_type, int64_t owned_rows) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cjar_backward", name);
    clattn__backward_shape(plan, stage, target, &c->sizes, q_type, grad_type, owned_rows, c->sizes.heads);
    if (stage->local_bytes > 0) /* what the memory sees, and chunks of links */
        stage->local_bytes += 6 * sizeof(int32_t) * (size_t)clattn__backward_tile(target, &c->sizes).bm;
    clattn__stage_define(plan, stage, "MEMORY", c->memory);
    clattn__stage_define(plan, stage, "HAS_LINKS", c->link_count > 0);
    clattn__stage_define(plan, stage, "MULTIPLY", c->masked == CLATTN_CJAR_MULTIPLY);
    clattn__stage_define(plan, stage, "SPAN", SPAN);
    return stage;
}

static void queries(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                    const clattn__cjar_gradients *g, const clattn__streams *keys, clattn__operand terms) {
    clattn__stage *stage =
        kernel(plan, target, c, "cjar_backward_queries", c->q.type, g->core.q.type, c->sizes.queries);
    const clattn__operand list[] = {c->q.at,
                                    g->core.o.at,
                                    keys->first_panels,
                                    keys->second_panels,
                                    keys->first_rows,
                                    keys->second_rows,
                                    c->memory_keys,
                                    g->memory_value_panels,
                                    g->memory_key_rows,
                                    c->link_rows,
                                    c->link_keys,
                                    terms,
                                    c->lengths,
                                    g->core.q.at};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__stage_int(plan, stage, (int32_t)c->sizes.keys);
    clattn__stage_float(plan, stage, c->scale);
    clattn__cjar_window(plan, stage, c);
    clattn__stage_long(plan, stage, c->link_count);
    clattn__stage_strides(plan, stage, &c->q);
    clattn__stage_strides(plan, stage, &g->core.o);
    clattn__stage_strides(plan, stage, &g->core.q);
}

/* ---- links by key ---- */

typedef struct by_key {
    clattn__operand starts, queries; /* ints: [n + 1], [links] */
} by_key;

static clattn__stage *sorting(clattn__plan *plan, const char *name, const clattn__operand *list, size_t count,
                              int64_t n) {
    clattn__stage *stage = clattn__plan_kernel(plan, "cjar_links", name);
    clattn__stage_define(plan, stage, "BLOCK", BLOCK);
    clattn__stage_operands(plan, stage, list, count);
    clattn__stage_int(plan, stage, (int32_t)n);
    return stage;
}

#define SORTING(name, list) sorting(plan, name, list, sizeof(list) / sizeof *(list), n)

static by_key transpose(clattn__plan *plan, const clattn__cjar *c) {
    const int64_t n = c->sizes.keys, blocks = clattn__ceil_div(n, BLOCK);
    const int64_t wanted = clattn__ceil_div(n, BLOCK / 4), chunks = wanted < CHUNKS ? wanted : CHUNKS;
    const by_key to = {clattn__plan_scratch(plan, n + 1), clattn__plan_scratch(plan, c->link_count)};
    const uint64_t mark = plan->workspace_used;
    const clattn__operand counts = clattn__plan_scratch(plan, chunks * n), sums = clattn__plan_scratch(plan, blocks);
    const clattn__operand count[] = {c->link_rows, c->link_keys, counts}, offsets[] = {counts, to.starts, sums},
                          starts[] = {to.starts, sums},
                          fill[] = {c->link_rows, c->link_keys, counts, to.starts, to.queries};
    clattn__stage *stage = SORTING("cjar_links_count", count);
    clattn__stage_long(plan, stage, c->link_count);
    clattn__stage_range(stage, chunks, 1, 1, 1);
    stage = SORTING("cjar_links_offsets", offsets);
    clattn__stage_long(plan, stage, chunks);
    clattn__stage_range(stage, blocks, 1, 1, 1);
    stage = SORTING("cjar_links_starts", starts);
    clattn__stage_range(stage, blocks, 1, 1, 1);
    stage = SORTING("cjar_links_fill", fill);
    clattn__stage_long(plan, stage, c->link_count);
    clattn__stage_range(stage, chunks, 1, 1, 1);
    clattn__plan_release(plan, mark);
    return to;
}

/* ---- hidden keys ---- */

typedef struct hidden {
    clattn__operand zeros, sums;
} hidden;

static hidden hidden_keys(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                          const clattn__streams *queries, clattn__operand terms) {
    const clattn__sizes *s = &c->sizes;
    const int64_t row = clattn__padded_row(target, s->value_size), heads = s->batch * s->heads;
    const hidden h = {clattn__plan_scratch(plan, heads * s->queries),
                      clattn__plan_scratch(plan, heads * (s->queries + 1) * row)};
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_zeros", CLATTN_F32, CLATTN_F32, 0);
    const clattn__operand of_zeros[] = {terms, c->link_rows, c->link_keys, c->lengths, h.zeros};
    clattn__stage_operands(plan, stage, of_zeros, sizeof of_zeros / sizeof *of_zeros);
    clattn__stage_int(plan, stage, (int32_t)s->keys);
    clattn__cjar_window(plan, stage, c);
    clattn__stage_long(plan, stage, c->link_count);
    clattn__stage_range(stage, clattn__ceil_div(s->queries, clattn__panel_width(target)), s->heads, s->batch, 1);
    stage->local_bytes = 0;
    stage = kernel(plan, target, c, "cjar_backward_prefix", CLATTN_F32, CLATTN_F32, 0);
    const clattn__operand of_sums[] = {queries->second_rows, h.zeros, h.sums, c->lengths};
    clattn__stage_operands(plan, stage, of_sums, sizeof of_sums / sizeof *of_sums);
    clattn__stage_int(plan, stage, (int32_t)s->keys);
    clattn__stage_range(stage, row / target->attention.vw, s->heads, s->batch, 1);
    stage->local_bytes = 0;
    return h;
}

static void keys(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                 const clattn__cjar_gradients *g, const clattn__streams *queries, clattn__operand terms) {
    const uint64_t mark = plan->workspace_used;
    const hidden h = c->masked == CLATTN_CJAR_MULTIPLY ? hidden_keys(plan, target, c, queries, terms)
                                                       : (hidden){clattn__none(), clattn__none()};
    const by_key links = c->link_count > 0 ? transpose(plan, c) : (by_key){clattn__none(), clattn__none()};
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_keys", c->q.type, g->core.k.type, c->sizes.keys);
    const clattn__operand list[] = {c->k.at,
                                    c->v.at,
                                    queries->first_panels,
                                    queries->second_panels,
                                    queries->first_rows,
                                    queries->second_rows,
                                    h.sums,
                                    h.zeros,
                                    links.starts,
                                    links.queries,
                                    terms,
                                    c->lengths,
                                    g->core.k.at,
                                    g->core.v.at};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__stage_int(plan, stage, (int32_t)c->sizes.keys);
    clattn__stage_float(plan, stage, c->scale);
    clattn__cjar_window(plan, stage, c);
    clattn__stage_strides(plan, stage, &c->k);
    clattn__stage_strides(plan, stage, &c->v);
    clattn__stage_strides(plan, stage, &g->core.k);
    clattn__stage_strides(plan, stage, &g->core.v);
    clattn__plan_release(plan, mark);
}

/* ---- memory ---- */

static clattn__cjar_parts memory_parts(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                                       const clattn__cjar_gradients *g, const clattn__streams *queries,
                                       clattn__operand terms) {
    const clattn__sizes *s = &c->sizes;
    const clattn__tile tile = clattn__backward_tile(target, s);
    const int64_t spans = clattn__ceil_div(s->queries, SPAN), row = 2 * s->head_size, head = c->memory * row;
    const clattn__cjar_parts parts = {.at = clattn__plan_scratch(plan, s->batch * spans * s->heads * head),
                                      .count = s->batch * spans,
                                      .step = s->heads * head,
                                      .head_stride = head,
                                      .row_stride = row,
                                      .second = s->head_size};
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_memory", CLATTN_F32, CLATTN_F32, c->memory);
    const clattn__operand list[] = {g->memory_key_rows,
                                    c->memory_values,
                                    queries->first_panels,
                                    queries->second_panels,
                                    queries->first_rows,
                                    queries->second_rows,
                                    terms,
                                    c->lengths,
                                    parts.at};
    clattn__stage_operands(plan, stage, list, sizeof list / sizeof *list);
    clattn__stage_int(plan, stage, (int32_t)s->keys);
    clattn__stage_range(stage, clattn__ceil_div(c->memory, tile.bm) * spans, s->heads, s->batch, tile.wg);
    return parts;
}

static void memory(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                   const clattn__cjar_gradients *g, const clattn__cjar_parts *parts) {
    clattn__stage *stage = kernel(plan, target, c, "cjar_backward_gather", CLATTN_F32, g->memory_k.type, 0);
    const clattn__operand sums[] = {parts->at, g->memory_k.at, g->one_memory ? clattn__none() : g->memory_v.at};
    clattn__stage_operands(plan, stage, sums, sizeof sums / sizeof *sums);
    const int64_t numbers[] = {parts->count, parts->step, parts->head_stride, parts->row_stride, parts->second};
    clattn__stage_longs(plan, stage, numbers, sizeof numbers / sizeof *numbers);
    clattn__stage_float(plan, stage, c->scale);
    clattn__stage_int(plan, stage, g->accumulate);
    clattn__stage_long(plan, stage, g->memory_k.head_stride);
    clattn__stage_long(plan, stage, g->memory_k.row_stride);
    clattn__stage_long(plan, stage, g->memory_v.head_stride);
    clattn__stage_long(plan, stage, g->memory_v.row_stride);
    clattn__stage_range(stage, c->memory, c->sizes.heads, 1, 1);
    stage->local_bytes = 0;
}

static void separate(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                     const clattn__cjar_gradients *g, clattn__operand terms) {
    const uint64_t mark = plan->workspace_used;
    const clattn__streams of_keys = clattn__stream_keys(plan, target, &c->sizes, &c->k, &c->v, c->link_count > 0);
    queries(plan, target, c, g, &of_keys, terms);
    clattn__plan_release(plan, mark);
    const clattn__streams of_queries = clattn__stream_queries(plan, target, &c->sizes, &c->q, &g->core.o, c->scale);
    keys(plan, target, c, g, &of_queries, terms);
    if (c->memory > 0) {
        const clattn__cjar_parts parts = memory_parts(plan, target, c, g, &of_queries, terms);
        memory(plan, target, c, g, &parts);
    }
    clattn__plan_release(plan, mark);
}

static void joint(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                  const clattn__cjar_gradients *g, clattn__operand terms) {
    const uint64_t mark = plan->workspace_used;
    const clattn__cjar_parts parts = clattn__cjar_joint_append(plan, target, c, g, terms);
    if (c->memory > 0)
        memory(plan, target, c, g, &parts);
    clattn__plan_release(plan, mark);
}

void clattn__cjar_backward_append(clattn__plan *plan, const clattn__target *target, const clattn__cjar *c,
                                  const clattn__cjar_gradients *g) {
    char text[160];
    const char *reason = clattn__cjar_joint_reject(c, target, text, sizeof text);
    const clattn__operand terms =
        clattn__terms_append(plan, target, &c->sizes, &c->o, &g->core.o, c->saved, c->lengths);
    if (reason)
        clattn__plan_note(plan, "cjar backward: separate; not joint: %s", reason);
    else
        clattn__plan_note(plan, "cjar backward: joint");
    (reason ? separate : joint)(plan, target, c, g, terms);
}

clattn_status clattn__cjar_backward_check(int64_t link_count, clattn__error *error) {
    if (link_count > INT32_MAX)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "cjar backward: %" PRId64 " links, at most %" PRId32, link_count,
                            INT32_MAX);
    return CLATTN_SUCCESS;
}
