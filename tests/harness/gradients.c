/* Gradients against differences of the references. */
#include "harness/gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/rng.h"
#include "harness/storage.h"

enum { SINGLES = 40, DIRECTIONS = 3 };

/* The loss of a case as a function of its tensors, which are moved in place. */
typedef struct loss {
    const layer_case *c;
    layer_data *data;
    const double *dy;
    double *y;
} loss;

static double loss_of(const loss *l) {
    const layer_run r = layer_run_of(l->c, l->data);
    expect_layer(l->c->variant, &l->data->settings, &r.ref, r.links, l->data->x, l->y);
    double sum = 0;
    for (size_t e = 0; e < (size_t)l->c->B * l->c->n * l->c->d; e++)
        sum += l->dy[e] * l->y[e];
    return sum;
}

/* Slope of the loss when values[e] moves by direction[e]. Five points: the error is h to the fourth power, which
 * matters where scores are large; and h is small, so that few bends of a relu lie between the points. */
static double slope(const loss *l, double *values, const double *direction, size_t count, double h) {
    static const double at[] = {-2, -1, 1, 2}, weight[] = {1.0 / 12, -2.0 / 3, 2.0 / 3, -1.0 / 12};
    double *kept = ref_array(count), sum = 0;
    memcpy(kept, values, count * sizeof(double));
    for (int point = 0; point < 4; point++) {
        for (size_t e = 0; e < count; e++)
            values[e] = kept[e] + at[point] * h * direction[e];
        sum += weight[point] * loss_of(l);
    }
    memcpy(values, kept, count * sizeof(double));
    free(kept);
    return sum / h;
}

static double slope_of_element(const loss *l, double *values, size_t element, double h) {
    static const double one = 1;
    return slope(l, values + element, &one, 1, h);
}

static double largest(const double *values, size_t count) {
    double most = 0;
    for (size_t e = 0; e < count; e++)
        most = fmax(most, fabs(values[e]));
    return most;
}

/* What is compared: the gradient less what was there before.
 * most   its largest magnitude
 * floor  a thousandth of the largest of all gradients: one that is zero by algebra is judged by this */
typedef struct tensor_check {
    const char *name;
    double *values; /* of the case */
    double *got;
    size_t count;
    double tolerance, step, most, floor;
} tensor_check;

static void compare(const tensor_check *t, const char *what, size_t element, double got, double want, double unit) {
    ck_assert_msg(isfinite(got), "%s: %s %zu is %g, wanted %.9g", t->name, what, element, got, want);
    ck_assert_msg(fabs(got - want) <= t->tolerance * fmax(unit, t->floor),
                  "%s: %s %zu of %zu is %.9g, wanted %.9g: error %.3g, tolerance %.3g of %.3g", t->name, what, element,
                  t->count, got, want, fabs(got - want), t->tolerance, fmax(unit, t->floor));
}

static void check_elements(const loss *l, const tensor_check *t, rng *r) {
    for (size_t i = 0; i < t->count && i < SINGLES; i++) {
        const size_t e = t->count <= SINGLES ? i : (size_t)rng_below(r, (int)t->count);
        if (isnan(t->values[e]))
            ck_assert_msg(t->got[e] == 0, "%s: element %zu is padding, its gradient %g", t->name, e, t->got[e]);
        else
            compare(t, "element", e, t->got[e], slope_of_element(l, t->values, e, t->step), t->most);
    }
}

static void check_directions(const loss *l, const tensor_check *t, rng *r) {
    double *direction = ref_array(t->count);
    for (int i = 0; i < DIRECTIONS && t->count > SINGLES; i++) {
        double got = 0;
        for (size_t e = 0; e < t->count; e++) {
            direction[e] = rng_below(r, 2) ? 1 : -1;
            got += direction[e] * t->got[e];
        }
        const double h = t->step / sqrt((double)t->count);
        compare(t, "direction", (size_t)i, got, slope(l, t->values, direction, t->count, h),
                t->most * sqrt((double)t->count));
    }
    free(direction);
}

