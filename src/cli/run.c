/* clattn run: one layer, from files to files. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/arrays.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/links.h"
#include "cli/options.h"
#include "cli/weights.h"

typedef struct arguments {
    const char *variant;
    int64_t heads, repeat, seed;
    double random; /* below 0: none */
    const char *weights, *input, *output, *lengths, *links;
    const char *grad_output, *grad_input, *grad_weights;
    const char *device;
    int dtype; /* clattn_type */
    int gemm;  /* clattn_gemm */
    bool profile, quiet, help;
} arguments;

/* In the order of the enums. */
static const char *const types[] = {"f32", "f16", "bf16", NULL};
static const char *const engines[] = {"auto", "clblast", "tile", NULL};

#define FIELD(name) offsetof(arguments, name)

static const option_row rows[] = {
    {"heads", OPTION_COUNT, FIELD(heads), NULL},
    {"weights", OPTION_TEXT, FIELD(weights), NULL},
    {"input", OPTION_TEXT, FIELD(input), NULL},
    {"output", OPTION_TEXT, FIELD(output), NULL},
    {"lengths", OPTION_TEXT, FIELD(lengths), NULL},
    {"links", OPTION_TEXT, FIELD(links), NULL},
    {"random", OPTION_SHARE, FIELD(random), NULL},
    {"seed", OPTION_WHOLE, FIELD(seed), NULL},
    {"grad-output", OPTION_TEXT, FIELD(grad_output), NULL},
    {"grad-input", OPTION_TEXT, FIELD(grad_input), NULL},
    {"grad-weights", OPTION_TEXT, FIELD(grad_weights), NULL},
    {"device", OPTION_TEXT, FIELD(device), NULL},
    {"dtype", OPTION_CHOICE, FIELD(dtype), types},
    {"gemm", OPTION_CHOICE, FIELD(gemm), engines},
    {"repeat", OPTION_COUNT, FIELD(repeat), NULL},
    {"profile", OPTION_FLAG, FIELD(profile), NULL},
    {"quiet", OPTION_FLAG, FIELD(quiet), NULL},
    {"help", OPTION_FLAG, FIELD(help), NULL},
    {0},
};

static const char help[] =
    "usage: clattn run VARIANT --heads H --weights W.safetensors --input X.npy --output Y.npy [options]\n\n"
    "Run one layer, y = layer(x), on one device. X.npy is [batch, length, model size] of float16, float32 or\n"
    "float64, C or Fortran order; Y.npy is written as float32. Variants: " CLI_VARIANTS ".\n\n"
    "  --lengths L.npy         [batch] whole numbers: tokens at and past them are padding\n"
    "  --dtype f32|f16|bf16    storage on the device, default f32\n"
    "  --device NAME-PART|P:D  see 'clattn devices'; else CLATTN_DEVICE, the first GPU, the first CPU\n"
    "  --gemm auto|clblast|tile  who multiplies matrices, default auto\n"
    "  --repeat R              run R times and print the least and the median time\n"
    "  --profile               print the device's own time too\n"
    "  --quiet                 print nothing but errors\n\n"
    "Where the variant has them:\n"
    "  --mode M --causal --k K --normalise selected|all --window S --grid HxW --shift T\n"
    "  --window-left N|none --window-right N|none --links PAIRS.npy --random P --seed S --scale-by head|model\n"
    "  --masked exclude|multiply --local S --scale X\n\n"
    "Gradients, of the sum of y * dy; DY.npy is read as X.npy, both outputs are written as float32:\n"
    "  --grad-output DY.npy    dy, the gradient of the output; needs one of the two below at least\n"
    "  --grad-input DX.npy     the gradient of x, 0 at padding\n"
    "  --grad-weights DW.safetensors  those of the weights, under their names and shapes\n";

/* Everything that a run holds. */
typedef struct job {
    arguments a;
    settings settings;
    session session;
    npy_array x, dy;
    clattn_links links;
    int32_t *lengths;
    safetensors *weights;
    clattn_layer *layer;
    clattn_plan *plan;
    float *y;
    gradients gradients;
    int status;                                    /* of the exit, should the run fail */
    double start, ready_ms, loaded_ms, planned_ms; /* clock readings */
    compute_times times;
} job;

/* ---- arguments ---- */

static bool known_variant(const char *name) {
    const char *at = CLI_VARIANTS;
    for (size_t length; *at; at += length + strspn(at + length, ", ")) {
        length = strcspn(at, ",");
        if (length == strlen(name) && strncmp(at, name, length) == 0) {
            return true;
        }
    }
    return false;
}

static bool check_gradients(const arguments *a, failure *f) {
    if (!a->grad_output && (a->grad_input || a->grad_weights)) {
        return fail_with(f, "--grad-output is missing: --grad-%s needs it", a->grad_input ? "input" : "weights");
    }
    return !a->grad_output || a->grad_input || a->grad_weights ||
           fail_with(f, "--grad-output needs --grad-input, --grad-weights or both");
}

