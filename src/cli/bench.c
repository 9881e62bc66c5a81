/* clattn bench: how fast a layer or a core is here, once its output has been checked. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/command.h"

enum { LENGTHS_MAX = 64, LENGTH_LIMIT = 1 << 30 };

typedef struct arguments {
    const char *variant, *lengths, *device;
    int64_t batch, d, heads, repeat, seed, rank, kernel;
    double random; /* below 0: none */
    int dtype, gemm, direction, level;
    bool json, cold, paced, help;
} arguments;

/* In the order of the enums. */
static const char *const types[] = {"f32", "f16", "bf16", NULL};
static const char *const engines[] = {"auto", "clblast", "tile", NULL};
static const char *const directions[] = {"forward", "train", NULL};
static const char *const levels[] = {"layer", "core", NULL};

#define FIELD(name) offsetof(arguments, name)

static const option_row rows[] = {
    {"n", OPTION_TEXT, FIELD(lengths), NULL},
    {"batch", OPTION_COUNT, FIELD(batch), NULL},
    {"d", OPTION_COUNT, FIELD(d), NULL},
    {"heads", OPTION_COUNT, FIELD(heads), NULL},
    {"dtype", OPTION_CHOICE, FIELD(dtype), types},
    {"direction", OPTION_CHOICE, FIELD(direction), directions},
    {"level", OPTION_CHOICE, FIELD(level), levels},
    {"random", OPTION_SHARE, FIELD(random), NULL},
    {"seed", OPTION_WHOLE, FIELD(seed), NULL},
    {"rank", OPTION_COUNT, FIELD(rank), NULL},
    {"kernel", OPTION_COUNT, FIELD(kernel), NULL},
    {"repeat", OPTION_COUNT, FIELD(repeat), NULL},
    {"device", OPTION_TEXT, FIELD(device), NULL},
    {"gemm", OPTION_CHOICE, FIELD(gemm), engines},
    {"json", OPTION_FLAG, FIELD(json), NULL},
    {"cold", OPTION_FLAG, FIELD(cold), NULL},
    {"paced", OPTION_FLAG, FIELD(paced), NULL},
    {"help", OPTION_FLAG, FIELD(help), NULL},
    {0},
};

static const char help[] =
    "usage: clattn bench VARIANT [options]\n\n"
    "Time one layer, or its core, on seeded numbers. Before any time is printed the output is compared with\n"
    "float64, and gradients with the slope of the output. Variants: " CLI_VARIANTS ".\n\n"
    "  --n N[,N...]             tokens, default 1024; a row each\n"
    "  --batch B --d D --heads H  default 1, 512, 8\n"
    "  --dtype f32|f16|bf16     storage on the device, default f32\n"
    "  --direction forward|train  train: forward and backward, default forward\n"
    "  --level layer|core       default layer\n"
    "  --repeat R               runs; default at least 5 and about half a second\n"
    "  --cold                   flush the caches before each run\n"
    "  --json                   one object a line\n"
    "  --paced                  one row for each line that comes on the standard input, until its end\n"
    "  --seed S                 of weights, inputs and links, default 0\n"
    "  --device NAME-PART|P:D   see 'clattn devices'; else CLATTN_DEVICE, the first GPU, the first CPU\n"
    "  --gemm auto|clblast|tile   who multiplies matrices, default auto\n\n"
    "Where the variant has them:\n"
    "  --mode M --causal --k K --normalise selected|all --window S --grid HxW --shift T\n"
    "  --window-left N|none --window-right N|none --random P --scale-by head|model\n"
    "  --masked exclude|multiply --local S --scale X\n"
    "  --kernel K (taps of a convolution) --rank R (w of aft as factors)\n"
    "  A grid that is needed and not given is made of n, as square as it can be.\n";

/* Everything that a bench holds. */
typedef struct job {
    arguments a;
    settings settings;
    const bench_family *family;
    int64_t lengths[LENGTHS_MAX];
    size_t length_count;
    session session;
    bench_peak peak;
    int status; /* of the exit, should it fail */
} job;

/* ---- arguments ---- */

static bool read_lengths(job *j, failure *f) {
    const char *at = j->a.lengths;
    for (j->length_count = 0; j->length_count < LENGTHS_MAX; ++at) {
        char *end;
        errno = 0;
        long long n = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || errno || n < 1 || n > LENGTH_LIMIT) {
            break;
        }
        j->lengths[j->length_count++] = n;
        at = end;
        if (!*at) {
            return true;
        }
    }
    return fail_with(f, "--n is %s, but must be whole numbers of at least 1, separated by commas, at most %d of them",
                     quote(j->a.lengths).text, LENGTHS_MAX);
}

