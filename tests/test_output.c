/* Outputs of a command: all or nothing; and the sentences that go with them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/input.h"
#include "cli/output.h"
#include "folder.h"

static void begin(outputs *set, const char *path, const char *text) {
    FILE *stream;
    failure f = {0};
    ck_assert_msg(outputs_begin(set, path, &stream, &f), "%s", f.text);
    fputs(text, stream);
    ck_assert_msg(outputs_finish(set, &f), "%s", f.text);
}

START_TEST(nothing_shows_before_commit) {
    char *a = folder_path("a"), *b = folder_path("b");
    outputs set = {0};
    folder_put(a, "old", 3);
    begin(&set, a, "new a");
    begin(&set, b, "new b");
    folder_expect(a, "old", 3);
    ck_assert_int_ne(access(b, F_OK), 0);
    ck_assert(outputs_commit(&set, NULL));
    folder_expect(a, "new a", 5);
    folder_expect(b, "new b", 5);
    ck_assert_int_eq(folder_count(), 2);
    free(a);
    free(b);
}
END_TEST

START_TEST(discard_leaves_no_trace) {
    char *a = folder_path("a"), *b = folder_path("b");
    outputs set = {0};
    FILE *stream;
    folder_put(a, "old", 3);
    begin(&set, a, "new a");
    ck_assert(outputs_begin(&set, b, &stream, NULL)); /* and unfinished */
    outputs_discard(&set);
    outputs_discard(&set);
    folder_expect(a, "old", 3);
    ck_assert_int_eq(folder_count(), 1);
    free(a);
    free(b);
}
END_TEST

START_TEST(one_name_twice_is_refused) {
    char *a = folder_path("a"), *again = folder_path("./a");
    outputs set = {0};
    FILE *stream;
    failure f = {0};
    begin(&set, a, "x");
    ck_assert(!outputs_begin(&set, again, &stream, &f));
    ck_assert_ptr_null(stream);
    ck_assert_ptr_nonnull(strstr(f.text, "two outputs have this name"));
    ck_assert(outputs_commit(&set, NULL));
    folder_expect(a, "x", 1);
    ck_assert_int_eq(folder_count(), 1);
    free(a);
    free(again);
}
END_TEST

