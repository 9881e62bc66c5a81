/* The adaptive mode as stages: prepared mix and table, packed windows, attention. */
#include <inttypes.h>

#include "core/layout.h"
#include "core/tile.h"
#include "variant/assa.h"

enum { MAX_SIDE = 4096 };

static void add_window(clattn__plan *plan, clattn__stage *stage, const clattn__assa_window *w) {
    const int64_t numbers[] = {w->side, w->rows, w->columns, w->shift};
    for (int i = 0; i < 4; i++)
        clattn__stage_int(plan, stage, (int32_t)numbers[i]);
}

/* ---- preparation ---- */

int64_t clattn__assa_table_floats(int64_t side, int64_t heads) { return (2 * side - 1) * (2 * side - 1) * heads; }

void clattn__assa_mix(clattn__plan *plan, const clattn__target *target, clattn__operand w, clattn__operand to) {
    clattn__stage *stage = clattn__plan_kernel(plan, "assa_window", "assa_mix");
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "TYPE_W", target->weight_type);
    clattn__stage_operand(plan, stage, w);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_range(stage, 1, 1, 1, 1);
}

void clattn__assa_table(clattn__plan *plan, const clattn__target *target, int64_t side, int64_t heads,
                        clattn__operand table, clattn__operand to) {
    clattn__stage *stage = clattn__plan_kernel(plan, "assa_window", "assa_table");
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "TYPE_W", target->weight_type);
    clattn__stage_operand(plan, stage, table);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_int(plan, stage, (int32_t)side);
    clattn__stage_int(plan, stage, (int32_t)heads);
    clattn__stage_range(stage, (2 * side - 1) * (2 * side - 1), heads, 1, 1);
}

clattn__sizes clattn__assa_window_sizes(const clattn__sizes *sizes, const clattn__assa_window *w) {
    clattn__sizes s = *sizes;
    s.queries = s.keys = w->side * w->side;
    s.batch *= w->rows / w->side * (w->columns / w->side);
    return s;
}

static void pack(clattn__plan *plan, const clattn__target *target, const char *kernel, const clattn__sizes *s,
                 int64_t head_size, const clattn__assa_window *w, const clattn__view *x, clattn__operand to,
                 int64_t to_batch, int64_t to_head) {
    clattn__stage *stage = clattn__plan_kernel(plan, "assa_window", kernel);
    clattn__tile_defines(plan, stage, &target->attention);
    clattn__stage_define(plan, stage, "D", head_size);
    clattn__stage_define(plan, stage, "TYPE_X", x->type);
    clattn__stage_operand(plan, stage, x->at);
    clattn__stage_operand(plan, stage, to);
    add_window(plan, stage, w);
    const int64_t strides[] = {x->batch_stride, x->head_stride, x->row_stride, to_batch, to_head};
    clattn__stage_longs(plan, stage, strides, 5);
    clattn__stage_range(stage, clattn__ceil_div(s->keys, clattn__panel_width(target)), s->kv_heads, s->batch, 1);
}

void clattn__assa_window_keys(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                              const clattn__assa_window *w, const clattn__view *k, const clattn__packed *packed) {
    pack(plan, target, "assa_pack_keys", s, s->head_size, w, k, packed->keys, packed->key_batch_stride,
         packed->key_head_stride);
}

void clattn__assa_window_values(clattn__plan *plan, const clattn__target *target, const clattn__sizes *s,
                                const clattn__assa_window *w, const clattn__view *v, const clattn__packed *packed) {
    pack(plan, target, "assa_pack_values", s, s->value_size, w, v, packed->values, packed->value_batch_stride,
         packed->value_head_stride);
}

/* ---- attention ---- */

