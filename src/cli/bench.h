/* What the files of `clattn bench` share: a case, its seeded tensors on the device, and what a family adds. */
#ifndef CLATTN_CLI_BENCH_H
#define CLATTN_CLI_BENCH_H

#include <clattn/cjar.h>
#include <clattn/clattn.h>

#include "cli/options.h"
#include "cli/session.h"

enum { BENCH_SLOTS = CLATTN_LAYER_SLOTS, BENCH_WEIGHTS = 32, BENCH_INPUTS = 3 };

/* Seeds of the numbers: weights from 0 on. */
enum { BENCH_STREAM_LINKS = 90, BENCH_STREAM_INPUT = 100, BENCH_STREAM_GRAD = 110 };

struct bench_family;

/* What one row measures. Options of the families as numbers; each is read by its own family alone. */
typedef struct bench_case {
    const struct bench_family *family;
    int mode; /* index into the family's modes; 0 where it has none */
    int64_t n, batch, d, heads;
    clattn_type dtype;
    bool train, core;
    const settings *settings;
    double random; /* below 0: no links */
    int64_t seed;
    int64_t rank, taps, memory; /* --rank, --kernel; 0 = not given */
    bool causal, all, multiply, by_model;
    int64_t k, window, shift, local, grid[2], window_left, window_right; /* -1 = unlimited */
    double scale;                                                        /* 0 = 1/sqrt(d/heads) */
} bench_case;

/* A tensor's numbers on the host, exactly as the device stores them. */
typedef struct bench_array {
    const char *name;
    clattn_type type;
    int32_t rank;
    int64_t shape[CLATTN_MAX_RANK], count;
    bool trainable;
    float *values;
} bench_array;

/* A layer or a core, planned, with its tensors. inputs: x of a layer; q, k, v of a core, each [B, n, H, columns].
 * weight_slots: of a core. Slots of gradients and of what is saved: where the case trains. */
typedef struct bench_subject {
    session *session;
    const bench_case *c;
    clattn_layer *layer;
    clattn_plan *plan;
    clattn_tensor tensors[BENCH_SLOTS];
    size_t slots;
    size_t input_slots[BENCH_INPUTS], input_grad_slots[BENCH_INPUTS], input_count, output_slot;
    size_t grad_y_slot, saved_slot;
    size_t weight_slots[BENCH_WEIGHTS], weight_grad_slots[BENCH_WEIGHTS];
    clattn_workspace workspace;
    bench_array inputs[BENCH_INPUTS], weights[BENCH_WEIGHTS], grad_y;
    size_t weight_count;
    clattn_links links;
    bool misused; /* opening failed for what the user asked */
    double compile_ms;
    uint64_t device_bytes;
} bench_subject;

/* One sequence of a subject for the check, in float64. k, v [n, columns]; q [d], one token's. */
typedef struct bench_view {
    const bench_subject *subject;
    int64_t b;
    const double *x; /* [n, d]; NULL for a core */
    double *q, *k, *v;
} bench_view;

/* A linear layer inside a layer: rows section * d .. of a weight, and of its bias. */
typedef struct bench_part {
    const char *weight, *bias;
    int section;
} bench_part;

typedef struct bench_parts {
    bench_part q, k, v, out; /* weight NULL: there is none */
} bench_parts;

/* Floating-point operations of one sequence. Projections are those of a layer. */
typedef struct bench_work {
    double core, core_backward, projections, projections_backward;
} bench_work;

/* A family of variants: one file each. */
typedef struct bench_family {
    const char *name;
    const char *const *modes; /* ended by NULL, the default first; NULL: none */
    bool links;               /* takes --random */
    /* The operations of one sequence of c. links: how many were drawn. docs/bench.md has the formulas. */
    bench_work (*work)(const bench_case *c, int64_t links);
    bench_parts (*parts)(const bench_case *c);
    /* Shapes that the options do not tell, for clattn_layer_from_settings. May be NULL. */
    size_t (*hints)(const bench_case *c, clattn_weight_info *infos);
    /* Fill view->k and ->v where they are no plain projections. May be NULL, or answer false for the plain ones. */
    bool (*prepare)(bench_view *view);
    /* One token's row o [d] of the core by its definition. False: rounding alone could change it, take another token.
     */
    bool (*row)(const bench_view *view, int64_t i, double *o);
    /* Plan a core: tensors, weights, plan. */
    bool (*core)(bench_subject *s, failure *f);
    /* May the slope test move this tensor along itself alone, because other moves change what a choice keeps? May be
     * NULL. */
    bool (*scales)(const bench_case *c, const char *tensor);
} bench_family;

/* The family of a built variant, or NULL. */
const bench_family *bench_family_find(const char *name);

/* ---- bench_case.c ---- */

/* Settings into a case's numbers; the layer has checked them. */
bool bench_case_read(bench_case *c, settings *kept, char *grid, size_t size, failure *f);

/* Keys that n queries see in all: a window (-1 = unlimited) round each, causal or not. */
double bench_pairs(int64_t n, int64_t left, int64_t right, bool causal);

double bench_head_scale(const bench_case *c);

/* ---- bench_data.c ---- */

/* Element i of stream s of a seed: uniform, mean 0, variance 1. */
float bench_number(int64_t seed, uint64_t stream, uint64_t i);

/* A number as a type stores it. */
float bench_round(float value, clattn_type type);

