/* safetensors files: golden bytes by the reference package, round trips, hostile headers. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/safetensors.h"
#include "folder.h"
#include "golden_safetensors.h"

/* A file "x" of the test's folder; its sentences begin with its path. */
static bool open_bytes(const void *data, size_t size, safetensors **file, failure *f) {
    char *path = folder_path("x");
    folder_put(path, data, size);
    bool done = safetensors_open(path, file, f);
    free(path);
    return done;
}

static safetensors *open_golden(const void *data, size_t size) {
    safetensors *file;
    failure f = {0};
    ck_assert_msg(open_bytes(data, size, &file, &f), "%s", f.text);
    return file;
}

static void check_values(const safetensors *file, const char *name, int rank, const float *want, size_t count) {
    float *values;
    failure f = {0};
    const safetensors_info *info = safetensors_find(file, name);
    ck_assert_msg(info != NULL, "%s", name);
    ck_assert_int_eq(info->rank, rank);
    ck_assert_uint_eq((size_t)info->count, count);
    ck_assert_msg(safetensors_read(file, info, &values, &f), "%s", f.text);
    ck_assert(count == 0 || memcmp(values, want, count * sizeof *want) == 0);
    free(values);
}

START_TEST(reads_every_float_type) {
    safetensors *file = open_golden(safetensors_mixed, sizeof safetensors_mixed - 1);
    ck_assert_uint_eq(safetensors_count(file), 9);
    check_values(file, "w", 2, (float[]){1, -2.5f, 3e38f}, 3);
    check_values(file, "h", 1, (float[]){0.333251953125f, -65504}, 2);
    check_values(file, "b", 1, (float[]){1, -3.140625f}, 2);
    check_values(file, "d", 1, (float[]){(float)(1.0 / 3), 0}, 2);
    check_values(file, "s", 0, (float[]){5}, 1);
    check_values(file, "m\xc3\xa4ssig \"x\"", 1, (float[]){9}, 1);
    check_values(file, "e", 2, NULL, 0);
    safetensors_close(file);
}
END_TEST

START_TEST(lists_in_the_order_of_bytes) {
    safetensors *file = open_golden(safetensors_mixed, sizeof safetensors_mixed - 1);
    for (size_t i = 1; i < safetensors_count(file); ++i) {
        ck_assert_int_eq(safetensors_at(file, i)->begin, safetensors_at(file, i - 1)->end);
    }
    ck_assert_str_eq(safetensors_at(file, 0)->name, "i");
    ck_assert_str_eq(safetensors_find(file, "b")->dtype, "BF16");
    ck_assert(safetensors_find(file, "e")->shape[1] == 4);
    ck_assert_ptr_null(safetensors_find(file, "__metadata__"));
    ck_assert_ptr_null(safetensors_find(file, "W"));
    safetensors_close(file);
    safetensors_close(NULL);
}
END_TEST

static void refuse_read(const safetensors *file, const char *name, const char *sentence) {
    float *values;
    failure f = {0};
    ck_assert(!safetensors_read(file, safetensors_find(file, name), &values, &f));
    ck_assert_ptr_null(values);
    ck_assert_msg(strstr(f.text, sentence) != NULL, "%s", f.text);
}

START_TEST(what_it_cannot_convert_fails_only_when_asked_for) {
    safetensors *file = open_golden(safetensors_mixed, sizeof safetensors_mixed - 1);
    refuse_read(file, "i", "/x: tensor 'i' has type 'I64', which is none of F32, F16, BF16 and F64");
    refuse_read(file, "five", "/x: tensor 'five' has 5 axes, and the most is 4");
    safetensors_close(file);
}
END_TEST

/* ---- files made of header text and bytes of data ---- */

static bool open_text(const char *header, size_t length, size_t data_size, safetensors **file, failure *f) {
    unsigned char *bytes = calloc(8 + length + data_size, 1);
    for (int i = 0; i < 8; ++i) {
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    }
    memcpy(bytes + 8, header, length);
    bool done = open_bytes(bytes, 8 + length + data_size, file, f);
    free(bytes);
    return done;
}

static void refuse_sized(const char *header, size_t length, size_t data_size, const char *sentence) {
    safetensors *file;
    failure f = {0};
    ck_assert(!open_text(header, length, data_size, &file, &f));
    ck_assert_ptr_null(file);
    const char *tail = strstr(f.text, "/x: ");
    ck_assert_msg(tail && strncmp(tail + 4, sentence, strlen(sentence)) == 0, "%s", f.text);
}

static void refuse(const char *header, size_t data_size, const char *sentence) {
    refuse_sized(header, strlen(header), data_size, sentence);
}

