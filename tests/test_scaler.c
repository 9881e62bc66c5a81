/* Loss scaling: the scale against a hand-written state machine, gradients against exact division. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include <clattn/scaler.h>

#include "harness/guarded.h"
#include "harness/storage.h"

static clattn_scaler *make(const clattn_scaler_state *state) {
    clattn_scaler *scaler;
    assert_ok(clattn_scaler_create(device()->context, state, &scaler));
    return scaler;
}

static void unscale(clattn_scaler *scaler, const clattn_tensor *gradients, size_t count) {
    assert_ok(clattn_scaler_unscale(scaler, device()->queue, gradients, count, 0, NULL, NULL));
}

static bool update(clattn_scaler *scaler) {
    bool skip;
    assert_ok(clattn_scaler_update(scaler, device()->queue, 0, NULL, &skip));
    return skip;
}

/* One step on a gradient of a single element. */
static bool one_step(clattn_scaler *scaler, double value) {
    guarded g = guarded_upload(device(), CLATTN_F32, &value, 1);
    const clattn_tensor t = guarded_tensor(&g, 1, 1, 0, 0, 0);
    unscale(scaler, &t, 1);
    guarded_check(device(), &g, "gradient");
    guarded_free(&g);
    return update(scaler);
}

/* ---- the scale ---- */

/* The scale of each step, and after all, for a row of steps: '.' finite, 'i' infinite, 'n' NaN. Written down by
 * torch.amp.GradScaler's documentation: back off at once, grow after an interval of steps in a row. */
static const struct {
    float scale, growth, backoff;
    int interval;
    const char *steps;
    float scales[16];
} rows[] = {
    {65536, 2, 0.5F, 2000, "....", {65536, 65536, 65536, 65536, 65536}},
    {65536,
     2,
     0.5F,
     3,
     "......i...",
     {65536, 65536, 65536, 131072, 131072, 131072, 262144, 131072, 131072, 131072, 262144}},
    {1024, 2, 0.5F, 2, ".i..in..", {1024, 1024, 512, 512, 1024, 512, 256, 256, 512}},
    {8, 4, 0.25F, 1, "..i.n", {8, 32, 128, 32, 128, 32}},
    {100, 1.5F, 0.1F, 1, ".i", {100, 150, 15}},
    {0x1p127F, 2, 0.5F, 1, "..i.", {0x1p127F, 0x1p127F, 0x1p127F, 0x1p126F, 0x1p127F}},
    {0x1p-125F, 2, 0.5F, 9, "iii", {0x1p-125F, 0x1p-126F, 0x1p-126F, 0x1p-126F}},
};

START_TEST(scale_follows_torch) {
    clattn_scaler *scaler =
        make(&(clattn_scaler_state){rows[_i].scale, rows[_i].growth, rows[_i].backoff, rows[_i].interval, 0});
    int at = 0;
    for (; rows[_i].steps[at]; at++) {
        const char kind = rows[_i].steps[at];
        ck_assert_float_eq(clattn_scaler_scale(scaler), rows[_i].scales[at]);
        ck_assert_int_eq(one_step(scaler, kind == '.' ? 1 : kind == 'i' ? -INFINITY : NAN), kind != '.');
    }
    ck_assert_float_eq(clattn_scaler_scale(scaler), rows[_i].scales[at]);
    clattn_scaler_destroy(scaler);
}
END_TEST

/* 400 pseudo-random steps against the rule, written once more by hand. */
START_TEST(scale_follows_the_rule) {
    clattn_scaler *scaler = make(&(clattn_scaler_state){65536, 2, 0.5F, 5, 0});
    double values[2] = {1, INFINITY};
    guarded good = guarded_upload(device(), CLATTN_F32, values, 1),
            bad = guarded_upload(device(), CLATTN_F32, values + 1, 1);
    const clattn_tensor tensors[2] = {guarded_tensor(&good, 1, 1, 0, 0, 0), guarded_tensor(&bad, 1, 1, 0, 0, 0)};
    double scale = 65536;
    int tracker = 0;
    unsigned random = 1;
    for (int i = 0; i < 400; i++) {
        clattn_scaler_state state;
        random = random * 1103515245U + 12345U;
        const bool found = (random >> 16) % 6 == 0;
        unscale(scaler, &tensors[found], 1);
        ck_assert_int_eq(update(scaler), found);
        scale = found ? scale / 2 : ++tracker == 5 ? scale * 2 : scale;
        tracker = found ? 0 : tracker % 5;
        assert_ok(clattn_scaler_save(scaler, &state));
        ck_assert_float_eq(state.scale, (float)scale);
        ck_assert_int_eq(state.growth_tracker, tracker);
    }
    guarded_free(&good);
    guarded_free(&bad);
    clattn_scaler_destroy(scaler);
}
END_TEST

