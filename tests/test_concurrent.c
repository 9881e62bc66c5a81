/* First calls of many threads and many processes at once. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum { PROCESSES = 8, THREADS = 8, PROGRAMS = 2 };

static void *first_call(void *runtime) {
    clattn__kernel *kernel;
    const clattn__define define = {"VALUE", 1};
    return clattn__kernel_get(runtime, "fill", "fill", &define, 1, &kernel, NULL) ? NULL : kernel;
}

START_TEST(threads_compile_once) {
    rig r = rig_open();
    pthread_t threads[THREADS];
    void *kernels[THREADS];
    clattn__runtime *runtime = rig_runtime(&r);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, first_call, runtime), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], &kernels[i]), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert(kernels[i] && kernels[i] == kernels[0]);
    ck_assert_int_eq(rig_logged("compiled in"), 1);
    ck_assert(rig_run(&r, kernels[0], 1));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

typedef struct launcher {
    const rig *r;
    clattn__kernel *kernel;
    bool right;
} launcher;

static void *launch_often(void *argument) {
    launcher *l = argument;
    l->right = true;
    for (int i = 0; i < 50; i++)
        l->right &= rig_run(l->r, l->kernel, 1);
    return NULL;
}

/* Arguments of one kernel set from many threads: each launch reads its own buffer. */
START_TEST(threads_share_a_kernel) {
    rig r = rig_open();
    pthread_t threads[THREADS];
    launcher launchers[THREADS];
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *kernel = rig_kernel(runtime, 1);
    for (int i = 0; i < THREADS; i++) {
        launchers[i] = (launcher){.r = &r, .kernel = kernel};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_often, &launchers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert(launchers[i].right);
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

/* What each of the processes does: this program, started again with one argument. */
START_TEST(fill_cache) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    for (int i = 0; i < PROGRAMS; i++)
        ck_assert(rig_run(&r, rig_kernel(runtime, i), i));
    clattn__runtime_release(runtime);
    ck_assert_int_eq(rig_logged("are not kept"), 0);
    rig_close(&r);
}
END_TEST

START_TEST(processes_fill_one_cache) {
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            execl("/proc/self/exe", "test_concurrent", "fill", (char *)NULL);
            _exit(127);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status 0x%x", i, (unsigned)status);
    }
    ck_assert_int_eq(rig_count_files("cache", ".bin"), PROGRAMS);
    ck_assert_int_eq(rig_count_files("cache", ""), PROGRAMS); /* no temporary file is left */
    rig r = rig_open();
    for (int i = 0; i < PROGRAMS; i++)
        ck_assert(!rig_compiles(&r, i));
    rig_close(&r);
}
END_TEST

static Suite *many_suite(void) {
    Suite *suite = suite_create("concurrent");
    TCase *tests = tcase_create("many");
    tcase_add_checked_fixture(tests, rig_setup, rig_teardown);
    tcase_add_test(tests, threads_compile_once);
    tcase_add_test(tests, threads_share_a_kernel);
    tcase_add_test(tests, processes_fill_one_cache);
    suite_add_tcase(suite, tests);
    return suite;
}

static Suite *fill_suite(void) {
    Suite *suite = suite_create("fill");
    TCase *tests = tcase_create("fill");
    tcase_add_test(tests, fill_cache);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(int argc, char **argv) {
    bool fill = argc > 1 && !strcmp(argv[1], "fill");
    SRunner *runner = srunner_create(fill ? fill_suite() : many_suite());
    if (fill) {
        unsetenv("CK_RUN_CASE"); /* it chose among the parent's cases */
        srunner_set_fork_status(runner, CK_NOFORK);
    }
    srunner_run_all(runner, fill ? CK_SILENT : CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
