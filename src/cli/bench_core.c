/* A core's seeded tensors on the device. */
#include <string.h>

#include "cli/bench.h"
#include "cli/clock.h"

/* [B, H, n, columns] over memory [B, n, H, columns], or in the memory's own order. */
static void order(const bench_case *c, int64_t columns, bool token_major, int64_t *shape, int64_t *stride) {
    const int64_t heads = c->heads;
    const int64_t by_head[] = {c->batch, heads, c->n, columns}, by_token[] = {c->batch, c->n, heads, columns};
    const int64_t apart[] = {c->n * heads * columns, columns, heads * columns, 1};
    const int64_t dense[] = {c->n * heads * columns, heads * columns, columns, 1};
    memcpy(shape, token_major ? by_token : by_head, sizeof by_head);
    memcpy(stride, token_major ? dense : apart, sizeof apart);
}

static bool input(bench_subject *s, const bench_core_slots *slots, size_t i, failure *f) {
    static const char *const names[BENCH_INPUTS] = {"q", "k", "v"};
    const bench_case *c = s->c;
    const int64_t columns = i == 1 && slots->key_columns > 0 ? slots->key_columns : c->d / c->heads;
    const int64_t own[] = {c->batch, c->n, c->heads, columns};
    int64_t shape[4], stride[4];
    order(c, columns, slots->token_major, shape, stride);
    bench_array *a = &s->inputs[i];
    s->input_slots[i] = slots->inputs[i];
    s->input_grad_slots[i] = slots->input_grads[i];
    s->input_count = i + 1;
    return bench_array_make(a, names[i], c->dtype, 4, own, c->seed, BENCH_STREAM_INPUT + i, 1, 0, f) &&
           bench_tensor(s, slots->inputs[i], a->name, c->dtype, 4, shape, stride, a->values, f) &&
           (!c->train || bench_tensor(s, slots->input_grads[i], a->name, c->dtype, 4, shape, stride, NULL, f));
}

static bool output(bench_subject *s, const bench_core_slots *slots, failure *f) {
    const bench_case *c = s->c;
    int64_t shape[4], stride[4];
    order(c, c->d / c->heads, slots->token_major, shape, stride);
    s->output_slot = slots->output;
    return bench_tensor(s, slots->output, "the output", c->dtype, 4, shape, stride, NULL, f) &&
           (!c->train || bench_grad_y(s, slots->output_grad, 4, shape, stride, f));
}

bool bench_core_tensors(bench_subject *s, const bench_core_slots *slots, failure *f) {
    s->slots = slots->count;
    s->saved_slot = slots->saved;
    return input(s, slots, 0, f) && input(s, slots, 1, f) && input(s, slots, 2, f) && output(s, slots, f);
}

bool bench_core_weight(bench_subject *s, size_t slot, size_t grad_slot, const clattn_weight_info *info,
                       const clattn_tensor *seen, failure *f) {
    const size_t i = s->weight_count;
    bench_array *w = &s->weights[i];
    if (!bench_weight_make(w, info, s->c->seed, i, f)) {
        return false;
    }
    const clattn_tensor plain = clattn_tensor_make(NULL, CLATTN_F32, w->rank, w->shape), *t = seen ? seen : &plain;
    w->trainable = true;
    s->weight_slots[i] = slot;
    s->weight_grad_slots[i] = grad_slot;
    s->weight_count++;
    return bench_tensor(s, slot, w->name, CLATTN_F32, t->rank, t->shape, t->stride, w->values, f) &&
           (!s->c->train || bench_tensor(s, grad_slot, w->name, CLATTN_F32, t->rank, t->shape, t->stride, NULL, f));
}

bool bench_core_planned(bench_subject *s, clattn_status status, double started, failure *f) {
    s->compile_ms = clock_ms() - started;
    if (status != CLATTN_SUCCESS) {
        return session_failed(s->session, s->c->family->name, status, f);
    }
    return clattn_plan_saved_count(s->plan) == 0 || bench_saved(s, f);
}
