#include "harness/layer_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/close.h"
#include "harness/layer_weights.h"
#include "harness/storage.h"

static void draw_input(const layer_case *c, rng *r, layer_data *data) {
    size_t count = (size_t)c->B * c->n * c->d;
    data->x = rng_array(r, c->spread != 0 ? c->spread : 1, count);
    storage_round(c->type, data->x, count);
    for (size_t e = 0; e < count && c->lengths && c->padding_nan; e++) {
        int row = (int)(e / c->d);
        if (row % c->n >= c->lengths[row / c->n])
            data->x[e] = NAN;
    }
}

/* About c->links pairs: each cell of the n×n table with the same chance, rows sorted. */
static void draw_links(const layer_case *c, rng *r, layer_data *data) {
    double chance = (double)c->links / ((double)c->n * c->n);
    long count = 0;
    data->link_rows = calloc((size_t)c->n + 1, sizeof(long));
    data->link_keys = calloc((size_t)c->n * c->n, sizeof(int));
    ck_assert(data->link_rows && data->link_keys);
    for (int i = 0; i < c->n; i++) {
        for (int j = 0; j < c->n; j++)
            if (rng_uniform(r, 0, 1) < chance)
                data->link_keys[count++] = j;
        data->link_rows[i + 1] = count;
    }
    data->links = (ref_links){.rows = data->link_rows, .keys = data->link_keys};
}

void layer_data_make(const layer_case *c, layer_data *data) {
    rng r = rng_make(c->seed);
    *data = (layer_data){0};
    settings_parse(c->settings, &data->settings);
    layer_weights_make(c, &r, data);
    for (size_t w = 0; w < data->weight_count; w++)
        storage_round(c->weight_type, (double *)data->weights[w].data, weight_elements(&data->weights[w]));
    draw_input(c, &r, data);
    if (c->links)
        draw_links(c, &r, data);
}

void layer_data_free(layer_data *data) {
    for (size_t w = 0; w < data->weight_count; w++)
        free((void *)data->weights[w].data);
    free(data->x);
    free(data->link_rows);
    free(data->link_keys);
}

layer_run layer_run_of(const layer_case *c, const layer_data *data) {
    return (layer_run){.variant = c->variant,
                       .settings = &data->settings,
                       .ref = {.B = c->B,
                               .n = c->n,
                               .d = c->d,
                               .H = c->H,
                               .lengths = c->lengths,
                               .weights = data->weights,
                               .weight_count = data->weight_count},
                       .type = c->type,
                       .weight_type = c->weight_type,
                       .links = data->link_rows ? &data->links : NULL};
}

void check_layer_case(const fixture *f, const layer_case *c) {
    char name[256];
    layer_data data;
    layer_data_make(c, &data);
    layer_run r = layer_run_of(c, &data);
    size_t count = (size_t)c->B * c->n * c->d;
    double *got = ref_array(count), *want = ref_array(count);
    expect_layer(c->variant, &data.settings, &r.ref, r.links, data.x, want);
    run_layer(f, &r, data.x, got);
    snprintf(name, sizeof(name), "%s %s, B %d n %d d %d H %d, %s", c->variant, c->settings ? c->settings : "", c->B,
             c->n, c->d, c->H, clattn_type_name(c->type));
    assert_close(name, got, want, count, c->tolerance != 0 ? c->tolerance : storage_tolerance(c->type));
    free(want);
    free(got);
    layer_data_free(&data);
}

/* changed: what the weights differ in from the case's own, for the sentence. */
static void compare_storage(const fixture *f, const layer_case *c, const layer_data *data, const char *changed) {
    const size_t count = (size_t)c->B * c->n * c->d;
    layer_run r = layer_run_of(c, data);
    double *got = ref_array(count), *want = ref_array(count);
    run_layer(f, &r, data->x, got);
    r.weight_type = CLATTN_F32;
    run_layer(f, &r, data->x, want);
    for (size_t e = 0; e < count; e++)
        ck_assert_msg(got[e] == want[e] || (isnan(got[e]) && isnan(want[e])),
                      "%s %s, weights in %s%s: element %zu is %.9g, but %.9g from the same weights in f32", c->variant,
                      c->settings, clattn_type_name(c->weight_type), changed, e, got[e], want[e]);
    free(want);
    free(got);
}

void check_weight_storage(const fixture *f, const layer_case *c) {
    layer_data data;
    layer_data_make(c, &data);
    compare_storage(f, c, &data, "");
    for (size_t w = 0; w < data.weight_count; w++) {
        char changed[160];
        double *last = (double *)data.weights[w].data + weight_elements(&data.weights[w]) - 1, kept = *last;
        *last = w % 2 ? NAN : -INFINITY;
        snprintf(changed, sizeof(changed), ", %s ending with %g", data.weights[w].name, *last);
        compare_storage(f, c, &data, changed);
        *last = kept;
    }
    layer_data_free(&data);
}
