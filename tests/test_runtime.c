/* Capabilities, sources and builds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "folder.h"
#include "rig.h"
#include "runtime/caps.h"
#include "runtime/source.h"

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

/* ---- capabilities ---- */

START_TEST(caps_are_filled) {
    rig r = rig_open();
    clattn__caps caps;
    clattn__error error = {0};
    ck_assert_msg(clattn__caps_query(r.device, &caps, &error) == CLATTN_SUCCESS, "%s", error.text);
    ck_assert_str_ne(caps.name, "");
    ck_assert_str_ne(caps.platform, "");
    ck_assert_int_eq(strncmp(caps.device_version, "OpenCL ", 7), 0);
    ck_assert_uint_ge(caps.vector_width_f32, 1);
    ck_assert_uint_ge(caps.compute_units, 1);
    ck_assert_uint_ge(caps.max_work_group, 1);
    ck_assert_uint_ge(caps.max_work_item[2], 1);
    ck_assert_uint_ge(caps.global_bytes, caps.max_alloc_bytes);
    ck_assert_uint_gt(caps.local_bytes, 0);
    ck_assert(caps.compiler);
    rig_close(&r);
}
END_TEST

START_TEST(caps_hide_features_and_quirks) {
    clattn__caps caps = {.fp16 = true, .fp64 = true, .subgroups = true, .quirks = CLATTN__QUIRK_LATE_BINARY};
    ck_assert_int_eq(clattn__caps_apply("-fp16,-subgroups", &caps, NULL), CLATTN_SUCCESS);
    ck_assert(!caps.fp16 && caps.fp64 && !caps.subgroups);
    ck_assert_int_eq(clattn__caps_apply("-LATE_BINARY,+NO_NATIVE_EXP,-fp64", &caps, NULL), CLATTN_SUCCESS);
    ck_assert(!caps.fp64);
    ck_assert_uint_eq(caps.quirks, CLATTN__QUIRK_NO_NATIVE_EXP);
    ck_assert_int_eq(clattn__caps_apply(NULL, &caps, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__caps_apply("", &caps, NULL), CLATTN_SUCCESS);
}
END_TEST

START_TEST(quirks_follow_from_the_device) {
    static const struct {
        clattn__caps caps;
        uint32_t quirks;
    } devices[] = {
        {{.kind = CLATTN__CPU, .platform = "Portable Computing Language"},
         CLATTN__QUIRK_LATE_BINARY | CLATTN__QUIRK_ALIGNED_HALF},
        {{.kind = CLATTN__GPU, .platform = "Portable Computing Language", .vendor = "NVIDIA Corporation"},
         CLATTN__QUIRK_LATE_BINARY | CLATTN__QUIRK_ALIGNED_HALF | CLATTN__QUIRK_NO_NATIVE_EXP},
        {{.kind = CLATTN__GPU, .platform = "NVIDIA CUDA", .vendor = "NVIDIA Corporation"}, 0},
        {{.kind = CLATTN__CPU, .platform = "Intel(R) OpenCL", .vendor = "Intel(R) Corporation"},
         CLATTN__QUIRK_NO_NATIVE_EXP},
        {{.kind = CLATTN__GPU, .platform = "Intel(R) OpenCL Graphics", .vendor = "Intel(R) Corporation"}, 0},
    };
    ck_assert_uint_eq(clattn__quirks_of(&devices[_i].caps), devices[_i].quirks);
}
END_TEST

START_TEST(caps_refuse_unknown_names) {
    static const char *const wrong[] = {"-fp8", "fp16", "+fp16", "-fp16 ", "-NO_SUCH_QUIRK", "-fp16,-fp64x"};
    clattn__caps caps = {0};
    clattn__error error = {0};
    ck_assert_int_eq(clattn__caps_apply(wrong[_i], &caps, &error), CLATTN_UNKNOWN_NAME);
    const char *item = strrchr(wrong[_i], ',');
    ck_assert_ptr_nonnull(strstr(error.text, item ? item + 1 : wrong[_i]));
}
END_TEST

START_TEST(caps_come_from_the_environment) {
    rig r = rig_open();
    clattn__caps caps;
    clattn__error error = {0};
    setenv("CLATTN_CAPS", "-fp64,+NO_NATIVE_EXP", 1);
    ck_assert_int_eq(clattn__caps_query(r.device, &caps, &error), CLATTN_SUCCESS);
    ck_assert(!caps.fp64);
    ck_assert_uint_ne(caps.quirks & CLATTN__QUIRK_NO_NATIVE_EXP, 0);
    setenv("CLATTN_CAPS", "-warp-drive", 1);
    clattn__runtime *runtime = (clattn__runtime *)&r;
    ck_assert_int_eq(clattn__runtime_create(r.context, r.device, "", NULL, &runtime, &error), CLATTN_UNKNOWN_NAME);
    ck_assert_ptr_null(runtime);
    ck_assert_ptr_nonnull(strstr(error.text, "-warp-drive"));
    rig_close(&r);
}
END_TEST

START_TEST(quirks_have_names) {
    char text[64], cut[8];
    clattn__quirk_names(0, text, sizeof text);
    ck_assert_str_eq(text, "");
    clattn__quirk_names(CLATTN__QUIRK_LATE_BINARY | CLATTN__QUIRK_NO_NATIVE_EXP, text, sizeof text);
    ck_assert_str_eq(text, "NO_NATIVE_EXP,LATE_BINARY");
    clattn__quirk_names(CLATTN__QUIRK_LATE_BINARY | CLATTN__QUIRK_NO_NATIVE_EXP, cut, sizeof cut);
    ck_assert_str_eq(cut, "NO_NATI");
}
END_TEST

START_TEST(options_are_sorted_and_hold_quirks) {
    const clattn__define defines[] = {{"WG", 1}, {"D", -64}, {"BIG", INT64_C(1) << 40}};
    char *text = clattn__program_options(CLATTN__QUIRK_NO_NATIVE_EXP, defines, 3);
    ck_assert_str_eq(text, "-cl-std=CL1.2 -DQUIRK_NO_NATIVE_EXP=1 -DBIG=1099511627776 -DD=-64 -DWG=1");
    free(text);
    text = clattn__program_options(0, NULL, 0);
    ck_assert_str_eq(text, "-cl-std=CL1.2");
    free(text);
}
END_TEST

/* ---- sources ---- */

START_TEST(sources_are_embedded) {
    char *text;
    clattn__error error = {0};
    unsetenv("CLATTN_KERNEL_PATH");
    ck_assert_msg(clattn__source_expand("gemm", &text, &error) == CLATTN_SUCCESS, "%s", error.text);
    ck_assert_ptr_nonnull(strstr(text, "#line 1 \"gemm.cl\"\n"));
    ck_assert_int_eq(count_of(text, "#line 1 \"include/types.h\"\n"), 1);
    ck_assert_int_eq(count_of(text, "#include"), 0);
    clattn__source_keep(text, "gemm_linear");
    ck_assert_int_eq(count_of(text, "__kernel"), 1);
    free(text);
    ck_assert_int_eq(clattn__source_expand("nothing", &text, &error), CLATTN_IO_FAILED);
    ck_assert_ptr_null(text);
    ck_assert_ptr_nonnull(strstr(error.text, "cl/nothing.cl"));
}
END_TEST

START_TEST(headers_come_once_with_line_markers) {
    char *text;
    clattn__error error = {0};
    rig_write("kernels/two.cl", "first\n#include \"a.h\"\n  #  include \"b.h\" // why\n#include <c.h>\nlast");
    rig_write("kernels/include/a.h", "#include \"b.h\"\nin a\n");
    rig_write("kernels/include/b.h", "#include \"a.h\"\nin b\n");
    ck_assert_msg(clattn__source_expand("two", &text, &error) == CLATTN_SUCCESS, "%s", error.text);
    ck_assert_str_eq(text, "#line 1 \"two.cl\"\nfirst\n#line 1 \"include/a.h\"\n#line 1 \"include/b.h\"\n\nin b\n"
                           "#line 2 \"include/a.h\"\nin a\n#line 3 \"two.cl\"\n\n#include <c.h>\nlast\n");
    free(text);
}
END_TEST

START_TEST(missing_files_are_named) {
    char *text, *path = folder_path("kernels/include/absent.h");
    clattn__error error = {0};
    rig_write("kernels/lone.cl", "#include \"absent.h\"\n");
    ck_assert_int_eq(clattn__source_expand("lone", &text, &error), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    free(path);
    error = (clattn__error){0};
    path = folder_path("kernels/gemm.cl");
    ck_assert_int_eq(clattn__source_expand("gemm", &text, &error), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    free(path);
}
END_TEST

static void expect_kept(const char *source, const char *kernel, const char *expected) {
    char text[512];
    snprintf(text, sizeof text, "%s", source);
    clattn__source_keep(text, kernel);
    ck_assert_str_eq(text, expected);
}

START_TEST(one_kernel_is_kept) {
    const char *three = "int help(void) {\n}\n__kernel void a(int x) {\n  if (x) {\n  }\n}\nint b(void);\n"
                        "__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void\nab(int x,\n int y) {\n}\n"
                        "__kernel void c(void) {}\nlast";
    expect_kept(three, "a",
                "int help(void) {\n}\n__kernel void a(int x) {\n  if (x) {\n  }\n}\nint b(void);\n\n\n\n\n\nlast");
    expect_kept(three, "ab",
                "int help(void) {\n}\n\n\n\n\nint b(void);\n"
                "__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void\nab(int x,\n int y) {\n}\n\nlast");
    expect_kept(three, "c", "int help(void) {\n}\n\n\n\n\nint b(void);\n\n\n\n\n__kernel void c(void) {}\nlast");
    expect_kept(three, "b", "int help(void) {\n}\n\n\n\n\nint b(void);\n\n\n\n\n\nlast");
    const char *pure = "__attribute__((pure)) int f(void) {\n}\n__kernel void a(void) {\n}\n";
    expect_kept(pure, "a", pure);
    expect_kept("__kernel void a_b(void) {\n}\nint b(void);\n", "b", "\n\nint b(void);\n");
    expect_kept("__kernel void a(void) {\n  x }\n__kernel void b(void) {\n}\n", "b",
                "__kernel void a(void) {\n  x }\n__kernel void b(void) {\n}\n");
    expect_kept("__kernel void a(void) {\n}\n__kernel void CAT(b)(void) {\n}\n", "b2",
                "__kernel void a(void) {\n}\n__kernel void CAT(b)(void) {\n}\n");
    expect_kept("__kernel void a(void) {\n}\n__kernel void b(void) {\n}", "a", "__kernel void a(void) {\n}\n\n");
    expect_kept("", "b", "");
}
END_TEST

/* ---- runtime ---- */

START_TEST(runtime_checks_its_handles) {
    rig r = rig_open();
    clattn__runtime *runtime;
    clattn__error error = {0};
    ck_assert_int_eq(clattn__runtime_create(NULL, r.device, "", NULL, &runtime, &error), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn__runtime_create(r.context, NULL, "", NULL, &runtime, NULL), CLATTN_INVALID_ARGUMENT);
    clattn__runtime_release(NULL);
    rig_close(&r);
}
END_TEST

/* A sub-device is a device of its own that the context does not hold. */
START_TEST(runtime_refuses_a_foreign_device) {
    const cl_device_partition_property halves[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    rig r = rig_open();
    cl_device_id parts[64];
    cl_uint count = 0;
    clattn__runtime *runtime;
    clattn__error error = {0};
    if (clCreateSubDevices(r.device, halves, 64, parts, &count) == CL_SUCCESS) {
        ck_assert_int_eq(clattn__runtime_create(r.context, parts[0], "", NULL, &runtime, &error),
                         CLATTN_INVALID_CONTEXT);
        for (cl_uint i = 0; i < count; i++)
            clReleaseDevice(parts[i]);
    }
    rig_close(&r);
}
END_TEST

START_TEST(runtime_outlives_the_callers_handles) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__runtime_retain(runtime);
    clattn__runtime_release(runtime);
    rig_close(&r);
    ck_assert_ptr_nonnull(rig_kernel(runtime, 1));
    clattn__runtime_release(runtime);
}
END_TEST

/* ---- builds ---- */

static clattn_status get(clattn__runtime *runtime, const char *file, const char *name, clattn__error *error) {
    const clattn__define define = {"VALUE", 7};
    clattn__kernel *kernel = (clattn__kernel *)&define;
    clattn_status status = clattn__kernel_get(runtime, file, name, &define, 1, &kernel, error);
    ck_assert(status == CLATTN_SUCCESS || kernel == NULL);
    return status;
}

START_TEST(compile_errors_name_file_and_line) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__error error = {0};
    rig_write("kernels/include/bad.h", "\n\nint f(void) { return no_such_name; }\n");
    rig_write("kernels/bad.cl", "#include \"step.h\"\n#include \"bad.h\"\n__kernel void bad(void) {}\n");
    ck_assert_int_eq(get(runtime, "bad", "bad", &error), CLATTN_BUILD_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "kernel bad of bad.cl"));
    ck_assert_ptr_nonnull(strstr(error.text, "-DVALUE=7"));
    ck_assert_ptr_nonnull(strstr(error.text, "include/bad.h:3"));
    ck_assert_int_eq(rig_logged("include/bad.h:3"), 1);

    rig_write("kernels/bad.cl", "#include \"step.h\"\n#include \"step.h\"\n__kernel void bad(void) { nor_this; }\n");
    error = (clattn__error){0};
    ck_assert_int_eq(get(runtime, "bad", "bad", &error), CLATTN_BUILD_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "bad.cl:3"));

    rig_write("kernels/bad.cl", "__kernel void bad(void) {}\n");
    ck_assert_int_eq(get(runtime, "bad", "bad", NULL), CLATTN_SUCCESS);
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

/* The beginning of a long log is what helps, and it must fit beside long options. */
START_TEST(compile_errors_keep_the_first_words) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__error error = {0};
    char source[8192] = "#error FIRST\n";
    for (int i = 0; i < 200; i++)
        strcat(source, "#error another one\n");
    rig_write("kernels/long.cl", source);
    ck_assert_int_eq(get(runtime, "long", "long", &error), CLATTN_BUILD_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "FIRST"));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