static bool check_arguments(const arguments *a, failure *f) {
    if (!a->variant) {
        return fail_with(f, "no VARIANT is given; this build has: %s", CLI_VARIANTS);
    }
    if (!known_variant(a->variant)) {
        return fail_with(f, "there is no variant %s; this build has: %s", quote(a->variant).text, CLI_VARIANTS);
    }
    const char *missing = a->heads == 0 ? "heads"
                          : !a->weights ? "weights"
                          : !a->input   ? "input"
                          : !a->output  ? "output"
                                        : NULL;
    if (missing) {
        return fail_with(f, "--%s is missing", missing);
    }
    if (a->links && a->random >= 0) {
        return fail_with(f, "--links and --random exclude each other");
    }
    return check_gradients(a, f);
}

/* ---- files ---- */

/* A path that cannot be written is told before the work, not after it: begin the output, and drop it. Pipes and
 * devices would notice, and are left alone. */
static bool check_output(const char *path, failure *f) {
    struct stat info;
    outputs trial = {0};
    FILE *stream;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        return true;
    }
    bool done = outputs_begin(&trial, path, &stream, f);
    outputs_discard(&trial);
    return done;
}

static bool check_outputs(const arguments *a, failure *f) {
    return check_output(a->output, f) && (!a->grad_input || check_output(a->grad_input, f)) &&
           (!a->grad_weights || check_output(a->grad_weights, f));
}

static bool read_files(job *j, failure *f) {
    const arguments *a = &j->a;
    return check_outputs(a, f) && read_input(a->input, &j->x, f) &&
           (!a->lengths || read_lengths(a->lengths, j->x.shape[0], j->x.shape[1], &j->lengths, f)) &&
           (!a->grad_output || read_gradient(a->grad_output, &j->x, &j->dy, f)) &&
           safetensors_open(a->weights, &j->weights, f);
}

static bool write_outputs(const job *j, failure *f) {
    const arguments *a = &j->a;
    outputs set = {0};
    bool done = npy_write_f32(&set, a->output, j->x.rank, j->x.shape, j->y, f) &&
                (!a->grad_input || npy_write_f32(&set, a->grad_input, j->x.rank, j->x.shape, j->gradients.x, f)) &&
                (!a->grad_weights || gradients_write(&set, a->grad_weights, &j->gradients, j->layer, f));
    if (done) {
        return outputs_commit(&set, f);
    }
    outputs_discard(&set);
    return false;
}

/* ---- the layer ---- */

static clattn_status try_layer(job *j, const clattn_weight_info *infos, size_t count) {
    return clattn_layer_from_settings(j->session.context, j->a.variant, j->x.shape[2], j->a.heads, j->settings.items,
                                      j->settings.count, infos, count, &j->layer);
}

/* A mistake that stays without the checkpoint is the user's; else the checkpoint's shapes made it. */
static bool blame(job *j, clattn_status status, failure *f) {
    session_failed(&j->session, j->a.variant, status, f);
    bool mistake = status > 0 && status < CLATTN_UNSUPPORTED;
    j->status = mistake && try_layer(j, NULL, 0) != CLATTN_SUCCESS ? EXIT_USAGE : EXIT_WRONG;
    return false;
}

static bool make_layer(job *j, failure *f) {
    clattn_weight_info *infos;
    size_t count;
    if (!weights_list(j->weights, &infos, &count, f)) {
        return false;
    }
    clattn_status status = try_layer(j, infos, count);
    free(infos);
    return status == CLATTN_SUCCESS ? true : blame(j, status, f);
}

/* An option that does nothing would be worse than an error: ask the library before there are any links. */
static bool takes_links(job *j, failure *f) {
    const clattn_layer_shape trial = {.links = 1};
    clattn_plan *plan;
    clattn_status status = clattn_layer_plan(j->layer, &trial, &plan);
    clattn_plan_destroy(plan);
    if (status == CLATTN_UNSUPPORTED) {
        j->status = EXIT_USAGE;
        return fail_with(f, "--links and --random are for another variant: %s takes no links", j->a.variant);
    }
    return status == CLATTN_SUCCESS || session_failed(&j->session, j->a.variant, status, f);
}

/* After the layer, which has checked the window's settings. */
static bool make_links(job *j, failure *f) {
    const arguments *a = &j->a;
    if (!a->links && a->random < 0) {
        return true;
    }
    return takes_links(j, f) && (a->links ? links_read(a->links, j->x.shape[1], &j->links, f)
                                          : links_draw(&j->settings, j->x.shape[1], a->random, a->seed, &j->links, f));
}

static clattn_layer_shape shape_of(const job *j) {
    return (clattn_layer_shape){.batch = j->x.shape[0],
                                .length = j->x.shape[1],
                                .type = (clattn_type)j->a.dtype,
                                .has_lengths = j->lengths,
                                .links = j->links.count,
                                .train = j->a.grad_output};
}