START_TEST(defaults_are_torchs) {
    clattn_scaler_state state;
    clattn_scaler *scaler = make(NULL);
    assert_ok(clattn_scaler_save(scaler, &state));
    ck_assert_float_eq(state.scale, 65536);
    ck_assert_float_eq(state.growth_factor, 2);
    ck_assert_float_eq(state.backoff_factor, 0.5F);
    ck_assert_int_eq(state.growth_interval, 2000);
    ck_assert_int_eq(state.growth_tracker, 0);
    clattn_scaler_destroy(scaler);
    clattn_scaler_destroy(NULL);
    ck_assert_float_eq(clattn_scaler_scale(NULL), 0);
}
END_TEST

/* A run that is saved and continued elsewhere is the run. */
START_TEST(restored_state_goes_on) {
    const clattn_scaler_state start = {1024, 2, 0.5F, 3, 0};
    clattn_scaler_state middle, ends[2];
    clattn_scaler *first = make(&start);
    one_step(first, 1);
    one_step(first, 1);
    assert_ok(clattn_scaler_save(first, &middle));
    ck_assert_int_eq(middle.growth_tracker, 2);
    clattn_scaler *second = make(NULL);
    assert_ok(clattn_scaler_restore(second, &middle));
    one_step(first, 1);
    one_step(second, 1);
    assert_ok(clattn_scaler_save(first, &ends[0]));
    assert_ok(clattn_scaler_save(second, &ends[1]));
    ck_assert_float_eq(ends[0].scale, 2048);
    ck_assert_float_eq(ends[1].scale, 2048);
    ck_assert_int_eq(ends[1].growth_tracker, 0);
    clattn_scaler_destroy(first);
    clattn_scaler_destroy(second);
}
END_TEST

/* ---- gradients ---- */

static const clattn_type types[] = {CLATTN_F32, CLATTN_F16, CLATTN_BF16};
static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 1009, 16383, 16384, 16385, 40009};

enum { TYPES = 3, SIZES = sizeof sizes / sizeof *sizes };

static double *draw(clattn_type type, size_t count) {
    double *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = ((double)(i * 2654435761U % 2001) - 1000) * 7.3;
    storage_round(type, values, count);
    return values;
}

