/* A case's options as numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

#define CLATTN__VARIANT(name) extern const bench_family bench_family_##name;
#include "variants.inc"
#undef CLATTN__VARIANT

static const bench_family *const families[] = {
#define CLATTN__VARIANT(name) &bench_family_##name,
#include "variants.inc"
#undef CLATTN__VARIANT
};

const bench_family *bench_family_find(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof *families; ++i) {
        if (strcmp(families[i]->name, name) == 0) {
            return families[i];
        }
    }
    return NULL;
}

static const clattn_setting *find(const settings *kept, const char *name) {
    for (size_t i = 0; i < kept->count; ++i) {
        if (strcmp(kept->items[i].name, name) == 0) {
            return &kept->items[i];
        }
    }
    return NULL;
}

static bool is(const settings *kept, const char *name, const char *value) {
    const clattn_setting *s = find(kept, name);
    return s && (!value || strcmp(s->value, value) == 0);
}

/* "none" is -1. */
static int64_t whole(const settings *kept, const char *name, int64_t otherwise) {
    const clattn_setting *s = find(kept, name);
    return !s ? otherwise : strcmp(s->value, "none") == 0 ? -1 : strtoll(s->value, NULL, 10);
}

/* The most nearly square grid of n tokens whose sides are multiples of the window. */
static int64_t grid_height(int64_t n, int64_t window) {
    int64_t best = 0;
    for (int64_t h = window; h <= n / h; h += window) {
        if (n % h == 0 && n / h % window == 0) {
            best = h;
        }
    }
    return best;
}

/* Modes on images need a grid: where none is given, one is made of n. */
static bool complete_grid(bench_case *c, settings *kept, char *text, size_t size, failure *f) {
    const clattn_setting *given = find(kept, "grid");
    const int64_t window = c->window > 0 ? c->window : 1;
    const char *mode = c->family->modes ? c->family->modes[c->mode] : "";
    if (given) {
        if (sscanf(given->value, "%" SCNd64 "x%" SCNd64, &c->grid[0], &c->grid[1]) != 2) {
            return fail_with(f, "grid is %s, but must be HxW", quote(given->value).text);
        }
        return true;
    }
    if (c->window == 0 && strcmp(mode, "vit") != 0) {
        return true;
    }
    c->grid[0] = grid_height(c->n, window);
    if (c->grid[0] == 0) {
        return fail_with(f, "n is %" PRId64 ", which is no grid of windows of %" PRId64 " x %" PRId64 " tokens", c->n,
                         window, window);
    }
    c->grid[1] = c->n / c->grid[0];
    snprintf(text, size, "%" PRId64 "x%" PRId64, c->grid[0], c->grid[1]);
    kept->items[kept->count++] = (clattn_setting){"grid", text};
    return true;
}

static bool read_mode(bench_case *c, const settings *kept, failure *f) {
    const clattn_setting *given = find(kept, "mode");
    c->mode = 0;
    for (int i = 0; given && c->family->modes && c->family->modes[i]; ++i) {
        if (strcmp(c->family->modes[i], given->value) == 0) {
            c->mode = i;
            return true;
        }
    }
    return !given || fail_with(f, "%s has no mode %s", c->family->name, quote(given->value).text);
}

bool bench_case_read(bench_case *c, settings *kept, char *grid, size_t size, failure *f) {
    c->settings = kept;
    if (!read_mode(c, kept, f)) {
        return false;
    }
    const clattn_setting *scale = find(kept, "scale");
    c->scale = scale ? strtod(scale->value, NULL) : 0;
    c->causal = is(kept, "causal", NULL);
    c->all = is(kept, "normalise", "all");
    c->multiply = is(kept, "masked", "multiply");
    c->by_model = is(kept, "scale-by", "model");
    c->k = whole(kept, "k", 32);
    c->window = whole(kept, "window", 0);
    c->shift = whole(kept, "shift", 0);
    c->local = whole(kept, "local", 32);
    c->window_left = whole(kept, "window-left", 64);
    c->window_right = whole(kept, "window-right", 64);
    c->memory = 4;
    return complete_grid(c, kept, grid, size, f);
}

double bench_pairs(int64_t n, int64_t left, int64_t right, bool causal) {
    double pairs = 0;
    right = causal ? 0 : right;
    for (int64_t i = 0; i < n; ++i) {
        int64_t from = left < 0 || left > i ? 0 : i - left, to = right < 0 || right > n - 1 - i ? n - 1 : i + right;
        pairs += (double)(to - from + 1);
    }
    return pairs;
}

double bench_head_scale(const bench_case *c) {
    return c->scale != 0 ? c->scale : 1 / sqrt((double)c->d / (double)c->heads);
}
