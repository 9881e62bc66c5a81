/* The bottom layer: errors, texts, log lines, hashes and files. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "folder.h"

/* ---- error, text, log ---- */

START_TEST(error_keeps_the_first) {
    clattn__error e = {0};
    ck_assert_int_eq(clattn__fail(&e, CLATTN_INVALID_SHAPE, "k: %d, n: %d", 3, 4), CLATTN_INVALID_SHAPE);
    ck_assert_int_eq(clattn__fail(&e, CLATTN_UNSUPPORTED, "later"), CLATTN_UNSUPPORTED);
    ck_assert_int_eq(e.status, CLATTN_INVALID_SHAPE);
    ck_assert_str_eq(e.text, "k: 3, n: 4");
    ck_assert_int_eq(clattn__fail(NULL, -5, "nobody listens"), -5);
}
END_TEST

START_TEST(error_is_cut_to_its_buffer) {
    clattn__error e = {0};
    char text[2 * sizeof e.text];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ck_assert_int_eq(clattn__fail(&e, CLATTN_IO_FAILED, "%s", text), CLATTN_IO_FAILED);
    ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
}
END_TEST

START_TEST(text_counts_past_its_size) {
    char data[6] = "xxxxx";
    clattn__text text = {data, sizeof data, 0};
    clattn__text_add(&text, "%s", "abc");
    ck_assert_str_eq(data, "abc");
    clattn__text_add(&text, "%d", 4567);
    ck_assert_str_eq(data, "abc45");
    clattn__text_add(&text, "more");
    ck_assert_str_eq(data, "abc45");
    ck_assert_uint_eq(text.length, 11);
}
END_TEST

START_TEST(text_without_memory_measures) {
    clattn__text text = {NULL, 0, 0};
    clattn__text_add(&text, "%05d", 1);
    ck_assert_uint_eq(text.length, 5);
}
END_TEST

typedef struct heard {
    int lines, level;
    size_t length;
} heard;

static void hear(void *user, int level, const char *line) {
    heard *h = user;
    h->lines++;
    h->level = level;
    h->length = strlen(line);
}

START_TEST(log_obeys_its_level) {
    heard h = {0};
    clattn__log log = {hear, &h, CLATTN__LOG_WARNING};
    clattn__log_line(&log, CLATTN__LOG_INFO, "dropped");
    ck_assert_int_eq(h.lines, 0);
    clattn__log_line(&log, CLATTN__LOG_WARNING, "kept %d", 1);
    ck_assert_int_eq(h.lines, 1);
    ck_assert_int_eq(h.level, CLATTN__LOG_WARNING);
    ck_assert_uint_eq(h.length, 6);
    clattn__log silent = {NULL, NULL, CLATTN__LOG_DEBUG};
    clattn__log_line(&silent, CLATTN__LOG_ERROR, "nobody");
    clattn__log_line(NULL, CLATTN__LOG_ERROR, "nobody");
}
END_TEST

START_TEST(log_carries_long_lines_whole) {
    heard h = {0};
    clattn__log log = {hear, &h, CLATTN__LOG_DEBUG};
    for (int length = 1022; length <= 1026; ++length) {
        clattn__log_line(&log, CLATTN__LOG_DEBUG, "%*s", length, "");
        ck_assert_uint_eq(h.length, (size_t)length);
    }
    clattn__log_line(&log, CLATTN__LOG_DEBUG, "%*s", 100000, "");
    ck_assert_uint_eq(h.length, 100000);
}
END_TEST

/* ---- hash ---- */

static clattn__hash hash2(const char *a, const char *b) {
    clattn__part parts[] = {{a, strlen(a)}, {b, strlen(b)}};
    return clattn__hash_parts(parts, 2);
}

START_TEST(hash_tells_parts_apart) {
    clattn__hash a = hash2("ab", "c"), b = hash2("a", "bc"), c = hash2("", "abc"), d = hash2("ab", "c");
    ck_assert_str_ne(a.hex, b.hex);
    ck_assert_str_ne(a.hex, c.hex);
    ck_assert_str_ne(b.hex, c.hex);
    ck_assert_str_eq(a.hex, d.hex);
    clattn__part one = {"abc", 3}, none = {NULL, 0};
    ck_assert_str_ne(clattn__hash_parts(&one, 1).hex, c.hex);
    ck_assert_str_ne(clattn__hash_parts(&none, 1).hex, clattn__hash_parts(NULL, 0).hex);
}
END_TEST