static bool make_plan(job *j, failure *f) {
    const clattn_layer_shape shape = shape_of(j);
    clattn_status status = clattn_layer_plan(j->layer, &shape, &j->plan);
    return status == CLATTN_SUCCESS || session_failed(&j->session, j->a.variant, status, f);
}

static bool compute(job *j, failure *f) {
    size_t bytes = (size_t)j->x.count * sizeof(float);
    j->y = malloc(bytes > 0 ? bytes : 1);
    if (!j->y) {
        return fail_with(f, "no memory for %zu bytes of output", bytes);
    }
    j->gradients.y = j->dy.values;
    if (j->a.grad_output &&
        !gradients_alloc(&j->gradients, j->layer, (uint64_t)j->x.count, j->a.grad_input, j->a.grad_weights, f)) {
        return false;
    }
    const computation call = {
        .shape = shape_of(j),
        .size = j->x.shape[2],
        .x = j->x.values,
        .y = j->y,
        .lengths = j->lengths,
        .links = &j->links,
        .gradients = &j->gradients,
        .repeat = j->a.repeat,
        .profile = j->a.profile,
    };
    return compute_run(&j->session, j->layer, j->plan, &call, &j->times, f);
}

/* ---- report ---- */

static void print_plan(const clattn_plan *plan) {
    size_t size = clattn_plan_describe(plan, NULL, 0) + 1;
    char *text = malloc(size);
    if (!text) {
        return; /* only a report */
    }
    clattn_plan_describe(plan, text, size);
    fputs("plan:\n", stderr);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        fprintf(stderr, "  %s\n", line);
    }
    free(text);
}

static void print_runs(const char *label, const run_times *t, int64_t repeat) {
    if (repeat == 1) {
        fprintf(stderr, "%s %.3f ms", label, t->least);
    } else {
        fprintf(stderr, "%s least %.3f ms, median %.3f ms of %" PRId64, label, t->least, t->median, repeat);
    }
}

static void print_times(const job *j) {
    fprintf(stderr, "time: setup %.1f ms (device %.1f, weights %.1f, plan %.1f), ", j->planned_ms - j->start,
            j->ready_ms - j->start, j->loaded_ms - j->ready_ms, j->planned_ms - j->loaded_ms);
    print_runs("run", &j->times.host, j->a.repeat);
    fputs("\n", stderr);
    if (j->a.profile && isnan(j->times.device.least)) {
        fputs("profile: the device does not tell\n", stderr);
    } else if (j->a.profile) {
        print_runs("profile: on the device", &j->times.device, j->a.repeat);
        fputs("\n", stderr);
    }
}

static void report(const job *j) {
    if (!j->a.quiet) {
        const clattn_device_info *i = &j->session.info;
        fprintf(stderr, "device: %s (%s, %s)\n", i->name, i->kind, i->platform);
        print_plan(j->plan);
        print_times(j);
    }
}

/* ---- the command ---- */

static bool perform(job *j, failure *f) {
    if (!read_files(j, f)) {
        return false;
    }
    j->start = clock_ms();
    if (!session_open(&j->session, j->a.device, (clattn_gemm)j->a.gemm, j->a.profile, f)) {
        return false;
    }
    j->ready_ms = clock_ms();
    if (!make_layer(j, f) || !weights_load(&j->session, j->weights, j->a.weights, j->layer, f)) {
        return false;
    }
    j->loaded_ms = clock_ms();
    if (!make_links(j, f) || !make_plan(j, f)) {
        return false;
    }
    j->planned_ms = clock_ms();
    if (!compute(j, f) || !write_outputs(j, f)) {
        return false;
    }
    report(j);
    return true;
}

static void release(job *j) {
    clattn_plan_destroy(j->plan);
    clattn_layer_destroy(j->layer);
    session_close(&j->session);
    safetensors_close(j->weights);
    npy_free(&j->x);
    npy_free(&j->dy);
    gradients_free(&j->gradients);
    clattn_links_finish(&j->links);
    free(j->lengths);
    free(j->y);
}

int command_run(int argc, char **argv) {
    job j = {.a = {.repeat = 1, .random = -1}, .status = EXIT_WRONG};
    failure f = {0};
    const option_set set = {rows, &j.a, &j.settings, &j.a.variant, "VARIANT"};
    bool parsed = options_parse(argc, argv, &set, &f);
    if (parsed && j.a.help) {
        fputs(help, stdout);
        return EXIT_DONE;
    }
    if (!parsed || !check_arguments(&j.a, &f)) {
        return command_misused("run", &f);
    }
    bool done = perform(&j, &f);
    int status = j.status;
    release(&j);
    return done ? EXIT_DONE : status == EXIT_USAGE ? command_misused("run", &f) : command_failed(&f, status);
}