/* Allocate an array and fill it with numbers of its stream, times scale plus shift. The name is borrowed. */
bool bench_array_make(bench_array *a, const char *name, clattn_type type, int32_t rank, const int64_t *shape,
                      int64_t seed, uint64_t stream, float scale, float shift, failure *f);
void bench_array_free(bench_array *a);

/* A weight by its name and shape: such numbers that a layer's activations keep a variance near 1. */
bool bench_weight_make(bench_array *a, const clattn_weight_info *info, int64_t seed, uint64_t stream, failure *f);

/* ---- bench_subject.c, bench_core.c ---- */

bool bench_subject_open(bench_subject *s, session *on, const bench_case *c, failure *f);
void bench_subject_close(bench_subject *s);

const bench_array *bench_weight(const bench_subject *s, const char *name); /* or NULL */

/* Milliseconds of a run: in all, and of them those of the host, until all is queued. */
typedef struct bench_run {
    double all, host;
} bench_run;

/* Forward, and backward where the case trains; waits. times may be NULL. */
bool bench_subject_run(bench_subject *s, bool backward, bench_run *times, failure *f);

/* Upload the inputs or the output's gradient again; upload the weights again, and pack a layer's. */
bool bench_put_inputs(bench_subject *s, failure *f);
bool bench_put_grad_y(bench_subject *s, failure *f);
bool bench_put_weights(bench_subject *s, failure *f);

/* The tensor of a slot as floats, malloc'ed. */
bool bench_read(bench_subject *s, size_t slot, const char *what, float **values, int64_t *count, failure *f);

/* A device tensor [batch, n, heads, columns] of values (NULL: poisoned with NaN) at a slot, seen as shape and stride
 * say. */
bool bench_tensor(bench_subject *s, size_t slot, const char *what, clattn_type type, int32_t rank, const int64_t *shape,
                  const int64_t *stride, const float *values, failure *f);

/* The output's gradient, seen as shape and stride say, in the memory's order; what forward saves. */
bool bench_grad_y(bench_subject *s, size_t slot, int32_t rank, const int64_t *shape, const int64_t *stride, failure *f);
bool bench_saved(bench_subject *s, failure *f);

/* Where a core has its tensors. key_columns: of a head of k; 0 = d / heads. token_major: they are [B, n, H, columns],
 * as memory is, else [B, H, n, columns]. */
typedef struct bench_core_slots {
    size_t count, inputs[BENCH_INPUTS], output, input_grads[BENCH_INPUTS], output_grad, saved;
    int64_t key_columns;
    bool token_major;
} bench_core_slots;

/* Helpers of the families' core functions: q, k, v and the output; a weight (seen: NULL, or its layout); each with its
 * gradient where the case trains; links; the plan, timed, and what it saves. */
bool bench_core_tensors(bench_subject *s, const bench_core_slots *slots, failure *f);
bool bench_core_weight(bench_subject *s, size_t slot, size_t grad_slot, const clattn_weight_info *info,
                       const clattn_tensor *seen, failure *f);
bool bench_core_links(bench_subject *s, size_t rows_slot, size_t keys_slot, failure *f);
bool bench_core_planned(bench_subject *s, clattn_status status, double started, failure *f);

/* ---- bench_check.c, bench_slope.c ---- */

/* After a run: is the output finite, and do sampled rows agree with float64? Else false, with the sentence. */
bool bench_check(bench_subject *s, failure *f);

/* Do the gradients agree with the slope of the forward pass? */
bool bench_check_gradients(bench_subject *s, failure *f);

/* ---- bench_math.c: float64 ---- */

double *bench_doubles(size_t count); /* malloc'ed zeros, or the program ends */
double bench_dot(const double *a, const double *b, int64_t count);
double bench_sigmoid(double t);

/* y [rows, out] = x [rows, in] of the rows section*out.. of a weight [.., in] and its bias. */
void bench_linear(const bench_subject *s, const bench_part *part, const double *x, int64_t rows, int64_t out,
                  double *y);

/* Scores scale * q . k_j of head h for the keys from..to, others -INFINITY; scores [n]. */
void bench_scores(const bench_view *view, int64_t h, double scale, int64_t from, int64_t to, double *scores);

/* o += sum_j p_j v_j in head h's channels. */
void bench_average(const bench_view *view, int64_t h, const double *p, double *o);

/* Weights p of a softmax over count scores, in place of them; -INFINITY hides. */
void bench_softmax(double *scores, int64_t count);

/* ---- bench_measure.c ---- */

/* Milliseconds of the runs of one row; host: the median of what the calls took to return. */
typedef struct bench_times {
    double median, p10, p90, host;
    int64_t runs;
} bench_times;

/* How to time: repeat runs, or, where it is 0, at least five and about half a second of them. cold: caches are flushed
 * before each. */
bool bench_measure(bench_subject *s, int64_t repeat, bool cold, bench_times *times, failure *f);

/* ---- bench_peak.c ---- */

/* What the device does at best, measured. */
typedef struct bench_peak {
    double gflops, gbps;
} bench_peak;

bool bench_peak_measure(session *s, bench_peak *peak, failure *f);

/* ---- bench_report.c ---- */

/* Operations of the whole case, and bytes that must cross the memory at least once. */
double bench_operations(const bench_subject *s);
double bench_bytes(const bench_subject *s);

void bench_print_head(const bench_case *c, const session *s, const bench_peak *peak);
void bench_print_row(const bench_subject *s, const bench_times *t, const bench_peak *peak);
bool bench_print_json(const bench_subject *s, const bench_times *t, const bench_peak *peak, failure *f);

#endif
