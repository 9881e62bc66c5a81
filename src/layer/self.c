/* The shared ends of self-attention layers. */
#include "layer/self.h"

#include <inttypes.h>

#include "core/layout.h"

clattn_status clattn__self_check(int64_t model_size, int64_t heads, clattn__error *error) {
    clattn_status status = clattn__range_check("model size", model_size, 1, INT32_MAX, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__range_check("heads", heads, 1, INT32_MAX, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (model_size % heads != 0)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "heads is %" PRId64 ", which does not divide the model size %" PRId64, heads, model_size);
    const clattn__sizes sizes = {.head_size = model_size / heads, .value_size = model_size / heads};
    return clattn__head_sizes_check(&sizes, error);
}

void clattn__weight_bind(clattn__plan *plan, int slot, const char *name, int64_t rows, int64_t columns) {
    const int64_t shape[] = {rows, columns};
    const clattn_tensor layout = clattn_tensor_make(NULL, CLATTN_F32, columns > 0 ? 2 : 1, shape);
    clattn__plan_bind(plan, slot, name, &layout, false);
}

void clattn__self_load(clattn__load *load, const clattn__target *target, int index, const clattn__linear *linear,
                       const clattn__operand *weights, const clattn__operand *biases) {
    load->resident_bytes[index] = clattn__linear_bytes(linear, target);
    if (load->resident_count <= index)
        load->resident_count = index + 1;
    clattn__linear_load(&load->plan, target, linear, weights, biases, clattn__resident(index));
}

static clattn__linear_call project_x(int64_t d, const clattn_layer_shape *shape) {
    return (clattn__linear_call){.linear = {.in = d, .out = d, .sections = 3, .bias = true},
                                 .batch = shape->batch,
                                 .rows = shape->length,
                                 .x = {CLATTN_LAYER_X, 0},
                                 .x_type = shape->type,
                                 .x_batch_stride = shape->length * d,
                                 .x_row_stride = d,
                                 .resident = clattn__resident(CLATTN__RESIDENT_QKV)};
}

/* Padded rows, as attention reads values. */
static clattn__linear_out as_rows(const clattn__self *self, const clattn__target *target, clattn__operand to) {
    return (clattn__linear_out){.to = to,
                                .head_size = self->sizes.value_size,
                                .batch_stride = self->packed.value_batch_stride,
                                .head_stride = self->packed.value_head_stride,
                                .row_stride = clattn__padded_row(target, self->sizes.value_size)};
}

static clattn__linear_out as_panels(const clattn__self *self) {
    return (clattn__linear_out){.form = CLATTN__PANELS,
                                .to = self->packed.keys,
                                .head_size = self->sizes.head_size,
                                .batch_stride = self->packed.key_batch_stride,
                                .head_stride = self->packed.key_head_stride};
}

static clattn__self unplaced(int64_t d, int64_t heads, const clattn_layer_shape *shape) {
    const int64_t n = shape->length, dh = d / heads;
    return (clattn__self){.sizes = {shape->batch, heads, heads, n, n, dh, dh},
                          .lse = clattn__none(),
                          .key_rows = clattn__none(),
                          .lengths = clattn__slot_if(shape->has_lengths, CLATTN_LAYER_LENGTHS)};
}

clattn__self clattn__self_saved(clattn__plan *plan, int64_t d, int64_t heads, const clattn_layer_shape *shape) {
    const int64_t n = shape->length, dh = d / heads;
    clattn__self self = unplaced(d, heads, shape);
    const clattn__operand qkv = clattn__plan_save(plan, CLATTN_LAYER_SAVED, shape->batch * n * 3 * d);
    clattn__view *const views[] = {&self.q, &self.k, &self.v};
    for (int i = 0; i < 3; i++)
        *views[i] = (clattn__view){{qkv.slot, qkv.offset + i * d}, CLATTN_F32, n * 3 * d, dh, 3 * d};
    self.o =
        (clattn__view){clattn__plan_save(plan, CLATTN_LAYER_SAVED, shape->batch * n * d), CLATTN_F32, n * d, dh, d};
    self.lse = clattn__plan_save(plan, CLATTN_LAYER_SAVED, shape->batch * heads * n);
    return self;
}

/* Into what is saved, side by side, and packed from there. */
static clattn__self project_saved(clattn__plan *plan, const clattn__target *target, int64_t d, int64_t heads,
                                  const clattn_layer_shape *shape, bool want_key_rows) {
    clattn__self self = clattn__self_saved(plan, d, heads, shape);
    clattn__linear_call call = project_x(d, shape);
    const clattn__view *const views[] = {&self.q, &self.k, &self.v};
    for (int i = 0; i < 3; i++) {
        call.out[i] = clattn__out_rows(views[i]->at, shape->length, d);
        call.out[i].batch_stride = views[i]->batch_stride;
        call.out[i].row_stride = views[i]->row_stride;
    }
    clattn__linear_apply(plan, target, &call);
    self.packed = clattn__packed_reserve(plan, target, &self.sizes);
    clattn__packed_keys(plan, target, &self.sizes, &self.k, &self.packed);
    clattn__packed_values(plan, target, &self.sizes, &self.v, &self.packed);
    if (want_key_rows) {
        clattn__packed rows = self.packed;
        rows.values = self.key_rows = clattn__plan_scratch(plan, self.packed.value_batch_stride * shape->batch);
        clattn__packed_values(plan, target, &self.sizes, &self.k, &rows);
    }
    return self;
}

static clattn__self project_packed(clattn__plan *plan, const clattn__target *target, int64_t d, int64_t heads,
                                   const clattn_layer_shape *shape, bool want_key_rows) {
    const int64_t n = shape->length, dh = d / heads;
    clattn__self self = unplaced(d, heads, shape);
    self.q = (clattn__view){clattn__plan_scratch(plan, shape->batch * n * d), CLATTN_F32, n * d, dh, d};
    self.o = (clattn__view){clattn__plan_scratch(plan, shape->batch * n * d), CLATTN_F32, n * d, dh, d};
    self.packed = clattn__packed_reserve(plan, target, &self.sizes);
    if (want_key_rows)
        self.key_rows = clattn__plan_scratch(plan, self.packed.value_batch_stride * shape->batch);
    clattn__linear_call call = project_x(d, shape);
    call.out[0] = clattn__out_rows(self.q.at, n, d);
    call.out[1] = want_key_rows ? as_rows(&self, target, self.key_rows) : as_panels(&self);
    call.out[2] = as_rows(&self, target, self.packed.values);
    clattn__linear_apply(plan, target, &call);
    if (want_key_rows) {
        const clattn__view rows = {self.key_rows, CLATTN_F32, call.out[1].batch_stride, call.out[1].head_stride,
                                   call.out[1].row_stride};
        clattn__packed_keys(plan, target, &self.sizes, &rows, &self.packed);
    }
    return self;
}

clattn__self clattn__self_project(clattn__plan *plan, const clattn__target *target, int64_t d, int64_t heads,
                                  const clattn_layer_shape *shape, bool want_key_rows) {
    return shape->train ? project_saved(plan, target, d, heads, shape, want_key_rows)
                        : project_packed(plan, target, d, heads, shape, want_key_rows);
}

void clattn__self_output(clattn__plan *plan, const clattn__target *target, int64_t d, const clattn_layer_shape *shape,
                         clattn__operand o) {
    clattn__linear_call call = {.linear = {.in = d, .out = d, .sections = 1, .bias = true},
                                .batch = shape->batch,
                                .rows = shape->length,
                                .x = o,
                                .x_batch_stride = shape->length * d,
                                .x_row_stride = d,
                                .resident = clattn__resident(CLATTN__RESIDENT_OUT)};
    call.out[0] = clattn__out_rows(clattn__slot(CLATTN_LAYER_Y), shape->length, d);
    call.out[0].type = shape->type;
    clattn__linear_apply(plan, target, &call);
}