static bool check_arguments(job *j, failure *f) {
    const arguments *a = &j->a;
    if (!a->variant) {
        return fail_with(f, "no VARIANT is given; this build has: %s", CLI_VARIANTS);
    }
    j->family = bench_family_find(a->variant);
    if (!j->family) {
        return fail_with(f, "there is no variant %s; this build has: %s", quote(a->variant).text, CLI_VARIANTS);
    }
    if (a->random >= 0 && !j->family->links) {
        return fail_with(f, "%s takes no links: --random is for another variant", a->variant);
    }
    if (a->level == 1 && a->d % a->heads != 0) {
        return fail_with(f, "--heads is %" PRId64 ", but must divide --d %" PRId64, a->heads, a->d);
    }
    return read_lengths(j, f);
}

/* ---- a row ---- */

static bool print(job *j, const bench_subject *s, const bench_times *t, failure *f) {
    if (j->a.json) {
        return bench_print_json(s, t, &j->peak, f);
    }
    bench_print_row(s, t, &j->peak);
    return true;
}

static bool next_line(void) {
    int c;
    do {
        c = getchar();
    } while (c != EOF && c != '\n');
    return c == '\n';
}

static bool time_rows(job *j, bench_subject *s, failure *f) {
    bench_times times;
    if (!j->a.paced) {
        return bench_measure(s, j->a.repeat, j->a.cold, &times, f) && print(j, s, &times, f);
    }
    while (next_line()) {
        if (!bench_measure(s, j->a.repeat, j->a.cold, &times, f) || !print(j, s, &times, f)) {
            return false;
        }
    }
    return true;
}

/* The checked run warms up. */
static bool run_checked(job *j, bench_subject *s, failure *f) {
    return bench_subject_run(s, s->c->train, NULL, f) && bench_check(s, f) &&
           (!s->c->train || bench_check_gradients(s, f)) && time_rows(j, s, f);
}

static bool row(job *j, int64_t n, bool first, failure *f) {
    const arguments *a = &j->a;
    settings own = j->settings; /* a grid may be added for this n */
    char grid[64];
    bench_subject s = {0};
    bench_case c = {.family = j->family,
                    .n = n,
                    .batch = a->batch,
                    .d = a->d,
                    .heads = a->heads,
                    .dtype = (clattn_type)a->dtype,
                    .train = a->direction == 1,
                    .core = a->level == 1,
                    .random = a->random,
                    .seed = a->seed,
                    .rank = a->rank,
                    .taps = a->kernel};
    if (!bench_case_read(&c, &own, grid, sizeof grid, f)) {
        j->status = EXIT_USAGE;
        return false;
    }
    bool done = bench_subject_open(&s, &j->session, &c, f);
    j->status = !done && s.misused ? EXIT_USAGE : EXIT_WRONG;
    if (done && first && !a->json) {
        bench_print_head(&c, &j->session, &j->peak);
    }
    done = done && run_checked(j, &s, f);
    bench_subject_close(&s);
    return done;
}

/* ---- the command ---- */

static bool perform(job *j, failure *f) {
    if (!session_open(&j->session, j->a.device, (clattn_gemm)j->a.gemm, false, f) ||
        !bench_peak_measure(&j->session, &j->peak, f)) {
        return false;
    }
    for (size_t i = 0; i < j->length_count; ++i) {
        if (!row(j, j->lengths[i], i == 0, f)) {
            return false;
        }
    }
    return true;
}

int command_bench(int argc, char **argv) {
    job j = {.a = {.lengths = "1024", .batch = 1, .d = 512, .heads = 8, .random = -1}, .status = EXIT_WRONG};
    failure f = {0};
    const option_set set = {rows, &j.a, &j.settings, &j.a.variant, "VARIANT"};
    bool parsed = options_parse(argc, argv, &set, &f);
    if (parsed && j.a.help) {
        fputs(help, stdout);
        return EXIT_DONE;
    }
    if (!parsed || !check_arguments(&j, &f)) {
        return command_misused("bench", &f);
    }
    bool done = perform(&j, &f);
    int status = j.status;
    session_close(&j.session);
    return done ? EXIT_DONE : status == EXIT_USAGE ? command_misused("bench", &f) : command_failed(&f, status);
}