static void add_strides(clattn__plan *plan, clattn__stage *stage, const clattn__assa_mixed *m) {
    const int64_t strides[] = {m->q.batch_stride,
                               m->q.head_stride,
                               m->q.row_stride,
                               m->packed.key_batch_stride,
                               m->packed.key_head_stride,
                               m->packed.value_batch_stride,
                               m->packed.value_head_stride,
                               m->o.batch_stride,
                               m->o.head_stride,
                               m->o.row_stride,
                               m->lse_stride[0],
                               m->lse_stride[1],
                               m->lse_stride[2]};
    clattn__stage_longs(plan, stage, strides, sizeof strides / sizeof *strides);
}

void clattn__assa_mixed_append(clattn__plan *plan, const clattn__target *target, const clattn__assa_mixed *m) {
    const clattn__tile *tile = &target->attention;
    const bool relu = clattn__given(m->mix), windows = m->window.side > 0;
    clattn__stage *stage = clattn__plan_kernel(plan, "assa", "assa_mixed");
    clattn__attention_shape(plan, stage, target, &m->sizes, m->q.type, m->o.type);
    clattn__stage_define(plan, stage, "RELU", relu);
    clattn__stage_define(plan, stage, "WINDOW", windows);
    clattn__stage_define(plan, stage, "ONE_BLOCK", windows && m->sizes.keys <= tile->bn);
    clattn__stage_define(plan, stage, "HAS_LSE", clattn__given(m->lse));
    if (tile->wg > 1 && clattn__given(m->lse))
        stage->local_bytes += sizeof(float) * (size_t)tile->bm;
    if (tile->wg > 1 && relu)
        stage->local_bytes += sizeof(float) * (size_t)(tile->bm * (tile->bn + 2));
    const clattn__operand operands[] = {m->q.at,  m->packed.keys, m->packed.values, m->o.at,         m->mix,
                                        m->table, m->lse,         m->key_lengths,   m->query_lengths};
    clattn__stage_operands(plan, stage, operands, sizeof operands / sizeof *operands);
    clattn__stage_int(plan, stage, (int32_t)m->sizes.queries);
    clattn__stage_int(plan, stage, (int32_t)m->sizes.keys);
    clattn__stage_int(plan, stage, (int32_t)(m->sizes.heads / m->sizes.kv_heads));
    clattn__stage_float(plan, stage, m->scale);
    clattn__stage_int(plan, stage, (int32_t)m->right);
    clattn__stage_int(plan, stage, m->bottom_right);
    add_window(plan, stage, &m->window);
    add_strides(plan, stage, m);
}

/* ---- checks ---- */

clattn_status clattn__assa_window_check(int64_t side, const int64_t grid[2], int64_t shift, clattn__assa_window *w,
                                        clattn__error *error) {
    static const char *const axes[2] = {"rows", "columns"};
    const bool whole = grid[0] == 0 && grid[1] == 0;
    *w = (clattn__assa_window){side, whole ? side : grid[0], whole ? side : grid[1], shift};
    clattn_status status = clattn__range_check("window", side, 0, MAX_SIDE, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (side == 0 && !whole)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "grid is %" PRId64 "x%" PRId64 ", but window is 0: the whole sequence", grid[0], grid[1]);
    if (shift < 0 || (shift > 0 && shift >= side))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "shift is %" PRId64 ", but must be at least 0 and below window, which is %" PRId64, shift,
                            side);
    for (int axis = 0; axis < 2 && side > 0; axis++) {
        const int64_t extent = axis ? w->columns : w->rows;
        if (extent < 1 || extent > INT32_MAX / 2 || extent % side != 0)
            return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                                "grid has %" PRId64 " %s, but must have a multiple of window, which is %" PRId64,
                                extent, axes[axis], side);
    }
    return CLATTN_SUCCESS;
}

clattn_status clattn__assa_length_check(const clattn__assa_window *w, int64_t length, clattn__error *error) {
    if (w->side > 0 && w->rows * w->columns != length)
        return clattn__fail(error, CLATTN_INVALID_SHAPE,
                            "grid %" PRId64 "x%" PRId64 " has %" PRId64 " tokens, but the sequence has %" PRId64,
                            w->rows, w->columns, w->rows * w->columns, length);
    return CLATTN_SUCCESS;
}
