/* Tuning files: what they may say, and the sentence of each mistake. */
#include <clattn/clattn.h>
#include <stdlib.h>
#include <string.h>

#include "core/tuning.h"
#include "harness/device.h"

static clattn__target target_of(clattn__device_kind kind) {
    const clattn__caps caps = {.kind = kind,
                               .vector_width_f32 = 8,
                               .local_bytes = 49152,
                               .max_work_group = 256,
                               .max_work_item = {256, 256, 64}};
    clattn__target target;
    memset(&target, 0, sizeof target);
    clattn__target_choose(&caps, CLATTN_GEMM_TILE, &target);
    return target;
}

static clattn_status apply(const char *text, clattn__target *target, clattn__error *error) {
    *error = (clattn__error){0};
    return clattn__tuning_apply("t.json", text, strlen(text), target, error);
}

START_TEST(numbers_override_the_table) {
    clattn__target target = target_of(CLATTN__CPU), before = target;
    clattn__error error;
    ck_assert_int_eq(apply("{\"attention\": {\"bm\": 18, \"tm\": 3}}", &target, &error), CLATTN_SUCCESS);
    ck_assert_int_eq(target.attention.bm, 18);
    ck_assert_int_eq(target.attention.tm, 3);
    ck_assert_int_eq(target.attention.bn, before.attention.bn);
    ck_assert_mem_eq(&target.gemm, &before.gemm, sizeof before.gemm);
    ck_assert_int_eq(apply("{}", &target, &error), CLATTN_SUCCESS);
}
END_TEST

static const struct {
    const char *text;
    clattn_status status;
    const char *sentence;
} mistakes[] = {
    {"", CLATTN_INVALID_ARGUMENT, "t.json: line 1"},
    {"{\"gemm\": {\"bm\": 12,}}", CLATTN_INVALID_ARGUMENT, "t.json: line 1"},
    {"{} x", CLATTN_INVALID_ARGUMENT, "t.json: line 1"},
    {"[]", CLATTN_INVALID_ARGUMENT, "t.json: not an object"},
    {"{\"gem\": {}}", CLATTN_INVALID_ARGUMENT, "t.json: there is no 'gem'; known are gemm, attention"},
    {"{\"gemm\": 3}", CLATTN_INVALID_ARGUMENT, "t.json: gemm is not an object"},
    {"{\"gemm\": {\"bk\": 3}}", CLATTN_INVALID_ARGUMENT, "t.json: gemm has no number 'bk'"},
    {"{\"attention\": {\"kb\": 32}}", CLATTN_INVALID_ARGUMENT, "t.json: attention has no number 'kb'"},
    {"{\"gemm\": {\"bm\": 4.5}}", CLATTN_INVALID_ARGUMENT, "t.json: gemm.bm is not a whole number"},
    {"{\"gemm\": {\"bm\": 48, \"bm\": 48}}", CLATTN_INVALID_ARGUMENT, "duplicate"},
    {"{\"gemm\": {\"bm\": 0}}", CLATTN_INVALID_ARGUMENT, "t.json: gemm.bm is 0, but must be in 1..1024"},
    {"{\"gemm\": {\"wg\": 9999999999}}", CLATTN_INVALID_ARGUMENT, "gemm.wg is 9999999999, but must be in 1..1024"},
    {"{\"gemm\": {\"kb\": 8}}", CLATTN_INVALID_ARGUMENT, "gemm.kb is 8, but must be in 16..512"},
    {"{\"gemm\": {\"vw\": 2}}", CLATTN_INVALID_ARGUMENT, "gemm.vw is 2, but must be 1, 4, 8 or 16"},
    {"{\"gemm\": {\"tnv\": 3}}", CLATTN_INVALID_ARGUMENT, "gemm.pw is 16, which is no multiple of tnv*vw, 24"},
    {"{\"gemm\": {\"tm\": 5}}", CLATTN_INVALID_ARGUMENT, "gemm.bm is 24, which is no multiple of tm, 5"},
    {"{\"attention\": {\"bn\": 40}}", CLATTN_INVALID_ARGUMENT, "attention.bn is 40, which is no multiple of pw, 16"},
    {"{\"attention\": {\"pw\": 32}}", CLATTN_INVALID_ARGUMENT, "gemm.pw is 16, but attention.pw is 32"},
    {"{\"gemm\": {\"wg\": 512}}", CLATTN_UNSUPPORTED, "t.json: gemm.wg is 512, the device allows work-groups of 256"},
    {"{\"gemm\": {\"wg\": 64, \"bm\": 96, \"kb\": 256}}", CLATTN_UNSUPPORTED,
     "t.json: gemm needs up to 98304 bytes of local memory, the device has 49152"},
};

START_TEST(mistakes_are_named) {
    clattn__target target = target_of(CLATTN__CPU), before = target;
    clattn__error error;
    ck_assert_int_eq(apply(mistakes[_i].text, &target, &error), mistakes[_i].status);
    ck_assert_msg(strstr(error.text, mistakes[_i].sentence), "\"%s\" does not hold \"%s\"", error.text,
                  mistakes[_i].sentence);
    ck_assert_mem_eq(&target, &before, sizeof target);
}
END_TEST

START_TEST(files_are_read) {
    clattn__target target = target_of(CLATTN__CPU);
    clattn__error error = {0};
    ck_assert_int_eq(clattn__tuning_load(NULL, &target, &error), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__tuning_load("", &target, &error), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__tuning_load("no/such/file.json", &target, &error), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "no/such/file.json"));
}
END_TEST

/* The environment's file is part of creating a context. */
START_TEST(contexts_read_the_file) {
    clattn_context *context = NULL;
    const char *kept = getenv("CLATTN_TUNING");
    char *before = kept ? strdup(kept) : NULL;
    setenv("CLATTN_TUNING", "no/such/file.json", 1);
    ck_assert_int_eq(clattn_context_create(device()->cl, device()->device, NULL, &context), CLATTN_IO_FAILED);
    ck_assert_ptr_null(context);
    if (before)
        setenv("CLATTN_TUNING", before, 1);
    else
        unsetenv("CLATTN_TUNING");
    free(before);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tuning");
    TCase *files = tcase_create("files");
    tcase_add_test(files, numbers_override_the_table);
    tcase_add_loop_test(files, mistakes_are_named, 0, sizeof(mistakes) / sizeof(*mistakes));
    tcase_add_test(files, files_are_read);
    tcase_add_test(files, contexts_read_the_file);
    suite_add_tcase(suite, files);
    return run_device_suite(suite);
}