#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static safetensors *accept(const char *header, size_t data_size) {
    safetensors *file;
    failure f = {0};
    ck_assert_msg(open_text(header, strlen(header), data_size, &file, &f), "%s", f.text);
    return file;
}

START_TEST(opens_odd_but_valid_headers) {
    safetensors *file = accept("{}", 0);
    ck_assert_uint_eq(safetensors_count(file), 0);
    safetensors_close(file);
    file = accept("{\"__metadata__\":{\"a\":\"b\"}}\n   ", 0);
    ck_assert_uint_eq(safetensors_count(file), 0);
    safetensors_close(file);
    /* Listed out of order, an unknown type, an empty name; data at an odd address. */
    file = accept("{" ENTRY("", "F16", "[1]", "[3,5]") "," ENTRY("z", "X9", "[7]", "[0,3]") "}", 5);
    ck_assert_str_eq(safetensors_at(file, 0)->name, "z");
    refuse_read(file, "z", "tensor 'z' has type 'X9', which is none of");
    check_values(file, "", 1, (float[]){0}, 1);
    safetensors_close(file);
    file = accept("{" ENTRY("half", "F4", "[3,2]", "[0,3]") "}", 3);
    safetensors_close(file);
}
END_TEST

START_TEST(unaligned_data) {
    char header[128];
    int length =
        snprintf(header, sizeof header, "{%s,%s}", ENTRY("p", "U8", "[1]", "[0,1]"), ENTRY("a", "F32", "[1]", "[1,5]"));
    char whole[160] = {(char)length};
    memcpy(whole + 8, header, (size_t)length);
    memcpy(whole + 8 + length + 1, "\0\0\x80\x3f", 4);
    safetensors *file = open_golden(whole, 8 + (size_t)length + 5);
    check_values(file, "a", 1, (float[]){1}, 1);
    safetensors_close(file);
}
END_TEST

START_TEST(too_short_for_a_header) {
    safetensors *file;
    failure f = {0}, g = {0};
    ck_assert(!open_bytes("1234567", 7, &file, &f));
    ck_assert_ptr_nonnull(strstr(f.text, "/x: not a safetensors file: it holds 7 bytes, and 8 are the least"));
    ck_assert(!open_bytes("\x10\0\0\0\0\0\0\x80{}", 10, &file, &g));
    ck_assert_ptr_nonnull(strstr(g.text, "/x: a header of 9223372036854775824 bytes is announced, and 2 follow"));
}
END_TEST

START_TEST(header_over_the_limit) {
    safetensors *file;
    failure f = {0};
    char *path = folder_path("x");
    folder_put(path, "\x01\xe1\xf5\x05\0\0\0\0{", 9);
    ck_assert_int_eq(truncate(path, 200000000), 0); /* sparse */
    ck_assert(!safetensors_open(path, &file, &f));
    ck_assert_ptr_nonnull(strstr(f.text, "/x: a header of 100000001 bytes is over the limit of 100000000"));
    free(path);
}
END_TEST

START_TEST(garbage_headers) {
    refuse("", 0, "not a safetensors file: its header of 0 bytes does not begin with '{'");
    refuse(" {}", 0, "not a safetensors file: its header of 3 bytes does not begin with '{'");
    refuse("[]", 0, "not a safetensors file: its header of 2 bytes does not begin with '{'");
    refuse("{", 0, "its header is no valid JSON: ");
    refuse("{} x", 0, "its header is no valid JSON: ");
    refuse("{\"a\":}", 0, "its header is no valid JSON: ");
    refuse("{\"\xff\":1}", 0, "its header is no valid JSON: ");
}
END_TEST

START_TEST(nul_bytes) {
    refuse("{\"a\\u0000b\":1}", 0, "its header is no valid JSON: ");
    refuse_sized("{\"a\0b\":1}", 9, 0, "its header is no valid JSON: ");
    refuse_sized("{}\0\0", 4, 0, "its header is no valid JSON: ");
}
END_TEST

START_TEST(duplicate_names) {
    refuse("{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("a", "F32", "[1]", "[4,8]") "}", 8,
           "its header is no valid JSON: duplicate object key");
}
END_TEST

START_TEST(deep_json) {
    enum { DEPTH = 1000000 };
    char *header = malloc(5 + DEPTH);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    refuse_sized(header, 5 + DEPTH, 0, "its header is no valid JSON: maximum parsing depth reached");
    free(header);
}
END_TEST

START_TEST(wide_json) {
    enum { VALUES = 5000000 };
    char *header = malloc(6 + 2 * VALUES);
    memcpy(header, "{\"a\":[", 6);
    for (int i = 0; i < VALUES; ++i) {
        memcpy(header + 6 + 2 * i, "0,", 2);
    }
    refuse_sized(header, 6 + 2 * VALUES, 0, "its header holds about 5000002 values, over the limit of 4000000");
    free(header);
}
END_TEST

