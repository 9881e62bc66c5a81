/* Contexts, layers and plans that must not be made: codes, sentences, and NULL for what was wanted. */
#include <clattn/clattn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/variant.h"
#include "job.h"
#include "spy.h"

/* Something that is not NULL, for results that must become NULL. */
#define JUNK ((void *)&junk)
static int junk;

/* ---- contexts ---- */

static char logged[512];

static void keep(void *user, clattn_log_level level, const char *line) {
    (void)user;
    ck_assert_int_eq(level, CLATTN_LOG_ERROR);
    strncpy(logged, line, sizeof logged - 1);
}

START_TEST(contexts_need_their_arguments) {
    clattn_context *context = JUNK;
    const fixture *f = device();
    ck_assert_int_eq(clattn_context_create(NULL, f->device, NULL, &context), CLATTN_INVALID_ARGUMENT);
    ck_assert_ptr_null(context);
    context = JUNK;
    ck_assert_int_eq(clattn_context_create(f->cl, NULL, NULL, &context), CLATTN_INVALID_ARGUMENT);
    ck_assert_ptr_null(context);
    ck_assert_int_eq(clattn_context_create(f->cl, f->device, NULL, NULL), CLATTN_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_context_of_no_engine) {
    clattn_context *context = JUNK;
    const clattn_context_options options = {.log = keep, .gemm = (clattn_gemm)7};
    logged[0] = 0;
    ck_assert_int_eq(clattn_context_create(device()->cl, device()->device, &options, &context),
                     CLATTN_INVALID_ARGUMENT);
    ck_assert_ptr_null(context);
    ck_assert_str_eq(logged, "options.gemm is 7, but must be in 0..2");
}
END_TEST

START_TEST(the_last_error_is_cut_to_size) {
    clattn_context *context = device()->context;
    clattn_layer *layer = JUNK;
    char text[256];
    ck_assert_int_eq(clattn_layer_from_settings(context, "sparse", 8, 1, NULL, 0, NULL, 0, &layer),
                     CLATTN_UNKNOWN_NAME);
    ck_assert_ptr_null(layer);
    const size_t length = clattn_context_error(context, NULL, 0);
    ck_assert_uint_eq(clattn_context_error(context, text, sizeof text), length);
    ck_assert_str_eq(text, "there is no variant 'sparse'");
    ck_assert_uint_eq(strlen(text), length);
    memset(text, 'x', sizeof text);
    ck_assert_uint_eq(clattn_context_error(context, text, 6), length);
    ck_assert_str_eq(text, "there");
    ck_assert_uint_eq(clattn_context_error(context, text, 1), length);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(clattn_context_error(NULL, text, sizeof text), 0);
}
END_TEST

START_TEST(nothing_is_destroyed) {
    clattn_plan_destroy(NULL);
    clattn_layer_destroy(NULL);
    clattn_context_destroy(NULL);
    char text[8] = "x";
    ck_assert_uint_eq(clattn_plan_workspace_size(NULL), 0);
    ck_assert_uint_eq(clattn_plan_saved_count(NULL), 0);
    ck_assert_uint_eq(clattn_plan_describe(NULL, text, sizeof text), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(clattn_layer_weight_count(NULL), 0);
}
END_TEST

START_TEST(device_facts) {
    clattn_device_info info;
    ck_assert_int_eq(clattn_device_query(NULL, &info), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_device_query(device()->device, NULL), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_device_query(device()->device, &info), CLATTN_SUCCESS);
    ck_assert_uint_gt(strlen(info.name), 0);
    ck_assert_uint_gt(info.max_alloc_bytes, 0);
    ck_assert_str_eq(clattn_version(), CLATTN_VERSION_STRING);
}
END_TEST

/* ---- layers by description ---- */

static const struct {
    clattn_dense_layer_desc desc;
    clattn_status status;
    const char *says[2];
} descs[] = {
    {{.model_size = 0, .heads = 1}, CLATTN_INVALID_ARGUMENT, {"model size is 0", "1.."}},
    {{.model_size = -8, .heads = 1}, CLATTN_INVALID_ARGUMENT, {"model size is -8", "1.."}},
    {{.model_size = INT64_MAX, .heads = 1}, CLATTN_INVALID_ARGUMENT, {"model size is 9223372036854775807", "1.."}},
    {{.model_size = 24, .heads = 0}, CLATTN_INVALID_ARGUMENT, {"heads is 0", "1.."}},
    {{.model_size = 24, .heads = -3}, CLATTN_INVALID_ARGUMENT, {"heads is -3", "1.."}},
    {{.model_size = 24, .heads = 5}, CLATTN_INVALID_ARGUMENT, {"heads is 5", "24"}},
    {{.model_size = 24, .heads = 48}, CLATTN_INVALID_ARGUMENT, {"heads is 48", "24"}},
    {{.model_size = 257, .heads = 1}, CLATTN_UNSUPPORTED, {"257", "256"}},
    {{.model_size = 24, .heads = 3, .scale = NAN}, CLATTN_INVALID_ARGUMENT, {"scale is nan", "finite"}},
    {{.model_size = 24, .heads = 3, .scale = INFINITY}, CLATTN_INVALID_ARGUMENT, {"scale is inf", "finite"}},
};

enum { DESCS = sizeof descs / sizeof *descs };

START_TEST(descriptions_are_checked) {
    clattn_layer *layer = JUNK;
    const clattn_status status = clattn_dense_layer(device()->context, &descs[_i].desc, &layer);
    assert_refused(status, descs[_i].status, descs[_i].says[0]);
    assert_refused(status, descs[_i].status, descs[_i].says[1]);
    ck_assert_ptr_null(layer);
}
END_TEST

START_TEST(layers_need_their_arguments) {
    const clattn_dense_layer_desc desc = {.model_size = 24, .heads = 3};
    clattn_layer *layer = JUNK;
    ck_assert_int_eq(clattn_dense_layer(NULL, &desc, &layer), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_dense_layer(device()->context, &desc, NULL), CLATTN_INVALID_ARGUMENT);
    assert_refused(clattn_dense_layer(device()->context, NULL, &layer), CLATTN_INVALID_ARGUMENT, "description is NULL");
    ck_assert_ptr_null(layer);
}
END_TEST

/* ---- layers by text ---- */

static const struct {
    const char *variant;
    clattn_setting setting;
    clattn_status status;
    const char *says[2];
} texts[] = {
    {"sparse", {NULL, NULL}, CLATTN_UNKNOWN_NAME, {"'sparse'", NULL}},
    {"", {NULL, NULL}, CLATTN_UNKNOWN_NAME, {"''", NULL}},
    {"Dense", {NULL, NULL}, CLATTN_UNKNOWN_NAME, {"'Dense'", NULL}},
    {NULL, {NULL, NULL}, CLATTN_UNKNOWN_NAME, {"(NULL)", NULL}},
    {"dense", {"colour", "red"}, CLATTN_UNKNOWN_NAME, {"dense has no option 'colour'", NULL}},
    {"dense", {"", "red"}, CLATTN_UNKNOWN_NAME, {"dense has no option ''", NULL}},
    {"dense", {"mode", "full"}, CLATTN_UNKNOWN_NAME, {"dense has no option 'mode'", NULL}},
    {"dense", {NULL, "red"}, CLATTN_INVALID_ARGUMENT, {"setting 0 has no name", NULL}},
    {"dense", {"scale", "wide"}, CLATTN_INVALID_ARGUMENT, {"scale is 'wide'", "finite"}},
    {"dense", {"scale", "nan"}, CLATTN_INVALID_ARGUMENT, {"scale is 'nan'", "finite"}},
    {"dense", {"scale", ""}, CLATTN_INVALID_ARGUMENT, {"scale is ''", "finite"}},
    {"dense", {"scale", NULL}, CLATTN_INVALID_ARGUMENT, {"scale", NULL}},
    {"dense", {"causal", "maybe"}, CLATTN_INVALID_ARGUMENT, {"causal", NULL}},
};

enum { TEXTS = sizeof texts / sizeof *texts };

START_TEST(settings_are_checked) {
    clattn_layer *layer = JUNK;
    const size_t count = texts[_i].setting.name || texts[_i].setting.value;
    const clattn_status status = clattn_layer_from_settings(device()->context, texts[_i].variant, 24, 3,
                                                            &texts[_i].setting, count, NULL, 0, &layer);
    assert_refused(status, texts[_i].status, texts[_i].says[0]);
    assert_refused(status, texts[_i].status, texts[_i].says[1]);
    ck_assert_ptr_null(layer);
}
END_TEST

START_TEST(settings_need_their_arguments) {
    clattn_context *context = device()->context;
    clattn_layer *layer = JUNK;
    ck_assert_int_eq(clattn_layer_from_settings(NULL, "dense", 24, 3, NULL, 0, NULL, 0, &layer),
                     CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_layer_from_settings(context, "dense", 24, 3, NULL, 0, NULL, 0, NULL),
                     CLATTN_INVALID_ARGUMENT);
    assert_refused(clattn_layer_from_settings(context, "dense", 24, 3, NULL, 1, NULL, 0, &layer),
                   CLATTN_INVALID_ARGUMENT, "settings is NULL");
    ck_assert_ptr_null(layer);
    layer = JUNK;
    assert_refused(clattn_layer_from_settings(context, "dense", 24, 3, NULL, 0, NULL, 1, &layer),
                   CLATTN_INVALID_ARGUMENT, "checkpoint is NULL");
    ck_assert_ptr_null(layer);
}
END_TEST

/* What every family has in common. */
START_TEST(every_family_checks_alike) {
    const char *name = clattn__variants[_i] ? clattn__variants[_i]->name : NULL;
    clattn_context *context = device()->context;
    clattn_layer *layer = JUNK;
    const clattn_setting unknown = {"colour", "red"};
    if (!name) {
        test_skip("not all families are built");
        return;
    }
    assert_refused(clattn_layer_from_settings(context, name, 24, 3, &unknown, 1, NULL, 0, &layer), CLATTN_UNKNOWN_NAME,
                   "'colour'");
    ck_assert_ptr_null(layer);
    layer = JUNK;
    assert_refused(clattn_layer_from_settings(context, name, 0, 3, NULL, 0, NULL, 0, &layer), CLATTN_INVALID_ARGUMENT,
                   "is 0");
    ck_assert_ptr_null(layer);
    assert_refused(clattn_layer_from_settings(context, name, 24, 0, NULL, 0, NULL, 0, &layer), CLATTN_INVALID_ARGUMENT,
                   "heads is 0");
    assert_refused(clattn_layer_from_settings(context, name, 24, 5, NULL, 0, NULL, 0, &layer), CLATTN_INVALID_ARGUMENT,
                   "5");
    assert_ok(clattn_layer_from_settings(context, name, 24, 3, NULL, 0, NULL, 0, &layer));
    clattn_weight_info info;
    const size_t weights = clattn_layer_weight_count(layer);
    ck_assert_uint_gt(weights, 0);
    for (size_t w = 0; w < weights; w++) {
        ck_assert_int_eq(clattn_layer_weight(layer, w, &info), CLATTN_SUCCESS);
        ck_assert(info.name && info.rank >= 1 && info.rank <= CLATTN_MAX_RANK);
    }
    ck_assert_int_eq(clattn_layer_weight(layer, weights, &info), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_layer_weight(layer, 0, NULL), CLATTN_INVALID_ARGUMENT);
    clattn_layer_destroy(layer);
}
END_TEST

/* ---- plans of a layer ---- */

static const struct {
    clattn_layer_shape shape;
    clattn_status status;
    const char *says[2];
} shapes[] = {
    {{.batch = -1, .length = 5}, CLATTN_INVALID_ARGUMENT, {"batch is -1", "0.."}},
    {{.batch = 1, .length = -5}, CLATTN_INVALID_ARGUMENT, {"length is -5", "0.."}},
    {{.batch = INT64_MAX, .length = 5}, CLATTN_INVALID_ARGUMENT, {"batch is 9223372036854775807", "2147483647"}},
    {{.batch = 1, .length = 1LL << 31}, CLATTN_INVALID_ARGUMENT, {"length is 2147483648", "2147483647"}},
    {{.batch = 1, .length = 5, .links = -1}, CLATTN_INVALID_ARGUMENT, {"links is -1", "0.."}},
    {{.batch = 1, .length = 5, .type = CLATTN_I32}, CLATTN_INVALID_TYPE, {"type is i32", "f32, f16 or bf16"}},
    {{.batch = 1, .length = 5, .type = (clattn_type)-1}, CLATTN_INVALID_TYPE, {"type is ?", "f32, f16 or bf16"}},
    {{.batch = 1, .length = 5, .grad_type = CLATTN_I64}, CLATTN_INVALID_TYPE, {"grad_type is i64", "bf16"}},
    {{.batch = 1, .length = 5, .links = 4}, CLATTN_UNSUPPORTED, {"links", "dense"}},
    {{.batch = INT32_MAX, .length = INT32_MAX},
     CLATTN_UNSUPPORTED,
     {"2147483647 x 2147483647", "allocates at most"}}, /* 2^62 tokens of 24 floats wrap 64 bits */
    {{.batch = 1, .length = INT32_MAX}, CLATTN_UNSUPPORTED, {"bytes", "allocates at most"}},
    {{.batch = 1 << 20, .length = 1 << 20}, CLATTN_UNSUPPORTED, {NULL}},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(shapes_are_checked) {
    const clattn_dense_layer_desc desc = {.model_size = 24, .heads = 3};
    clattn_layer *layer;
    clattn_plan *plan = JUNK;
    assert_ok(clattn_dense_layer(device()->context, &desc, &layer));
    const clattn_status status = clattn_layer_plan(layer, &shapes[_i].shape, &plan);
    assert_refused(status, shapes[_i].status, shapes[_i].says[0]);
    assert_refused(status, shapes[_i].status, shapes[_i].says[1]);
    ck_assert_ptr_null(plan);
    clattn_layer_destroy(layer);
}
END_TEST

START_TEST(plans_need_their_arguments) {
    const clattn_dense_layer_desc desc = {.model_size = 24, .heads = 3};
    const clattn_layer_shape shape = {.batch = 1, .length = 5};
    clattn_layer *layer;
    clattn_plan *plan = JUNK;
    assert_ok(clattn_dense_layer(device()->context, &desc, &layer));
    assert_refused(clattn_layer_plan(layer, NULL, &plan), CLATTN_INVALID_ARGUMENT, "shape is NULL");
    ck_assert_ptr_null(plan);
    ck_assert_int_eq(clattn_layer_plan(layer, &shape, NULL), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_layer_plan(NULL, &shape, &plan), CLATTN_INVALID_ARGUMENT);
    assert_refused(clattn_dense_plan(device()->context, NULL, &plan), CLATTN_INVALID_ARGUMENT, "problem is NULL");
    ck_assert_ptr_null(plan);
    ck_assert_int_eq(clattn_dense_plan(NULL, &(clattn_dense_problem){0}, &plan), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_dense_plan(device()->context, &(clattn_dense_problem){0}, NULL), CLATTN_INVALID_ARGUMENT);
    clattn_layer_destroy(layer);
}
END_TEST

/* Broadcast inputs and an output that overlaps itself cost no memory, but their sizes must not overflow. */
START_TEST(cores_of_any_size) {
    const int64_t extents[] = {INT64_MAX / 16, INT64_C(1) << 40, INT64_C(1) << 20};
    const int64_t e = extents[_i];
    clattn_dense_problem p = {0};
    clattn_plan *plan = JUNK;
    clattn_tensor *const all[] = {&p.q, &p.k, &p.v, &p.o};
    for (int t = 0; t < 4; t++)
        *all[t] = (clattn_tensor){.rank = 4, .shape = {e, e, e, 8}, .stride = {t == 3, t == 3, t == 3, 1}};
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), CLATTN_UNSUPPORTED, "q has more than");
    ck_assert_ptr_null(plan);
}
END_TEST

/* ---- weights ---- */

enum { WEIGHTS = 4 };

/* The weights of a dense layer, and one of them spoilt. */
static void spoil_weight(int how, clattn_tensor *t, size_t *count) {
    switch (how) {
    case 0:
        *count = WEIGHTS - 1;
        break;
    case 1:
        *count = WEIGHTS + 1;
        break;
    case 2:
        t[1].memory = NULL;
        break;
    case 3:
        t[2].type = CLATTN_F16;
        break;
    case 4:
        t[0].shape[0] = 48;
        break;
    case 5:
        t[2].stride[0] = 25;
        break;
    case 6:
        t[3].rank = 2;
        break;
    case 7:
        t[0].offset = 1;
        break;
    case 8:
        t[1] = (clattn_tensor){0};
        break;
    }
}

static const struct {
    clattn_status status;
    const char *says[2];
} spoilt[] = {
    {CLATTN_INVALID_ARGUMENT, {"count is 3", "4"}},
    {CLATTN_INVALID_ARGUMENT, {"count is 5", "4"}},
    {CLATTN_INVALID_ARGUMENT, {"in_proj_bias is missing", NULL}},
    {CLATTN_INVALID_TYPE, {"out_proj.weight is f16", "f32"}},
    {CLATTN_INVALID_SHAPE, {"in_proj_weight is f32 [48, 24]", "[72, 24]"}},
    {CLATTN_INVALID_SHAPE, {"out_proj.weight is f32", "[25, 1]"}},
    {CLATTN_INVALID_SHAPE, {"out_proj.bias is f32 [24, 0]", "[24]"}},
    {CLATTN_INVALID_BUFFER, {"in_proj_weight: ", "6912 bytes, but 6916"}},
    {CLATTN_INVALID_ARGUMENT, {"in_proj_bias is missing", NULL}},
};

enum { SPOILT = sizeof spoilt / sizeof *spoilt };

/* A load that was refused queued nothing, and the layer still has no weights. */
START_TEST(weights_are_checked) {
    const clattn_dense_layer_desc desc = {.model_size = 24, .heads = 3};
    const fixture *f = device();
    clattn_layer *layer;
    clattn_plan *plan;
    clattn_tensor tensors[WEIGHTS + 1] = {{0}};
    size_t count = WEIGHTS;
    assert_ok(clattn_dense_layer(f->context, &desc, &layer));
    for (size_t w = 0; w < WEIGHTS; w++) {
        clattn_weight_info info;
        assert_ok(clattn_layer_weight(layer, w, &info));
        const size_t floats = (size_t)info.shape[0] * (info.rank > 1 ? (size_t)info.shape[1] : 1);
        cl_mem memory = clCreateBuffer(f->cl, CL_MEM_READ_WRITE, floats * 4, NULL, NULL);
        tensors[w] = clattn_tensor_make(memory, CLATTN_F32, info.rank, info.shape);
    }
    cl_mem held[WEIGHTS];
    for (int w = 0; w < WEIGHTS; w++)
        held[w] = tensors[w].memory;
    spoil_weight(_i, tensors, &count);
    cl_event event = JUNK;
    spy_reset();
    const clattn_status status = clattn_layer_load(layer, f->queue, tensors, count, 0, NULL, &event);
    ck_assert_int_eq(spy_count(SPY_KERNEL), 0);
    ck_assert_ptr_null(event);
    assert_refused(status, spoilt[_i].status, spoilt[_i].says[0]);
    assert_refused(status, spoilt[_i].status, spoilt[_i].says[1]);
    assert_ok(clattn_layer_plan(layer, &(clattn_layer_shape){.batch = 1, .length = 5}, &plan));
    assert_refused(clattn_enqueue(plan, f->queue, tensors, CLATTN_LAYER_SLOTS, NULL, 0, NULL, NULL),
                   CLATTN_INVALID_STATE, "no weights");
    clattn_plan_destroy(plan);
    clattn_layer_destroy(layer);
    for (int w = 0; w < WEIGHTS; w++)
        clReleaseMemObject(held[w]);
}
END_TEST

START_TEST(loading_needs_its_arguments) {
    const clattn_dense_layer_desc desc = {.model_size = 24, .heads = 3};
    clattn_layer *layer;
    assert_ok(clattn_dense_layer(device()->context, &desc, &layer));
    ck_assert_int_eq(clattn_layer_load(NULL, device()->queue, NULL, 0, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT);
    assert_refused(clattn_layer_load(layer, device()->queue, NULL, WEIGHTS, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT,
                   "tensors is NULL");
    assert_refused(clattn_layer_load(layer, NULL, NULL, WEIGHTS, 0, NULL, NULL), CLATTN_INVALID_ARGUMENT,
                   "queue is NULL");
    clattn_layer_destroy(layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("make");
    TCase *make = tcase_create("make");
    tcase_add_test(make, contexts_need_their_arguments);
    tcase_add_test(make, a_context_of_no_engine);
    tcase_add_test(make, the_last_error_is_cut_to_size);
    tcase_add_test(make, nothing_is_destroyed);
    tcase_add_test(make, device_facts);
    tcase_add_loop_test(make, descriptions_are_checked, 0, DESCS);
    tcase_add_test(make, layers_need_their_arguments);
    tcase_add_loop_test(make, settings_are_checked, 0, TEXTS);
    tcase_add_test(make, settings_need_their_arguments);
    tcase_add_loop_test(make, every_family_checks_alike, 0, 5);
    tcase_add_loop_test(make, shapes_are_checked, 0, SHAPES);
    tcase_add_test(make, plans_need_their_arguments);
    tcase_add_loop_test(make, cores_of_any_size, 0, 3);
    tcase_add_loop_test(make, weights_are_checked, 0, SPOILT);
    tcase_add_test(make, loading_needs_its_arguments);
    suite_add_tcase(suite, make);
    return run_device_suite(suite);
}