START_TEST(unknown_kernels_are_named) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__error error = {0};
    ck_assert_int_eq(get(runtime, "fill", "spill", &error), CL_INVALID_KERNEL_NAME);
    ck_assert_ptr_nonnull(strstr(error.text, "spill of fill.cl"));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

START_TEST(defines_in_any_order_are_one_program) {
    const clattn__define one[] = {{"VALUE", 1}, {"OTHER", 2}}, two[] = {{"OTHER", 2}, {"VALUE", 1}};
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *a, *b;
    ck_assert_int_eq(clattn__kernel_get(runtime, "fill", "fill", one, 2, &a, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__kernel_get(runtime, "fill", "fill", two, 2, &b, NULL), CLATTN_SUCCESS);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(rig_logged("compiled in"), 1);
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

static TCase *group(Suite *suite, const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, rig_setup, rig_teardown);
    suite_add_tcase(suite, tests);
    return tests;
}

static void add_device_tests(Suite *suite) {
    TCase *builds = group(suite, "builds");
    tcase_add_test(builds, runtime_checks_its_handles);
    tcase_add_test(builds, runtime_refuses_a_foreign_device);
    tcase_add_test(builds, runtime_outlives_the_callers_handles);
    tcase_add_test(builds, compile_errors_name_file_and_line);
    tcase_add_test(builds, compile_errors_keep_the_first_words);
    tcase_add_test(builds, unknown_kernels_are_named);
    tcase_add_test(builds, defines_in_any_order_are_one_program);
}

int main(void) {
    Suite *suite = suite_create("runtime");
    TCase *caps = group(suite, "caps"), *sources = group(suite, "sources");
    tcase_add_test(caps, caps_are_filled);
    tcase_add_test(caps, caps_hide_features_and_quirks);
    tcase_add_loop_test(caps, quirks_follow_from_the_device, 0, 5);
    tcase_add_loop_test(caps, caps_refuse_unknown_names, 0, 6);
    tcase_add_test(caps, caps_come_from_the_environment);
    tcase_add_test(caps, quirks_have_names);
    tcase_add_test(caps, options_are_sorted_and_hold_quirks);
    tcase_add_test(sources, sources_are_embedded);
    tcase_add_test(sources, headers_come_once_with_line_markers);
    tcase_add_test(sources, missing_files_are_named);
    tcase_add_test(sources, one_kernel_is_kept);
    add_device_tests(suite);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