static void check_tensor(const loss *l, tensor_check *t, rng *r) {
    t->most = largest(t->got, t->count);
    for (size_t e = 0; e < t->count; e++)
        ck_assert_msg(isfinite(t->got[e]), "%s: element %zu is %g", t->name, e, t->got[e]);
    check_elements(l, t, r);
    check_directions(l, t, r);
}

static double *case_weight(layer_data *data, const char *name) {
    for (size_t w = 0; w < data->weight_count; w++)
        if (strcmp(data->weights[w].name, name) == 0)
            return (double *)data->weights[w].data; /* the case's own */
    ck_abort_msg("the case has no weight %s", name);
    return NULL;
}

static double tolerance_of(const layer_case *c, clattn_type type) {
    return c->tolerance != 0 ? c->tolerance : type == CLATTN_F32 ? 1e-4 : type == CLATTN_F16 ? 8e-3 : 6e-2;
}

static void take_away(gradients *got, double before) {
    for (size_t w = 0; w < got->count; w++)
        for (size_t e = 0; e < got->weight_counts[w]; e++)
            got->weights[w][e] -= before;
}

static double floor_of(const gradients *got) {
    double most = largest(got->x, got->x_count);
    for (size_t w = 0; w < got->count; w++)
        most = fmax(most, largest(got->weights[w], got->weight_counts[w]));
    return 1e-3 * fmax(most, 1);
}

static void compare_all(const loss *l, const gradient_options *o, gradients *got, rng *r) {
    char name[400];
    const layer_case *c = l->c;
    const clattn_type coarse = o->grad_type > c->type ? o->grad_type : c->type;
    tensor_check t = {.name = name, .tolerance = tolerance_of(c, coarse), .step = 1e-5};
    take_away(got, o->before);
    t.floor = floor_of(got);
    for (size_t w = 0; w <= got->count; w++) {
        const bool is_x = w == got->count;
        if (!is_x && !got->weights[w])
            continue;
        t.got = is_x ? got->x : got->weights[w];
        t.count = is_x ? got->x_count : got->weight_counts[w];
        t.values = is_x ? l->data->x : case_weight(l->data, got->names[w]);
        snprintf(name, sizeof(name), "%s %s, B %d n %d d %d H %d, %s, gradient of %s", c->variant,
                 c->settings ? c->settings : "", c->B, c->n, c->d, c->H, clattn_type_name(c->type),
                 is_x ? "x" : got->names[w]);
        check_tensor(l, &t, r);
    }
}

void check_layer_gradients(const fixture *f, const layer_case *c, const gradient_options *options) {
    const gradient_options o = options ? *options : (gradient_options){0};
    const size_t count = (size_t)c->B * c->n * c->d;
    rng r = rng_make(c->seed + 77);
    layer_data data;
    layer_data_make(c, &data);
    double *dy = rng_array(&r, 1, count), *y = ref_array(count);
    storage_round(c->type, dy, count);
    const layer_run run = layer_run_of(c, &data);
    gradients got;
    run_gradients(f, &run, &o, data.x, dy, &got);
    const loss l = {.c = c, .data = &data, .dy = dy, .y = y};
    compare_all(&l, &o, &got, &r);
    gradients_free(&got);
    free(y);
    free(dy);
    layer_data_free(&data);
}

void check_gradient_storage(const fixture *f, const layer_case *c, const gradient_options *o) {
    rng r = rng_make(c->seed + 77);
    layer_data data;
    layer_data_make(c, &data);
    double *dy = rng_array(&r, 1, (size_t)c->B * c->n * c->d);
    storage_round(c->type, dy, (size_t)c->B * c->n * c->d);
    layer_run run = layer_run_of(c, &data);
    gradients got, want;
    run_gradients(f, &run, o, data.x, dy, &got);
    run.weight_type = CLATTN_F32;
    run_gradients(f, &run, o, data.x, dy, &want);
    assert_same_gradients(&got, &want, "from that of the same weights in f32");
    gradients_free(&want);
    gradients_free(&got);
    free(dy);
    layer_data_free(&data);
}