START_TEST(hash_is_hexadecimal) {
    clattn__hash h = hash2("x", "y");
    ck_assert_uint_eq(strlen(h.hex), 32);
    ck_assert_uint_eq(strspn(h.hex, "0123456789abcdef"), 32);
    ck_assert_uint_ne(clattn__hash64("a", 1), clattn__hash64("b", 1));
    ck_assert_uint_eq(clattn__hash64(NULL, 0), UINT64_C(0x2d06800538d394c2)); /* XXH3 of nothing */
}
END_TEST

/* ---- files ---- */

START_TEST(file_comes_back) {
    const char data[] = "a\0b\n";
    char *back, *path = folder_path("file");
    size_t size;
    clattn__error e = {0};
    ck_assert_int_eq(clattn__file_write(path, "older and longer", 16, &e), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__file_write(path, data, sizeof data, &e), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__file_read(path, sizeof data, &back, &size, &e), CLATTN_SUCCESS);
    ck_assert_uint_eq(size, sizeof data);
    ck_assert_mem_eq(back, data, size);
    ck_assert_int_eq(back[size], 0);
    ck_assert_int_eq(folder_count(), 1);
    free(back);
    free(path);
}
END_TEST

START_TEST(file_may_be_empty) {
    char *back, *path = folder_path("empty");
    size_t size = 9;
    ck_assert_int_eq(clattn__file_write(path, NULL, 0, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__file_read(path, 0, &back, &size, NULL), CLATTN_SUCCESS);
    ck_assert_uint_eq(size, 0);
    ck_assert_int_eq(back[0], 0);
    free(back);
    free(path);
}
END_TEST

START_TEST(file_past_the_limit_is_refused) {
    char *back, *path = folder_path("big");
    size_t size;
    clattn__error e = {0};
    ck_assert_int_eq(clattn__file_write(path, "12345", 5, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__file_read(path, 4, &back, &size, &e), CLATTN_IO_FAILED);
    ck_assert_ptr_null(back);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_ptr_nonnull(strstr(e.text, "5 bytes, over the limit of 4"));
    free(path);
}
END_TEST

/* A device has no size to ask for: only the reading itself finds the limit. */
START_TEST(endless_file_stops_at_the_limit) {
    char *back;
    size_t size;
    clattn__error e = {0};
    ck_assert_int_eq(clattn__file_read("/dev/zero", 200000, &back, &size, &e), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, "/dev/zero"));
    ck_assert_ptr_nonnull(strstr(e.text, "200000"));
}
END_TEST

START_TEST(pipe_is_read_whole) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char block[1000] = {7};
        for (int i = 0; i < 300; ++i) {
            if (write(ends[1], block, sizeof block) < 0) {
                _exit(1);
            }
        }
        _exit(0);
    }
    close(ends[1]);
    char path[64], *back;
    size_t size;
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    ck_assert_int_eq(clattn__file_read(path, 300000, &back, &size, NULL), CLATTN_SUCCESS);
    ck_assert_uint_eq(size, 300000);
    ck_assert_int_eq(back[299000], 7);
    free(back);
    close(ends[0]);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(missing_file_and_folder_are_named) {
    char *back, *path = folder_path("none");
    size_t size;
    clattn__error e = {0};
    ck_assert_int_eq(clattn__file_read(path, 10, &back, &size, &e), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_ptr_nonnull(strstr(e.text, strerror(ENOENT)));
    clattn__error f = {0};
    ck_assert_int_eq(clattn__file_read("/", 10, &back, &size, &f), CLATTN_IO_FAILED);
    ck_assert_str_eq(f.text, "cannot read /: it is a folder");
    free(path);
}
END_TEST

START_TEST(failed_write_leaves_nothing) {
    char *path = folder_path("taken");
    clattn__error e = {0}, f = {0};
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert_int_eq(clattn__file_write(path, "x", 1, &e), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_int_eq(folder_count(), 1);
    ck_assert_int_eq(clattn__file_write("/dev/null", "x", 1, &f), CLATTN_IO_FAILED);
    struct stat info;
    ck_assert_int_eq(stat("/dev/null", &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
    free(path);
}
END_TEST

/* The disk is full in the middle of the data. */
START_TEST(interrupted_write_leaves_nothing) {
    static const char data[100000];
    char *path = folder_path("large");
    clattn__error e = {0};
    struct rlimit old, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 50000;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    clattn_status status = clattn__file_write(path, data, sizeof data, &e);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(status, CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, strerror(EFBIG)));
    ck_assert_int_eq(folder_count(), 0);
    free(path);
}
END_TEST

START_TEST(write_obeys_the_umask) {
    char *path = folder_path("mode");
    mode_t old = umask(027);
    ck_assert_int_eq(clattn__file_write(path, "x", 1, NULL), CLATTN_SUCCESS);
    umask(old);
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0640);
    free(path);
}
END_TEST

enum { WRITERS = 4, ROUNDS = 50, BLOCK = 5000 };

static void *write_often(void *byte) {
    char *path = folder_path("shared"), block[BLOCK];
    memset(block, *(char *)byte, BLOCK);
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < ROUNDS && status == CLATTN_SUCCESS; ++i) {
        status = clattn__file_write(path, block, BLOCK, NULL);
    }
    free(path);
    return status == CLATTN_SUCCESS ? byte : NULL;
}

/* Readers see one writer's file or another's, whole. */
START_TEST(writers_do_not_mix) {
    char bytes[WRITERS] = "abcd", *path = folder_path("shared");
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; ++i) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_often, &bytes[i]), 0);
    }
    for (int i = 0; i < ROUNDS; ++i) {
        char *back;
        size_t size;
        if (clattn__file_read(path, BLOCK, &back, &size, NULL) == CLATTN_SUCCESS) {
            ck_assert_uint_eq(size, BLOCK);
            ck_assert_int_eq(memcmp(back, back + 1, BLOCK - 1), 0);
            free(back);
        }
    }
    for (int i = 0; i < WRITERS; ++i) {
        void *result;
        pthread_join(threads[i], &result);
        ck_assert_ptr_nonnull(result);
    }
    ck_assert_int_eq(folder_count(), 1);
    free(path);
}
END_TEST

