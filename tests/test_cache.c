/* The cache of compiled programs: keys, folders, damaged entries, dumps. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "folder.h"
#include "rig.h"
#include "runtime/cache.h"

/* ---- helpers ---- */

/* Path of the only entry in the cache. */
static char *only_entry(void) {
    char *folder = folder_path("cache"), *path = NULL;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.') {
            ck_assert_ptr_null(path);
            path = clattn__path_join(folder, entry->d_name);
        }
    closedir(dir);
    free(folder);
    ck_assert_ptr_nonnull(path);
    return path;
}

static void write_entry(const char *path, const char *data, size_t size) {
    ck_assert_int_eq(clattn__file_write(path, data, size, NULL), CLATTN_SUCCESS);
}

/* ---- keys ---- */

START_TEST(key_changes_with_each_ingredient) {
    clattn__caps caps[8];
    clattn__hash keys[11];
    int count = 0;
    for (int i = 0; i < 8; i++)
        caps[i] = (clattn__caps){.name = "n", .vendor = "v", .platform = "p", .platform_version = "pv"};
    strcpy(caps[1].name, "N");
    strcpy(caps[2].vendor, "V");
    strcpy(caps[3].platform, "P");
    strcpy(caps[4].platform_version, "PV");
    strcpy(caps[5].driver_version, "D");
    strcpy(caps[6].device_version, "E");
    strcpy(caps[7].name, "nv"); /* the same letters, cut elsewhere */
    strcpy(caps[7].vendor, "");
    for (int i = 0; i < 8; i++)
        keys[count++] = clattn__program_key(&caps[i], "1", "source", "options");
    keys[count++] = clattn__program_key(&caps[0], "2", "source", "options");
    keys[count++] = clattn__program_key(&caps[0], "1", "sourceX", "options");
    keys[count++] = clattn__program_key(&caps[0], "1", "source", "optionsX");
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            ck_assert_msg(strcmp(keys[i].hex, keys[j].hex) != 0, "keys %d and %d are equal", i, j);
    ck_assert_str_eq(keys[0].hex, clattn__program_key(&caps[0], "1", "source", "options").hex);
}
END_TEST

/* PoCL's binaries depend on it; others do not. */
START_TEST(key_knows_how_pocl_launches) {
    clattn__caps any = {.name = "n"}, late = {.name = "n", .quirks = CLATTN__QUIRK_LATE_BINARY};
    unsetenv("POCL_WORK_GROUP_SPECIALIZATION");
    clattn__hash any_before = clattn__program_key(&any, "1", "", ""), before = clattn__program_key(&late, "1", "", "");
    setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 1);
    ck_assert_str_eq(any_before.hex, clattn__program_key(&any, "1", "", "").hex);
    ck_assert_str_ne(before.hex, clattn__program_key(&late, "1", "", "").hex);
}
END_TEST

START_TEST(source_header_and_define_make_new_programs) {
    rig r = rig_open();
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__kernel *first = rig_kernel(runtime, 1);
    ck_assert_ptr_eq(rig_kernel(runtime, 1), first);
    ck_assert_ptr_ne(rig_kernel(runtime, 2), first);
    rig_write("kernels/include/step.h", "#define STEP(i) (step * (i))\n");
    clattn__kernel *second = rig_kernel(runtime, 1);
    ck_assert_ptr_ne(second, first);
    ck_assert_int_eq(rig_logged("compiled in"), 3);
    ck_assert(rig_run(&r, first, 1) && rig_run(&r, second, 1));
    clattn__runtime_release(runtime);
    rig_close(&r);
}
END_TEST

/* ---- folder ---- */

static void expect_folder(const char *option, const char *expected) {
    char *folder = NULL;
    ck_assert_int_eq(clattn__cache_folder(option, &folder, NULL), CLATTN_SUCCESS);
    ck_assert(expected ? folder && !strcmp(folder, expected) : !folder);
    free(folder);
}

START_TEST(folder_follows_option_then_environment) {
    setenv("CLATTN_CACHE_DIR", "/env", 1);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    setenv("HOME", "/home/me", 1);
    expect_folder("/option", "/option");
    expect_folder("", NULL);
    expect_folder(NULL, "/env");
    setenv("CLATTN_CACHE_DIR", "", 1);
    expect_folder(NULL, NULL);
    unsetenv("CLATTN_CACHE_DIR");
    expect_folder(NULL, "/xdg/clattn");
    setenv("XDG_CACHE_HOME", "", 1);
    expect_folder(NULL, "/home/me/.cache/clattn");
    unsetenv("HOME");
    expect_folder(NULL, NULL);
}
END_TEST