START_TEST(entries_of_the_wrong_kind) {
    refuse("{\"a\":3}", 0, "tensor 'a': its header entry is no object");
    refuse("{\"a\":{}}", 0, "tensor 'a': its header entry has no \"dtype\" that is a text");
    refuse("{\"a\":{\"dtype\":7}}", 0, "tensor 'a': its header entry has no \"dtype\"");
    refuse("{\"a\":{\"dtype\":\"F32\"}}", 0, "tensor 'a': its header entry has no \"shape\" that is a list");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "tensor 'a': its header entry has no \"data_offsets\"");
    refuse("{" ENTRY("a", "F32", "3", "[0,4]") "}", 4, "tensor 'a': its header entry has no \"shape\"");
    refuse("{" ENTRY("a", "F32", "[1.0]", "[0,4]") "}", 4, "tensor 'a': its header entry has no \"shape\" that is");
    refuse("{" ENTRY("a", "F32", "[-1]", "[0,4]") "}", 4, "tensor 'a': its header entry has no \"shape\" that is");
    refuse("{" ENTRY("a", "F32", "[1]", "[0,4,8]") "}", 4, "tensor 'a': its header entry has no \"data_offsets\"");
    refuse("{" ENTRY("a", "F32", "[1]", "[-4,0]") "}", 4, "tensor 'a': its header entry has no \"data_offsets\"");
    refuse("{" ENTRY("a", "F32", "[1]", "{}") "}", 4, "tensor 'a': its header entry has no \"data_offsets\"");
}
END_TEST

START_TEST(shape_against_offsets) {
    refuse("{" ENTRY("a", "F32", "[2,3]", "[0,20]") "}", 20,
           "tensor 'a': 6 elements of F32 want 24 bytes, and data_offsets span 20");
    refuse("{" ENTRY("a", "BF16", "[0,3]", "[0,2]") "}", 2,
           "tensor 'a': 0 elements of BF16 want 0 bytes, and data_offsets span 2");
    refuse("{" ENTRY("a", "F4", "[3]", "[0,1]") "}", 1,
           "tensor 'a': 3 elements of F4 want 2 bytes, and data_offsets span 1");
}
END_TEST

START_TEST(shape_overflows) {
    refuse("{" ENTRY("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0,
           "tensor 'a': its shape has more than 144115188075855871 elements");
    refuse("{" ENTRY("a", "F32", "[9223372036854775807,0,2]", "[0,0]") "}", 0,
           "tensor 'a': its shape has more than 144115188075855871 elements");
    refuse("{" ENTRY("a", "F32", "[9223372036854775808]", "[0,0]") "}", 0, "its header is no valid JSON: too big");
}
END_TEST

START_TEST(offsets_past_the_file) {
    refuse("{" ENTRY("a", "F32", "[2]", "[0,8]") "}", 7,
           "tensor 'a': ends at byte 8, and the file holds only 7 bytes of data");
    refuse("{" ENTRY("a", "F32", "[0]", "[9223372036854775807,9223372036854775807]") "}", 4,
           "tensor 'a': ends at byte 9223372036854775807, and the file holds only 4 bytes of data");
}
END_TEST

START_TEST(offsets_backwards) {
    refuse("{" ENTRY("a", "F32", "[1]", "[8,4]") "}", 8, "tensor 'a': begins at byte 8 and ends before it, at 4");
}
END_TEST

START_TEST(overlap_hole_and_rest) {
    refuse("{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("b", "F32", "[1]", "[4,8]") "}", 8,
           "tensor 'b': begins at byte 4 where the tensors before it end at 8: they overlap");
    refuse("{" ENTRY("a", "F32", "[1]", "[0,4]") "," ENTRY("b", "F32", "[1]", "[8,12]") "}", 12,
           "tensor 'b': begins at byte 8 where the tensors before it end at 4: they leave a hole");
    refuse("{" ENTRY("a", "F32", "[1]", "[0,4]") "}", 5,
           "its tensors end at byte 4, and 5 bytes of data follow the header");
}
END_TEST

START_TEST(every_cut) {
    for (size_t size = 0; size < sizeof safetensors_mixed - 1; ++size) {
        safetensors *file;
        failure f = {0};
        ck_assert(!open_bytes(safetensors_mixed, size, &file, &f));
        ck_assert_ptr_nonnull(strstr(f.text, "/x"));
    }
}
END_TEST

