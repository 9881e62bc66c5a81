/* Rows of the benchmark, as text and as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

double bench_operations(const bench_subject *s) {
    const bench_case *c = s->c;
    const bench_work w = c->family->work(c, s->links.count);
    double sum = w.core + (c->train ? w.core_backward : 0);
    if (!c->core) {
        sum += w.projections + (c->train ? w.projections_backward : 0);
    }
    return sum * (double)c->batch;
}

/* Inputs and weights are read and outputs written, once; backward reads and writes their gradients too. */
double bench_bytes(const bench_subject *s) {
    double inputs = 0, output = 0, weights = 0, links = 0;
    const double word = (double)clattn_type_size(s->c->dtype);
    for (size_t i = 0; i < s->input_count; ++i) {
        inputs += (double)s->inputs[i].count * word;
    }
    for (size_t i = 0; i < s->weight_count; ++i) {
        weights += (double)s->weights[i].count * sizeof(float);
    }
    if (s->links.count > 0) {
        links = (double)s->links.count * sizeof(int32_t) + (double)(s->links.length + 1) * sizeof(int64_t);
    }
    output = (double)s->c->batch * (double)s->c->n * (double)s->c->d * word;
    return s->c->train ? 3 * (inputs + weights) + 2 * output + 2 * links : inputs + weights + output + links;
}

static double gflops(const bench_subject *s, const bench_times *t) { return bench_operations(s) / t->median * 1e-6; }
static double gbps(const bench_subject *s, const bench_times *t) { return bench_bytes(s) / t->median * 1e-6; }

/* The nearer of the two limits. */
static double share(const bench_subject *s, const bench_times *t, const bench_peak *peak) {
    return fmax(gflops(s, t) / peak->gflops, gbps(s, t) / peak->gbps);
}

static const char *mode_of(const bench_case *c) { return c->family->modes ? c->family->modes[c->mode] : NULL; }

static char *plan_text(const clattn_plan *plan) {
    size_t size = clattn_plan_describe(plan, NULL, 0) + 1;
    char *text = malloc(size);
    if (text) {
        clattn_plan_describe(plan, text, size);
    }
    return text;
}

/* ---- text ---- */

static void print_options(const bench_case *c) {
    for (size_t i = 0; i < c->settings->count; ++i) {
        const clattn_setting *s = &c->settings->items[i];
        if (strcmp(s->name, "mode") != 0) {
            printf(" %s%s%s", s->name, s->value ? "=" : "", s->value ? s->value : "");
        }
    }
    if (c->random >= 0) {
        printf(" random=%g", c->random);
    }
}

void bench_print_head(const bench_case *c, const session *s, const bench_peak *peak) {
    const char *mode = mode_of(c);
    printf("%s (%s, %s): peak %.1f GFLOP/s, copy %.1f GB/s, measured\n", s->info.name, s->info.kind, s->info.platform,
           peak->gflops, peak->gbps);
    printf("%s%s%s, %s, %s, batch %" PRId64 ", d %" PRId64 ", heads %" PRId64 ", %s", c->family->name, mode ? " " : "",
           mode ? mode : "", c->core ? "core" : "layer", c->train ? "train" : "forward", c->batch, c->d, c->heads,
           clattn_type_name(c->dtype));
    print_options(c);
    printf("\n%8s %10s %10s %10s %8s %8s %8s %6s %10s %13s %13s  plan\n", "n", "median ms", "p10", "p90", "host us",
           "GFLOP/s", "GB/s", "peak", "compile ms", "workspace", "device");
}

/* A stage's line begins with its kernel's name, or clblast, and a blank. No other line does. */
static size_t kernel_length(const char *line) {
    const size_t length = strcspn(line, " =:\n");
    const bool product = strncmp(line, "clblast ", 8) == 0;
    return product || (line[length] == ' ' && memchr(line, '_', length)) ? length : 0;
}

/* How often a kernel's name begins a line of text, up to limit (NULL: all). */
static int count_kernel(const char *text, const char *limit, const char *name, size_t length) {
    int count = 0;
    for (const char *line = text; line && *line && (!limit || line < limit); line = strchr(line, '\n')) {
        line += *line == '\n';
        count += kernel_length(line) == length && strncmp(line, name, length) == 0 && (!limit || line < limit);
    }
    return count;
}

/* Each kernel once, in the order of its first stage, with the number of its stages. */
static void print_kernels(const clattn_plan *plan) {
    char *text = plan_text(plan);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const size_t length = kernel_length(line);
        const int count = length > 0 ? count_kernel(text, NULL, line, length) : 0;
        if (count > 0 && count_kernel(text, line, line, length) == 0) {
            printf(" %.*s", (int)length, line);
            if (count > 1) {
                printf("*%d", count);
            }
        }
    }
    free(text);
}

void bench_print_row(const bench_subject *s, const bench_times *t, const bench_peak *peak) {
    printf("%8" PRId64 " %10.3f %10.3f %10.3f %8.1f %8.1f %8.2f %5.1f%% %10.1f %13" PRIu64 " %13" PRIu64 " ", s->c->n,
           t->median, t->p10, t->p90, 1000 * t->host, gflops(s, t), gbps(s, t), 100 * share(s, t, peak), s->compile_ms,
           clattn_plan_workspace_size(s->plan), s->device_bytes);
    print_kernels(s->plan);
    puts("");
    fflush(stdout);
}

/* ---- JSON ---- */

static json_t *describe(const bench_subject *s, const bench_times *t, const bench_peak *peak, const char *plan) {
    const bench_case *c = s->c;
    return json_pack(
        "{s:s, s:s?, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:I, s:I, s:I, s:f, s:f}",
        "variant", c->family->name, "mode", mode_of(c), "n", (json_int_t)c->n, "batch", (json_int_t)c->batch, "d",
        (json_int_t)c->d, "heads", (json_int_t)c->heads, "dtype", clattn_type_name(c->dtype), "direction",
        c->train ? "train" : "forward", "level", c->core ? "core" : "layer", "device", s->session->info.name, "plan",
        plan, "compile_ms", s->compile_ms, "median_ms", t->median, "p10_ms", t->p10, "p90_ms", t->p90, "host_us",
        1000 * t->host, "gflops", gflops(s, t), "gbps", gbps(s, t), "peak_share", share(s, t, peak), "workspace_bytes",
        (json_int_t)clattn_plan_workspace_size(s->plan), "device_bytes", (json_int_t)s->device_bytes, "runs",
        (json_int_t)t->runs, "peak_gflops", peak->gflops, "peak_gbps", peak->gbps);
}

bool bench_print_json(const bench_subject *s, const bench_times *t, const bench_peak *peak, failure *f) {
    char *plan = plan_text(s->plan);
    json_t *object = plan ? describe(s, t, peak, plan) : NULL;
    bool done = object && json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 && puts("") >= 0 &&
                fflush(stdout) == 0;
    json_decref(object);
    free(plan);
    return done || fail_with(f, "a row could not be written as JSON");
}