START_TEST(unwritable_folder_is_one_warning) {
    rig r = rig_open();
    rig_write("file", "");
    char *path = folder_path("file/cache"); /* a file stands where a folder is wanted, for root too */
    setenv("CLATTN_CACHE_DIR", path, 1);
    setenv("CLATTN_CAPS", "-LATE_BINARY", 1);
    clattn__runtime *runtime = rig_runtime(&r);
    ck_assert(rig_run(&r, rig_kernel(runtime, 1), 1));
    ck_assert(rig_run(&r, rig_kernel(runtime, 2), 2));
    clattn__runtime_release(runtime);
    ck_assert_int_eq(rig_logged("are not kept"), 1);
    ck_assert_int_eq(rig_logged(path), 1);
    ck_assert_int_eq(rig_line("are not kept")[0] - '0', CLATTN__LOG_WARNING);
    free(path);
    rig_close(&r);
}
END_TEST

START_TEST(empty_option_keeps_nothing) {
    rig r = rig_open();
    setenv("CLATTN_CACHE_DIR", "", 1);
    ck_assert(rig_compiles(&r, 1));
    ck_assert(rig_compiles(&r, 1));
    ck_assert_int_eq(folder_count(), 1); /* kernels */
    rig_close(&r);
}
END_TEST

/* ---- entries ---- */

START_TEST(second_runtime_loads) {
    rig r = rig_open();
    ck_assert(rig_compiles(&r, 1));
    ck_assert_int_eq(rig_count_files("cache", ".bin"), 1);
    ck_assert(!rig_compiles(&r, 1));
    ck_assert(rig_compiles(&r, 2));
    ck_assert_int_eq(rig_count_files("cache", ".bin"), 2);
    ck_assert_int_eq(rig_count_files("cache", ""), 2);
    rig_close(&r);
}
END_TEST

/* Under the quirk, an entry waits for the release and then holds what the launch compiled. */
START_TEST(late_binary_waits_for_the_launch) {
    rig r = rig_open();
    char *own = folder_path("pocl");
    setenv("POCL_CACHE_DIR", own, 1);
    ck_assert_int_eq(clattn__folder_make(own, NULL), CLATTN_SUCCESS);
    free(own);
    clattn__runtime *runtime = rig_runtime(&r);
    bool late = runtime->caps.quirks & CLATTN__QUIRK_LATE_BINARY;
    clattn__kernel *kernel = rig_kernel(runtime, 1);
    ck_assert_int_eq(rig_count_files("cache", ".bin"), late ? 0 : 1);
    ck_assert(rig_run(&r, kernel, 1));
    clattn__runtime_release(runtime);
    ck_assert_int_eq(rig_count_files("cache", ".bin"), 1);
    ck_assert(!rig_compiles(&r, 1));
    rig_close(&r);
}
END_TEST

START_TEST(early_binary_is_written_at_once) {
    rig r = rig_open();
    setenv("CLATTN_CAPS", "-LATE_BINARY", 1);
    clattn__runtime *runtime = rig_runtime(&r);
    rig_kernel(runtime, 1);
    ck_assert_int_eq(rig_count_files("cache", ".bin"), 1);
    clattn__runtime_release(runtime);
    ck_assert(!rig_compiles(&r, 1));
    rig_close(&r);
}
END_TEST

typedef enum damage {
    EMPTY,
    CUT_HEAD,
    NO_BINARY,
    CUT_BINARY,
    LONGER,
    FLIP_MAGIC,
    FLIP_FORMAT,
    FLIP_KEY,
    FLIP_SIZE,
    FLIP_CHECKSUM,
    FLIP_FIRST,
    FLIP_LAST,
    DAMAGES
} damage;

enum { HEAD = 64 };

static void apply_damage(damage kind, const char *path, char *data, size_t size) {
    static const size_t cut[] = {[EMPTY] = 0, [CUT_HEAD] = HEAD - 1, [NO_BINARY] = HEAD};
    const size_t flip[DAMAGES] = {[FLIP_MAGIC] = 0,     [FLIP_FORMAT] = 8,   [FLIP_KEY] = 47,       [FLIP_SIZE] = 48,
                                  [FLIP_CHECKSUM] = 63, [FLIP_FIRST] = HEAD, [FLIP_LAST] = size - 1};
    if (kind <= NO_BINARY)
        write_entry(path, data, cut[kind]);
    else if (kind == CUT_BINARY || kind == LONGER)
        write_entry(path, data, kind == LONGER ? size + 1 : size - 1); /* the byte after the data is 0 */
    else {
        data[flip[kind]] ^= 4;
        write_entry(path, data, size);
    }
}

START_TEST(damaged_entries_are_rebuilt_and_replaced) {
    rig r = rig_open();
    char *data, *now, *path;
    size_t size, now_size;
    ck_assert(rig_compiles(&r, 1));
    path = only_entry();
    ck_assert_int_eq(clattn__file_read(path, 1 << 26, &data, &size, NULL), CLATTN_SUCCESS);
    apply_damage((damage)_i, path, data, size);
    ck_assert(rig_compiles(&r, 1));
    ck_assert_int_eq(rig_logged("rebuilding the cache entry"), 1);
    ck_assert_int_eq(clattn__file_read(path, 1 << 26, &now, &now_size, NULL), CLATTN_SUCCESS);
    ck_assert_uint_gt(now_size, HEAD);
    ck_assert(!rig_compiles(&r, 1));
    ck_assert_int_eq(rig_count_files("cache", ""), 1);
    free(data);
    free(now);
    free(path);
    rig_close(&r);
}
END_TEST

