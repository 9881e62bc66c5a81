/* Launches: arguments, work sizes, failures. */
#include <check.h>
#include <string.h>

#include "rig.h"

START_TEST(groups_past_the_kernels_limit_do_not_fit) {
    char name[] = "big";
    clattn__kernel kernel = {.name = name, .max_group = 64};
    clattn__error error = {0};
    ck_assert_int_eq(clattn__kernel_fits(&kernel, (const size_t[3]){8, 8, 1}, &error), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__kernel_fits(&kernel, (const size_t[3]){13, 5, 1}, &error), CLATTN_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.text, "64"));
    ck_assert_ptr_nonnull(strstr(error.text, "65"));
}
END_TEST

static const size_t range[3] = {8, 1, 1};

START_TEST(launch_runs) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *kernel = rig_kernel(runtime, 5);
    ck_assert(rig_run(&r, kernel, 5));
    ck_assert(rig_run(&r, kernel, 5));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

START_TEST(launch_counts_arguments) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *kernel = rig_kernel(runtime, 5);
    clattn__launch launch;
    clattn__error error = {0};
    clattn__launch_begin(&launch, kernel);
    clattn__launch_memory(&launch, NULL);
    clattn__launch_long(&launch, 0);
    clattn__launch_int(&launch, 0);
    ck_assert_int_eq(clattn__launch_end(&launch, r.queue, range, range, 0, NULL, NULL, &error), CL_INVALID_KERNEL_ARGS);
    ck_assert_ptr_nonnull(strstr(error.text, "fill takes 4 arguments, 3 were given"));

    error = (clattn__error){0};
    clattn__launch_begin(&launch, kernel);
    for (int i = 0; i < 5; i++)
        clattn__launch_memory(&launch, NULL);
    ck_assert_int_eq(clattn__launch_end(&launch, r.queue, range, range, 0, NULL, NULL, &error), CL_INVALID_KERNEL_ARGS);
    ck_assert_ptr_nonnull(strstr(error.text, "5 were given"));
    ck_assert(rig_run(&r, kernel, 5)); /* the lock is free again */
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

START_TEST(launch_keeps_the_first_failure) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *kernel = rig_kernel(runtime, 5);
    clattn__launch launch;
    clattn__error error = {0};
    clattn__launch_begin(&launch, kernel);
    clattn__launch_memory(&launch, NULL);
    clattn__launch_int(&launch, 0); /* a long is due */
    clattn__launch_int(&launch, 0);
    clattn__launch_float(&launch, 0);
    ck_assert_int_eq(clattn__launch_end(&launch, r.queue, range, range, 0, NULL, NULL, &error), CL_INVALID_ARG_SIZE);
    ck_assert_ptr_nonnull(strstr(error.text, "fill, argument 1"));
    ck_assert(rig_run(&r, kernel, 5));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

START_TEST(launch_takes_null_memory_and_reports_the_queue) {
    const size_t uneven[3] = {3, 1, 1};
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *kernel = rig_kernel(runtime, 5);
    for (int bad = 0; bad < 2; bad++) {
        clattn__launch launch;
        clattn__error error = {0};
        clattn__launch_begin(&launch, kernel);
        clattn__launch_memory(&launch, NULL);
        clattn__launch_long(&launch, 0);
        clattn__launch_int(&launch, 0); /* no element is written */
        clattn__launch_float(&launch, 0);
        clattn_status status = clattn__launch_end(&launch, r.queue, range, bad ? uneven : range, 0, NULL, NULL, &error);
        ck_assert_int_eq(status, bad ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS);
        ck_assert(!bad || strstr(error.text, "8 x 1 x 1 work-items in groups of 3 x 1 x 1"));
    }
    ck_assert_int_eq(clFinish(r.queue), CL_SUCCESS);
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("launch");
    TCase *launches = tcase_create("launches");
    tcase_add_checked_fixture(launches, rig_setup, rig_teardown);
    tcase_add_test(launches, groups_past_the_kernels_limit_do_not_fit);
    tcase_add_test(launches, launch_runs);
    tcase_add_test(launches, launch_counts_arguments);
    tcase_add_test(launches, launch_keeps_the_first_failure);
    tcase_add_test(launches, launch_takes_null_memory_and_reports_the_queue);
    suite_add_tcase(suite, launches);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
