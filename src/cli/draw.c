/* clattn links: draw the links that 'clattn run cjar --random P --seed S' would draw, into a file. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <clattn/cjar.h>

#include "cli/command.h"
#include "cli/npy.h"
#include "cli/options.h"

typedef struct arguments {
    int64_t n, left, right, seed;
    double random;
    const char *output;
    bool help;
} arguments;

enum { MISSING = -2, DEFAULT_WINDOW = 64 };

static const option_row rows[] = {
    {"n", OPTION_WHOLE, offsetof(arguments, n), NULL},
    {"window-left", OPTION_LIMIT, offsetof(arguments, left), NULL},
    {"window-right", OPTION_LIMIT, offsetof(arguments, right), NULL},
    {"random", OPTION_SHARE, offsetof(arguments, random), NULL},
    {"seed", OPTION_WHOLE, offsetof(arguments, seed), NULL},
    {"output", OPTION_TEXT, offsetof(arguments, output), NULL},
    {"help", OPTION_FLAG, offsetof(arguments, help), NULL},
    {0},
};

static const char help[] =
    "usage: clattn links --n N --random P --output L.npy [--window-left L] [--window-right R] [--seed S]\n\n"
    "Draw pairs (query, key) of N tokens, each outside the window with probability P, as 'clattn run' does with the\n"
    "same options. L.npy is written as int32 [m, 2], by query, then by key.\n\n"
    "  --window-left L|none    keys before the query that the window holds, default 64\n"
    "  --window-right R|none   keys behind it, default 64\n"
    "  --seed S                default 0; the same on every machine\n";

static bool check_arguments(const arguments *a, failure *f) {
    const char *missing = a->n == MISSING ? "n" : a->random < 0 ? "random" : !a->output ? "output" : NULL;
    if (missing) {
        return fail_with(f, "--%s is missing", missing);
    }
    return a->n <= INT32_MAX || fail_with(f, "--n is %" PRId64 ", but must be at most %d", a->n, INT32_MAX);
}

static void list_pairs(const clattn_links *links, int32_t *pairs) {
    for (int64_t i = 0; i < links->length; ++i) {
        for (int64_t at = links->starts[i]; at < links->starts[i + 1]; ++at) {
            pairs[2 * at] = (int32_t)i;
            pairs[2 * at + 1] = links->keys[at];
        }
    }
}

static bool write_pairs(const arguments *a, const clattn_links *links, failure *f) {
    const int64_t shape[] = {links->count, 2};
    outputs set = {0};
    int32_t *pairs = malloc((size_t)links->count * sizeof *pairs * 2 + 1);
    if (!pairs) {
        return fail_with(f, "no memory for %" PRId64 " links", links->count);
    }
    list_pairs(links, pairs);
    bool done = npy_write_i32(&set, a->output, 2, shape, pairs, f);
    free(pairs);
    if (done) {
        return outputs_commit(&set, f);
    }
    outputs_discard(&set);
    return false;
}

static bool perform(const arguments *a, failure *f) {
    clattn_links links = {0};
    clattn_status status = clattn_links_draw(a->n, a->left, a->right, a->random, (uint64_t)a->seed, &links);
    bool done = status == CLATTN_SUCCESS ? write_pairs(a, &links, f)
                                         : fail_with(f, "no links were drawn: %s", clattn_status_message(status));
    clattn_links_finish(&links);
    return done;
}

int command_links(int argc, char **argv) {
    arguments a = {.n = MISSING, .left = DEFAULT_WINDOW, .right = DEFAULT_WINDOW, .random = -1};
    failure f = {0};
    bool parsed = options_parse(argc, argv, &(option_set){.rows = rows, .to = &a}, &f);
    if (parsed && a.help) {
        fputs(help, stdout);
        return EXIT_DONE;
    }
    if (!parsed || !check_arguments(&a, &f)) {
        return command_misused("links", &f);
    }
    return perform(&a, &f) ? EXIT_DONE : command_failed(&f, EXIT_WRONG);
}