/* A sound entry under another program's name must not run in its place. */
START_TEST(entry_of_another_key_is_refused) {
    rig r = rig_open();
    ck_assert(rig_compiles(&r, 1));
    char *one = only_entry(), *two, *kept = folder_path("kept");
    ck_assert_int_eq(rename(one, kept), 0);
    ck_assert(rig_compiles(&r, 2));
    two = only_entry();
    ck_assert_int_eq(rename(kept, two), 0);
    ck_assert(rig_compiles(&r, 2));
    ck_assert_int_eq(rig_logged("another key"), 1);
    ck_assert(!rig_compiles(&r, 2));
    free(one);
    free(two);
    free(kept);
    rig_close(&r);
}
END_TEST

/* A whole entry that the driver does not take, as after a silent change of the driver. */
START_TEST(binary_that_the_driver_refuses_is_rebuilt) {
    rig r = rig_open();
    clattn__hash key;
    ck_assert(rig_compiles(&r, 1));
    char *path = only_entry(), *folder = folder_path("cache");
    memset(&key, 0, sizeof key);
    memcpy(key.hex, strrchr(path, '/') + 1, 32);
    ck_assert_int_eq(clattn__cache_write(folder, &key, (const unsigned char *)"rubbish", 7, NULL), CLATTN_SUCCESS);
    ck_assert(rig_compiles(&r, 1));
    ck_assert_int_eq(rig_logged("the driver refuses it"), 1);
    ck_assert(!rig_compiles(&r, 1));
    free(path);
    free(folder);
    rig_close(&r);
}
END_TEST

/* An entry that cannot be replaced either: a folder of its name. Slow for ever, wrong never. */
START_TEST(folder_in_an_entrys_place_is_a_warning) {
    rig r = rig_open();
    ck_assert(rig_compiles(&r, 1));
    char *path = only_entry();
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert(rig_compiles(&r, 1));
    ck_assert_int_eq(rig_logged("are not kept"), 1);
    free(path);
    rig_close(&r);
}
END_TEST

/* ---- dumps ---- */

START_TEST(dump_holds_every_step) {
    rig r = rig_open();
    static const char *const folders[] = {"dump/compiled", "dump/loaded"};
    char *path = NULL, *text;
    size_t size;
    for (int loaded = 0; loaded < 2; loaded++) {
        free(path);
        path = folder_path(folders[loaded]);
        setenv("CLATTN_DUMP", path, 1);
        ck_assert_int_eq(rig_compiles(&r, 1), !loaded);
        ck_assert_int_eq(rig_count_files(folders[loaded], ".cl"), 1);
        ck_assert_int_eq(rig_count_files(folders[loaded], ".options"), 1);
        ck_assert_int_eq(rig_count_files(folders[loaded], ".log"), 1);
        ck_assert_int_eq(rig_count_files(folders[loaded], ".bin"), 1);
    }
    clattn__runtime *runtime = rig_runtime(&r);
    clattn__dump_text(runtime, "plan", "one stage\n");
    clattn__runtime_release(runtime);
    char *plan = clattn__path_join(path, "plan.txt");
    ck_assert_int_eq(clattn__file_read(plan, 100, &text, &size, NULL), CLATTN_SUCCESS);
    ck_assert_str_eq(text, "one stage\n");
    free(plan);
    free(text);
    free(path);
    rig_close(&r);
}
END_TEST

static TCase *group(Suite *suite, const char *name) {
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, rig_setup, rig_teardown);
    suite_add_tcase(suite, tests);
    return tests;
}

int main(void) {
    Suite *suite = suite_create("cache");
    TCase *keys = group(suite, "keys"), *entries = group(suite, "entries");
    tcase_add_test(keys, key_changes_with_each_ingredient);
    tcase_add_test(keys, key_knows_how_pocl_launches);
    tcase_add_test(keys, source_header_and_define_make_new_programs);
    tcase_add_test(keys, folder_follows_option_then_environment);
    tcase_add_test(entries, unwritable_folder_is_one_warning);
    tcase_add_test(entries, empty_option_keeps_nothing);
    tcase_add_test(entries, second_runtime_loads);
    tcase_add_test(entries, late_binary_waits_for_the_launch);
    tcase_add_test(entries, early_binary_is_written_at_once);
    tcase_add_loop_test(entries, damaged_entries_are_rebuilt_and_replaced, 0, DAMAGES);
    tcase_add_test(entries, entry_of_another_key_is_refused);
    tcase_add_test(entries, binary_that_the_driver_refuses_is_rebuilt);
    tcase_add_test(entries, folder_in_an_entrys_place_is_a_warning);
    tcase_add_test(entries, dump_holds_every_step);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