START_TEST(folders_are_made_along_the_path) {
    char *path = folder_path("a/b//c/"), *file = folder_path("a/b/c/file"), *below = folder_path("a/b/c/file/d");
    ck_assert_int_eq(clattn__folder_make(path, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__folder_make(path, NULL), CLATTN_SUCCESS);
    ck_assert_int_eq(clattn__file_write(file, "x", 1, NULL), CLATTN_SUCCESS);
    clattn__error e = {0}, f = {0}, g = {0};
    ck_assert_int_eq(clattn__folder_make(file, &e), CLATTN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(e.text, file));
    ck_assert_int_eq(clattn__folder_make(below, &f), CLATTN_IO_FAILED);
    ck_assert_int_eq(clattn__folder_make("", &g), CLATTN_IO_FAILED);
    ck_assert_int_eq(clattn__folder_make("/", NULL), CLATTN_SUCCESS);
    free(path);
    free(file);
    free(below);
}
END_TEST

START_TEST(paths_join_with_one_slash) {
    const char *cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char *joined = clattn__path_join(cases[i][0], cases[i][1]);
        ck_assert_str_eq(joined, cases[i][2]);
        free(joined);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base");
    TCase *text = tcase_create("text"), *hash = tcase_create("hash"), *file = tcase_create("file");
    tcase_add_test(text, error_keeps_the_first);
    tcase_add_test(text, error_is_cut_to_its_buffer);
    tcase_add_test(text, text_counts_past_its_size);
    tcase_add_test(text, text_without_memory_measures);
    tcase_add_test(text, log_obeys_its_level);
    tcase_add_test(text, log_carries_long_lines_whole);
    tcase_add_test(hash, hash_tells_parts_apart);
    tcase_add_test(hash, hash_is_hexadecimal);
    tcase_add_checked_fixture(file, folder_setup, folder_teardown);
    tcase_add_test(file, file_comes_back);
    tcase_add_test(file, file_may_be_empty);
    tcase_add_test(file, file_past_the_limit_is_refused);
    tcase_add_test(file, endless_file_stops_at_the_limit);
    tcase_add_test(file, pipe_is_read_whole);
    tcase_add_test(file, missing_file_and_folder_are_named);
    tcase_add_test(file, failed_write_leaves_nothing);
    tcase_add_test(file, interrupted_write_leaves_nothing);
    tcase_add_test(file, write_obeys_the_umask);
    tcase_add_test(file, writers_do_not_mix);
    tcase_add_test(file, folders_are_made_along_the_path);
    tcase_add_test(file, paths_join_with_one_slash);
    suite_add_tcase(suite, text);
    suite_add_tcase(suite, hash);
    suite_add_tcase(suite, file);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