START_TEST(links_are_followed) {
    char *file = folder_path("file"), *link = folder_path("link");
    outputs set = {0};
    folder_put(file, "old", 3);
    ck_assert_int_eq(symlink("file", link), 0);
    begin(&set, link, "new");
    ck_assert(outputs_commit(&set, NULL));
    folder_expect(file, "new", 3);
    struct stat info;
    ck_assert_int_eq(lstat(link, &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    free(file);
    free(link);
}
END_TEST

START_TEST(devices_are_written_directly) {
    outputs set = {0};
    begin(&set, "/dev/null", "x");
    begin(&set, "/dev/null", "y");
    ck_assert(outputs_commit(&set, NULL));
    struct stat info;
    ck_assert_int_eq(stat("/dev/null", &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
}
END_TEST

static void refuse(const char *path, const char *reason) {
    outputs set = {0};
    FILE *stream;
    failure f = {0};
    ck_assert(!outputs_begin(&set, path, &stream, &f));
    ck_assert_msg(strstr(f.text, path) && strstr(f.text, reason), "%s", f.text);
    ck_assert_int_eq(set.count, 0);
}

START_TEST(impossible_paths_are_named) {
    char *missing = folder_path("no/such"), *slash = folder_path("new/"), *folder = folder_path("");
    refuse(missing, "No such file");
    refuse(slash, "Is a directory");
    refuse(folder, "it is a folder");
    refuse("", "No such file");
    ck_assert_int_eq(folder_count(), 0);
    free(missing);
    free(slash);
    free(folder);
}
END_TEST

static void fill_device(size_t count) {
    static const float values[4096];
    outputs set = {0};
    FILE *stream;
    failure f = {0};
    ck_assert(outputs_begin(&set, "/dev/full", &stream, &f));
    outputs_words(stream, values, count);
    ck_assert(!outputs_finish(&set, &f));
    ck_assert_str_eq(f.text, "cannot write /dev/full: No space left on device");
    outputs_discard(&set);
}

START_TEST(full_device_is_reported) {
    if (access("/dev/full", W_OK) == 0) {
        fill_device(3);    /* met when closing */
        fill_device(4096); /* met while writing; nothing is left to flush */
    }
}
END_TEST

START_TEST(refused_rename_discards_the_rest) {
    char *a = folder_path("a"), *b = folder_path("b");
    outputs set = {0};
    failure f = {0};
    begin(&set, a, "x");
    begin(&set, b, "y");
    ck_assert_int_eq(mkdir(a, 0777), 0);
    ck_assert(!outputs_commit(&set, &f));
    ck_assert_ptr_nonnull(strstr(f.text, "/a: Is a directory"));
    ck_assert_int_eq(folder_count(), 1);
    free(a);
    free(b);
}
END_TEST

START_TEST(words_come_back) {
    char *path = folder_path("words");
    outputs set = {0};
    FILE *stream;
    static int32_t words[10001];
    for (int i = 0; i < 10001; ++i) {
        words[i] = (i - 5000) * 300007;
    }
    ck_assert(outputs_begin(&set, path, &stream, NULL));
    outputs_words(stream, words, 10001);
    ck_assert(outputs_finish(&set, NULL) && outputs_commit(&set, NULL));
    unsigned char *data;
    size_t size;
    ck_assert(input_read(path, &data, &size, NULL));
    ck_assert_uint_eq(size, sizeof words);
    for (int i = 0; i < 10001; ++i) {
        uint32_t word = data[4 * i] | data[4 * i + 1] << 8 | data[4 * i + 2] << 16 | (uint32_t)data[4 * i + 3] << 24;
        ck_assert_uint_eq(word, (uint32_t)words[i]);
    }
    free(data);
    free(path);
}
END_TEST

START_TEST(pipes_are_read) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    static char block[50000] = {7}; /* more than one read brings */
    pid_t child = fork();
    if (child == 0) {
        _exit(write(ends[1], block, sizeof block) < 0 || write(ends[1], block, sizeof block) < 0);
    }
    close(ends[1]);
    char path[64];
    unsigned char *data;
    size_t size;
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    ck_assert(input_read(path, &data, &size, NULL));
    ck_assert_uint_eq(size, 2 * sizeof block);
    ck_assert_mem_eq(data + sizeof block, block, sizeof block);
    free(data);
    close(ends[0]);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(sentences_stay_one_line) {
    failure f = {0};
    ck_assert(!fail_with(&f, "a\nb\x1b[31m%s", "\r\x7fü"));
    ck_assert_str_eq(f.text, "a?b?[31m??ü");
    ck_assert(!fail_with(&f, "later"));
    ck_assert_str_eq(f.text, "a?b?[31m??ü");
    ck_assert(!fail_with(NULL, "nobody listens"));
}
END_TEST

START_TEST(long_names_are_cut_between_characters) {
    char name[301];
    ck_assert_str_eq(quote("w").text, "'w'");
    for (int shift = 0; shift < 2; ++shift) {
        memset(name, 'x', sizeof name);
        for (int i = shift; i + 1 < 300; i += 2) {
            memcpy(name + i, "ü", 2);
        }
        name[300] = 0;
        quoted q = quote(name);
        size_t length = strlen(q.text);
        ck_assert(length < sizeof q.text && length > 115);
        ck_assert_str_eq(q.text + length - 6, "\xc3\xbc...'");
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("output");
    TCase *file = tcase_create("file"), *text = tcase_create("text");
    tcase_add_checked_fixture(file, folder_setup, folder_teardown);
    tcase_add_test(file, nothing_shows_before_commit);
    tcase_add_test(file, discard_leaves_no_trace);
    tcase_add_test(file, one_name_twice_is_refused);
    tcase_add_test(file, links_are_followed);
    tcase_add_test(file, devices_are_written_directly);
    tcase_add_test(file, impossible_paths_are_named);
    tcase_add_test(file, full_device_is_reported);
    tcase_add_test(file, refused_rename_discards_the_rest);
    tcase_add_test(file, words_come_back);
    tcase_add_test(file, pipes_are_read);
    tcase_add_test(text, sentences_stay_one_line);
    tcase_add_test(text, long_names_are_cut_between_characters);
    suite_add_tcase(suite, file);
    suite_add_tcase(suite, text);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