/* The quotient of every element; 4096 is a power of two, so but for the storage's own underflow it is exact. */
START_TEST(divides_every_element) {
    const clattn_type type = types[_i / SIZES];
    const size_t count = sizes[_i % SIZES];
    clattn_scaler *scaler = make(&(clattn_scaler_state){4096, 2, 0.5F, 2000, 0});
    double *values = draw(type, count);
    guarded g = guarded_upload(device(), type, values, count);
    const clattn_tensor t = guarded_tensor(&g, 1, (int64_t)count, 0, 0, 0);
    unscale(scaler, &t, 1);
    ck_assert(!update(scaler));
    double *got = guarded_read(device(), &g, "gradient");
    for (size_t i = 0; i < count; i++)
        values[i] /= 4096;
    storage_round(type, values, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(got[i] == values[i], "element %zu is %.9g, not %.9g", i, got[i], values[i]);
    free(got);
    free(values);
    guarded_free(&g);
    clattn_scaler_destroy(scaler);
}
END_TEST

/* A single one, wherever it stands, is found; the flag does not stay. */
START_TEST(finds_one_bad_element) {
    const clattn_type type = types[_i / SIZES];
    const size_t count = sizes[_i % SIZES];
    const double kinds[] = {INFINITY, -INFINITY, NAN};
    clattn_scaler *scaler = make(&(clattn_scaler_state){4096, 2, 0.5F, 2000, 0});
    for (size_t k = 0; count > 0 && k < 6; k++) {
        double *values = draw(type, count);
        values[k < 3 ? 0 : count - 1] = kinds[k % 3];
        guarded g = guarded_upload(device(), type, values, count);
        const clattn_tensor t = guarded_tensor(&g, 1, (int64_t)count, 0, 0, 0);
        unscale(scaler, &t, 1);
        guarded_check(device(), &g, "gradient");
        ck_assert_msg(update(scaler), "%g was not found", kinds[k % 3]);
        ck_assert_msg(!update(scaler), "the flag stayed");
        free(values);
        guarded_free(&g);
    }
    clattn_scaler_destroy(scaler);
}
END_TEST

/* The greatest finite numbers are no overflow. */
START_TEST(greatest_finite_is_finite) {
    const double greatest[] = {FLT_MAX, 65504, 0x1.fep127};
    clattn_scaler *scaler = make(NULL);
    double values[9];
    for (int i = 0; i < 9; i++)
        values[i] = i % 2 ? greatest[_i] : -greatest[_i];
    guarded g = guarded_upload(device(), types[_i], values, 9);
    const clattn_tensor t = guarded_tensor(&g, 2, 3, 3, 0, 0);
    unscale(scaler, &t, 1);
    ck_assert(!update(scaler));
    guarded_free(&g);
    clattn_scaler_destroy(scaler);
}
END_TEST

/* A list of all types and ranks, empty and absent ones, in two calls, one bad element in the first list; an
 * out-of-order queue. */
START_TEST(lists_of_tensors) {
    fixture *f = device();
    cl_command_queue queue = f->out_of_order ? f->out_of_order : f->queue;
    clattn_scaler *scaler = make(&(clattn_scaler_state){2, 2, 0.5F, 2000, 0});
    double values[24];
    for (int i = 0; i < 24; i++)
        values[i] = i;
    guarded g[4];
    for (int i = 0; i < 3; i++)
        g[i] = guarded_upload(f, types[i], values, 24);
    values[23] = NAN;
    g[3] = guarded_upload(f, CLATTN_F16, values, 24);
    const clattn_tensor first[] = {guarded_tensor(&g[0], 4, 2, 3, 2, 2), {0}, guarded_tensor(&g[3], 2, 4, 6, 0, 0)};
    const clattn_tensor second[] = {guarded_tensor(&g[1], 3, 2, 3, 4, 0), guarded_tensor(&g[1], 2, 0, 6, 0, 0),
                                    guarded_tensor(&g[2], 1, 24, 0, 0, 0)};
    cl_event events[2];
    bool skip = false;
    assert_ok(clattn_scaler_unscale(scaler, queue, first, 3, 0, NULL, &events[0]));
    assert_ok(clattn_scaler_unscale(scaler, queue, second, 3, 1, events, &events[1]));
    assert_ok(clattn_scaler_update(scaler, queue, 2, events, &skip));
    ck_assert(skip);
    for (int i = 0; i < 4; i++) {
        double *got = guarded_read(f, &g[i], "gradient");
        for (int j = 0; j < 23; j++)
            ck_assert_double_eq(got[j], j / 2.0);
        free(got);
        guarded_free(&g[i]);
    }
    for (int i = 0; i < 2; i++)
        clReleaseEvent(events[i]);
    clattn_scaler_destroy(scaler);
}
END_TEST

/* ---- refusals ---- */

START_TEST(states_that_are_refused) {
    static const struct {
        clattn_scaler_state state;
        const char *field;
    } bad[] = {
        {{0, 2, 0.5F, 1, 0}, "scale"},          {{-1, 2, 0.5F, 1, 0}, "scale"},
        {{INFINITY, 2, 0.5F, 1, 0}, "scale"},   {{NAN, 2, 0.5F, 1, 0}, "scale"},
        {{1, 1, 0.5F, 1, 0}, "growth_factor"},  {{1, NAN, 0.5F, 1, 0}, "growth_factor"},
        {{1, 2, 1, 1, 0}, "backoff_factor"},    {{1, 2, 0, 1, 0}, "backoff_factor"},
        {{1, 2, NAN, 1, 0}, "backoff_factor"},  {{1, 2, 0.5F, 0, 0}, "growth_interval"},
        {{1, 2, 0.5F, 5, 5}, "growth_tracker"}, {{1, 2, 0.5F, 5, -1}, "growth_tracker"},
    };
    clattn_scaler *scaler = make(NULL), *none;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_refused(clattn_scaler_create(device()->context, &bad[i].state, &none), CLATTN_INVALID_ARGUMENT,
                       bad[i].field);
        ck_assert_ptr_null(none);
        assert_refused(clattn_scaler_restore(scaler, &bad[i].state), CLATTN_INVALID_ARGUMENT, bad[i].field);
    }
    ck_assert_float_eq(clattn_scaler_scale(scaler), 65536);
    clattn_scaler_destroy(scaler);
}
END_TEST

