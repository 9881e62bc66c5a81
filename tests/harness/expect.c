#include "harness/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void settings_parse(const char *text, settings *s) {
    s->count = 0;
    snprintf(s->text, sizeof(s->text), "%s", text ? text : "");
    char *rest = NULL;
    for (char *word = strtok_r(s->text, " ", &rest); word && s->count < MAX_SETTINGS;
         word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        if (equals)
            *equals = '\0';
        s->items[s->count++] = (clattn_setting){.name = word, .value = equals ? equals + 1 : NULL};
    }
}

const char *settings_get(const settings *s, const char *name, const char *fallback) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->items[i].name, name) == 0)
            return s->items[i].value ? s->items[i].value : "";
    return fallback;
}

int settings_int(const settings *s, const char *name, int fallback) {
    const char *value = settings_get(s, name, NULL);
    if (!value)
        return fallback;
    return strcmp(value, "none") == 0 ? -1 : atoi(value);
}

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

const char *settings_mode(const settings *s, const char *variant) {
    const char *fallback = is(variant, "assa")  ? "topk"
                           : is(variant, "cas") ? "additive"
                           : is(variant, "aft") ? "gated"
                                                : "";
    return settings_get(s, "mode", fallback);
}

/* ---- one function a family ---- */

static void expect_dense(const settings *s, const ref_layer *l, const double *x, double *y) {
    ref_dense_layer(l, atof(settings_get(s, "scale", "0")), settings_int(s, "window-left", -1),
                    settings_int(s, "window-right", -1), x, y);
}

static void grid_of(const settings *s, int window, int grid[2]) {
    grid[0] = grid[1] = window;
    const char *text = settings_get(s, "grid", NULL);
    if (text && sscanf(text, "%dx%d", &grid[0], &grid[1]) != 2)
        abort();
}

static void expect_assa(const settings *s, const char *mode, const ref_layer *l, const double *x, double *y) {
    if (is(mode, "topk")) {
        ref_normalise normalise = is(settings_get(s, "normalise", "selected"), "all") ? REF_ALL : REF_SELECTED;
        ref_assa_topk_layer(l, settings_int(s, "k", 32), normalise, x, y);
        return;
    }
    int grid[2], window = settings_int(s, "window", 0);
    grid_of(s, window, grid);
    ref_assa_adaptive_layer(l, grid[0], grid[1], window, settings_int(s, "shift", 0), x, y);
}

static void expect_cas(const settings *s, const char *mode, const ref_layer *l, const double *x, double *y) {
    int grid[2];
    grid_of(s, 0, grid);
    if (is(mode, "vit"))
        ref_cas_vit_layer(l, grid[0], grid[1], x, y);
    else
        ref_cas_additive_layer(l, x, y);
}

static void expect_cjar(const settings *s, const ref_layer *l, const ref_links *links, const double *x, double *y) {
    ref_cjar_options options = {
        .window_left = settings_int(s, "window-left", 64),
        .window_right = settings_int(s, "window-right", 64),
        .scale_by = is(settings_get(s, "scale-by", "head"), "model") ? REF_BY_MODEL : REF_BY_HEAD,
        .masked = is(settings_get(s, "masked", "exclude"), "multiply") ? REF_MULTIPLY : REF_EXCLUDE,
    };
    if (links)
        options.links = *links;
    ref_cjar_layer(l, &options, x, y);
}

static void expect_aft(const settings *s, const char *mode, const ref_layer *l, const double *x, double *y) {
    static const char *const modes[] = {"gated", "gated-matrix", "full", "local", "simple", "conv"};
    for (int m = 0; m < 6; m++)
        if (is(mode, modes[m]))
            ref_aft_layer(l, (ref_aft_mode)m, settings_int(s, "local", 32), x, y);
}

void expect_layer(const char *variant, const settings *s, const ref_layer *layer, const ref_links *links,
                  const double *x, double *y) {
    const char *mode = settings_mode(s, variant);
    ref_layer l = *layer;
    l.causal = settings_get(s, "causal", NULL) != NULL;
    if (is(variant, "dense"))
        expect_dense(s, &l, x, y);
    else if (is(variant, "assa"))
        expect_assa(s, mode, &l, x, y);
    else if (is(variant, "cas"))
        expect_cas(s, mode, &l, x, y);
    else if (is(variant, "cjar"))
        expect_cjar(s, &l, links, x, y);
    else
        expect_aft(s, mode, &l, x, y);
}