START_TEST(cut_while_open) {
    safetensors *file = open_golden(safetensors_plain, sizeof safetensors_plain - 1);
    char *path = folder_path("x");
    ck_assert_int_eq(truncate(path, sizeof safetensors_plain - 5), 0);
    check_values(file, "a", 1, (float[]){1, 2}, 2);
    refuse_read(file, "bb", "/x: the file shrank while being read");
    safetensors_close(file);
    free(path);
}
END_TEST

START_TEST(no_plain_file) {
    safetensors *file;
    failure f = {0}, g = {0}, h = {0};
    ck_assert(!safetensors_open("/", &file, &f));
    ck_assert_str_eq(f.text, "cannot read /: it is a folder");
    ck_assert(!safetensors_open("/dev/zero", &file, &g));
    ck_assert_str_eq(g.text, "cannot read /dev/zero: it is no plain file, which weights must be");
    ck_assert(!safetensors_open("no such", &file, &h));
    ck_assert_str_eq(h.text, "cannot read no such: No such file or directory");
}
END_TEST

/* ---- writing ---- */

static const int64_t two[] = {2}, column[] = {2, 1};
static const float first[] = {1, 2}, second[] = {3, 4};

START_TEST(writes_what_the_reference_writes) {
    char *path = folder_path("w");
    outputs set = {0};
    failure f = {0};
    const safetensors_tensor tensors[] = {{"a", 1, two, first}, {"bb", 2, column, second}};
    ck_assert_msg(safetensors_write(&set, path, tensors, 2, &f), "%s", f.text);
    ck_assert(outputs_commit(&set, &f));
    folder_expect(path, safetensors_plain, sizeof safetensors_plain - 1);
    free(path);
}
END_TEST

START_TEST(large_and_odd_tensors_come_back) {
    static float large[50021];
    for (int i = 0; i < 50021; ++i) {
        large[i] = (float)i * 0.3f;
    }
    large[7] = NAN;
    const int64_t length[] = {50021}, none[] = {3, 0};
    const safetensors_tensor tensors[] = {{"", 1, two, first},
                                          {"\"\\\n\xf0\x9f\x8e\xb5", 1, length, large},
                                          {"s", 0, NULL, second},
                                          {"e", 2, none, NULL}};
    char *path = folder_path("w");
    outputs set = {0};
    safetensors *file;
    failure f = {0};
    ck_assert_msg(safetensors_write(&set, path, tensors, 4, &f), "%s", f.text);
    ck_assert(outputs_commit(&set, &f));
    ck_assert_msg(safetensors_open(path, &file, &f), "%s", f.text);
    check_values(file, "", 1, first, 2);
    check_values(file, tensors[1].name, 1, large, 50021);
    check_values(file, "s", 0, second, 1);
    check_values(file, "e", 2, NULL, 0);
    safetensors_close(file);
    free(path);
}
END_TEST

static void refuse_write(const safetensors_tensor *tensors, size_t count, const char *sentence) {
    char *path = folder_path("w");
    outputs set = {0};
    failure f = {0};
    ck_assert(!safetensors_write(&set, path, tensors, count, &f));
    ck_assert_msg(strstr(f.text, sentence) != NULL, "%s", f.text);
    outputs_discard(&set);
    ck_assert_int_eq(folder_count(), 0);
    free(path);
}

START_TEST(impossible_tensors_are_not_written) {
    const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2};
    const safetensors_tensor twice[] = {{"a", 1, two, first}, {"a", 1, two, first}};
    refuse_write(twice, 2, "the name 'a' is taken");
    refuse_write(&(safetensors_tensor){"__metadata__", 1, two, first}, 1, "the name '__metadata__' is taken");
    refuse_write(&(safetensors_tensor){"\xff", 1, two, first}, 1, "is no UTF-8");
    refuse_write(&(safetensors_tensor){"n", 1, negative, first}, 1, "tensor 'n' has an impossible shape");
    refuse_write(&(safetensors_tensor){"h", 2, huge, first}, 1, "tensor 'h' has an impossible shape");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, folder_setup, folder_teardown);
    const TTest *tests[] = {
        reads_every_float_type,
        lists_in_the_order_of_bytes,
        what_it_cannot_convert_fails_only_when_asked_for,
        opens_odd_but_valid_headers,
        unaligned_data,
        too_short_for_a_header,
        header_over_the_limit,
        garbage_headers,
        nul_bytes,
        duplicate_names,
        deep_json,
        wide_json,
        entries_of_the_wrong_kind,
        shape_against_offsets,
        shape_overflows,
        offsets_past_the_file,
        offsets_backwards,
        overlap_hole_and_rest,
        every_cut,
        cut_while_open,
        no_plain_file,
        writes_what_the_reference_writes,
        large_and_odd_tensors_come_back,
        impossible_tensors_are_not_written,
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; ++i) {
        tcase_add_test(all, tests[i]);
    }
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