/* Each is refused whole: the good tensor before the bad one stays as it was. */
START_TEST(tensors_that_are_refused) {
    fixture *f = device();
    clattn_scaler *scaler = make(NULL);
    const double values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int whole[2] = {1, 2};
    guarded g = guarded_upload(f, CLATTN_F32, values, 8), n = guarded_ints(f, whole, 2);
    const clattn_tensor good = guarded_tensor(&g, 1, 8, 0, 0, 0);
    clattn_tensor wide = guarded_tensor(&g, 2, 2, 2, 0, 0), large = guarded_tensor(&g, 1, 1 << 20, 0, 0, 0),
                  missing = good, negative = good, ranked = good;
    wide.stride[0] = 4;
    missing.memory = NULL;
    negative.shape[0] = -1;
    ranked.rank = 5;
    const struct {
        clattn_tensor tensor;
        clattn_status status;
    } bad[] = {{wide, CLATTN_INVALID_SHAPE},       {large, CLATTN_INVALID_BUFFER},
               {missing, CLATTN_INVALID_ARGUMENT}, {negative, CLATTN_INVALID_SHAPE},
               {ranked, CLATTN_INVALID_SHAPE},     {guarded_tensor(&n, 1, 2, 0, 0, 0), CLATTN_INVALID_TYPE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const clattn_tensor list[] = {good, bad[i].tensor};
        assert_refused(clattn_scaler_unscale(scaler, f->queue, list, 2, 0, NULL, NULL), bad[i].status, "gradient 1");
    }
    assert_refused(clattn_scaler_unscale(scaler, NULL, &good, 1, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT, "queue");
    assert_refused(clattn_scaler_unscale(scaler, f->queue, NULL, 1, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT,
                   "gradients");
    assert_refused(clattn_scaler_update(scaler, f->queue, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT, "skip");
    bool skip = false;
    ck_assert_int_eq(clattn_scaler_update(NULL, f->queue, 0, NULL, &skip), CLATTN_INVALID_ARGUMENT);
    ck_assert(skip);
    double *got = guarded_read(f, &g, "gradient");
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq(got[i], 1);
    ck_assert(!update(scaler));
    free(got);
    guarded_free(&g);
    guarded_free(&n);
    clattn_scaler_destroy(scaler);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scaler");
    TCase *scale = tcase_create("scale"), *gradients = tcase_create("gradients"), *refusals = tcase_create("refusals");
    tcase_add_loop_test(scale, scale_follows_torch, 0, sizeof rows / sizeof *rows);
    tcase_add_test(scale, scale_follows_the_rule);
    tcase_add_test(scale, defaults_are_torchs);
    tcase_add_test(scale, restored_state_goes_on);
    tcase_add_loop_test(gradients, divides_every_element, 0, TYPES * SIZES);
    tcase_add_loop_test(gradients, finds_one_bad_element, 0, TYPES * SIZES);
    tcase_add_loop_test(gradients, greatest_finite_is_finite, 0, TYPES);
    tcase_add_test(gradients, lists_of_tensors);
    tcase_add_test(refusals, states_that_are_refused);
    tcase_add_test(refusals, tensors_that_are_refused);
    suite_add_tcase(suite, scale);
    suite_add_tcase(suite, gradients);
    suite_add_tcase(suite, refusals);
    return run_device_suite(suite);
}
