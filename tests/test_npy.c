/* .npy files: golden bytes by NumPy, round trips, hostile headers. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "folder.h"
#include "golden_npy.h"

static npy_array parse(const char *data, size_t size) {
    npy_array array;
    failure f = {0};
    ck_assert_msg(npy_parse("x.npy", (const unsigned char *)data, size, &array, &f), "%s", f.text);
    ck_assert_str_eq(f.text, "");
    return array;
}

#define PARSE(golden) parse(golden, sizeof(golden) - 1)

static void check_sample(npy_array array) {
    const float want[] = {0, 1.5f, -2, 3, 65504, 0x1p-24f};
    ck_assert(array.rank == 2 && array.shape[0] == 2 && array.shape[1] == 3 && array.count == 6);
    ck_assert_ptr_null(array.integers);
    ck_assert_mem_eq(array.values, want, sizeof want);
    npy_free(&array);
    ck_assert_ptr_null(array.values);
}

START_TEST(reads_f4) { check_sample(PARSE(npy_f4)); }
END_TEST

START_TEST(reads_f2_fortran_version_2) { check_sample(PARSE(npy_f2_fortran)); }
END_TEST

START_TEST(reads_f8_big_endian_version_3) { check_sample(PARSE(npy_f8_big)); }
END_TEST

START_TEST(reads_i4_big_endian_fortran_rank_4) {
    npy_array array = PARSE(npy_i4_rank4_fortran);
    ck_assert(array.rank == 4 && array.shape[0] == 2 && array.shape[1] == 3 && array.shape[3] == 2);
    ck_assert_ptr_null(array.values);
    for (int i = 0; i < 24; ++i) {
        ck_assert_int_eq(array.integers[i], -1000003 * i);
    }
    npy_free(&array);
}
END_TEST

START_TEST(reads_i8_scalar) {
    npy_array array = PARSE(npy_i8_scalar);
    ck_assert(array.rank == 0 && array.count == 1);
    ck_assert_int_eq(array.integers[0], -(INT64_C(1) << 40));
    npy_free(&array);
}
END_TEST

START_TEST(reads_empty_and_vector) {
    npy_array empty = PARSE(npy_empty), vector = PARSE(npy_vector);
    ck_assert(empty.rank == 2 && empty.shape[0] == 3 && empty.shape[1] == 0 && empty.count == 0 && empty.values);
    ck_assert(vector.rank == 1 && vector.shape[0] == 3 && vector.values[2] == 9);
    npy_free(&empty);
    npy_free(&vector);
}
END_TEST

/* ---- other spellings, and hostile ones: a version 1.0 file of header text and data ---- */

static bool parse_text(const char *header, size_t data_size, npy_array *array, failure *f) {
    size_t length = strlen(header), size = 10 + length + data_size;
    unsigned char *file = calloc(size, 1);
    ck_assert_ptr_nonnull(file);
    memcpy(file, "\x93NUMPY\x01", 7);
    file[8] = length & 255;
    file[9] = (unsigned char)(length >> 8);
    memcpy(file + 10, header, length);
    bool done = npy_parse("x.npy", file, size, array, f);
    free(file);
    return done;
}

#define HEADER(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void refuse(const char *header, size_t data_size, const char *sentence) {
    npy_array array;
    failure f = {0};
    ck_assert(!parse_text(header, data_size, &array, &f));
    ck_assert_str_eq(f.text, sentence);
    ck_assert(!array.values && !array.integers);
}

START_TEST(accepts_other_spellings) {
    const char *headers[] = {
        "{\"shape\":(2L,),\"descr\":'f4','fortran_order':False}\n",
        HEADER("'|f4'", "True", "( 2 , )"),
        HEADER("'=f4'", "False", "(2,)"),
        HEADER("'<f4'", "False", "(1,2)"),
        "  {'shape': (2,),\n 'fortran_order': False,\t'descr': '<i4'}     ",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; ++i) {
        npy_array array;
        failure f = {0};
        ck_assert_msg(parse_text(headers[i], 8, &array, &f), "%s", f.text);
        ck_assert_int_eq(array.count, 2);
        npy_free(&array);
    }
}
END_TEST

START_TEST(short_data) {
    refuse(HEADER("'<f4'", "False", "(2, 3)"), 20,
           "x.npy: shape [2, 3] of 4-byte elements wants 24 bytes of data, and 20 follow");
}
END_TEST

START_TEST(long_data) {
    refuse(HEADER("'<f8'", "False", "(3,)"), 25,
           "x.npy: shape [3] of 8-byte elements wants 24 bytes of data, and 25 follow");
}
END_TEST

START_TEST(product_overflows) {
    refuse(HEADER("'<f4'", "False", "(4294967296, 4294967296)"), 0,
           "x.npy: shape [4294967296, 4294967296] has more elements than memory can hold; 0 bytes of data follow");
    refuse(HEADER("'<f4'", "True", "(4611686018427387905, 4)"), 16,
           "x.npy: shape [4611686018427387905, 4] has more elements than memory can hold; 16 bytes of data follow");
}
END_TEST

START_TEST(product_overflows_behind_a_zero) {
    refuse(HEADER("'<f4'", "False", "(9223372036854775807, 0, 2)"), 0,
           "x.npy: shape [9223372036854775807, 0, 2] has more elements than memory can hold; 0 bytes of data follow");
}
END_TEST

START_TEST(huge_shape_of_small_file) {
    refuse(HEADER("'<i8'", "False", "(1000000000000,)"), 8,
           "x.npy: shape [1000000000000] of 8-byte elements wants 8000000000000 bytes of data, and 8 follow");
}
END_TEST

START_TEST(size_past_64_bits) {
    refuse(HEADER("'<f4'", "False", "(9223372036854775808,)"), 4,
           "x.npy: header wants a size below 2^63 where it holds \"9223372036854775808,), \"");
}
END_TEST

START_TEST(negative_size) {
    refuse(HEADER("'<f4'", "False", "(-3, 2)"), 0, "x.npy: shape holds the negative size -3, and the least is 0");
}
END_TEST

START_TEST(rank_5) {
    refuse(HEADER("'<f4'", "False", "(1, 1, 1, 1, 1)"), 4, "x.npy: shape has 5 axes, and the most is 4");
}
END_TEST

START_TEST(other_types) {
    refuse(HEADER("'<u4'", "False", "(1,)"), 4, "x.npy: element type '<u4' is none of f2, f4, f8, i4 and i8");
    refuse(HEADER("'|O'", "False", "(1,)"), 8, "x.npy: element type '|O' is none of f2, f4, f8, i4 and i8");
    refuse(HEADER("'<f44'", "False", "(1,)"), 4, "x.npy: element type '<f44' is none of f2, f4, f8, i4 and i8");
    refuse(HEADER("''", "False", "(1,)"), 4, "x.npy: element type '' is none of f2, f4, f8, i4 and i8");
    refuse(HEADER("[('a', '<f4')]", "False", "(1,)"), 4,
           "x.npy: header wants a plain element type where it holds \"[('a', '<f4')], 'fortra\"");
}
END_TEST

START_TEST(missing_key) {
    refuse("{'descr': '<f4', 'fortran_order': False}", 4, "x.npy: header lacks the key 'shape'");
    refuse("{'fortran_order': False, 'shape': (1,)}", 4, "x.npy: header lacks the key 'descr'");
    refuse("{}", 4, "x.npy: header lacks the key 'descr'");
}
END_TEST

START_TEST(double_and_unknown_key) {
    refuse("{'shape': (1,), 'shape': (2,)}", 4, "x.npy: header holds the key 'shape' twice");
    refuse("{'shapes': (1,)}", 4, "x.npy: header holds the unknown key 'shapes'");
}
END_TEST

START_TEST(broken_headers) {
    refuse("", 4, "x.npy: header ends where it wants a dictionary");
    refuse("garbage", 4, "x.npy: header wants a dictionary where it holds \"garbage\"");
    refuse("{'descr", 4, "x.npy: header wants a quoted key where it holds \"'descr\"");
    refuse("{'descr' '<f4'}", 4, "x.npy: header wants ':' where it holds \"'<f4'}\"");
    refuse("{'shape': (1,", 4, "x.npy: header ends where it wants a size of shape");
    refuse("{'shape': (1 2)}", 4, "x.npy: header wants a comma or ')' in shape where it holds \"2)}\"");
    refuse("{'shape': (,)}", 4, "x.npy: header wants a size of shape where it holds \",)}\"");
    refuse("{'shape': (3)}", 4, "x.npy: header wants a tuple for shape, not a number in brackets where it holds \"}\"");
    refuse("{'shape': 3}", 4, "x.npy: header wants a tuple for shape where it holds \"3}\"");
    refuse("{'fortran_order': 0}", 4, "x.npy: header wants True or False for fortran_order where it holds \"0}\"");
    refuse("{'shape': (1,) 'descr': '<f4'}", 4,
           "x.npy: header wants a comma or '}' where it holds \"'descr': '<f4'}\"");
    refuse(HEADER("'<f4'", "False", "(1,)") "\n\x1b[2J", 4,
           "x.npy: header wants nothing more after '}' where it holds \"?[2J\"");
}
END_TEST

static void refuse_bytes(const char *data, size_t size, const char *sentence) {
    npy_array array;
    failure f = {0};
    /* At the end of an exact allocation, where a sanitizer sees a byte too many. */
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    ck_assert(!npy_parse("x.npy", copy, size, &array, &f));
    ck_assert_str_eq(f.text, sentence);
    free(copy);
}

START_TEST(no_npy_file) {
    refuse_bytes("", 0, "x.npy: not a .npy file (0 bytes, without NumPy's mark at the start)");
    refuse_bytes("\x93NUMPY\x01", 7, "x.npy: not a .npy file (7 bytes, without NumPy's mark at the start)");
    refuse_bytes("PK\3\4 zip file", 13, "x.npy: not a .npy file (13 bytes, without NumPy's mark at the start)");
}
END_TEST

START_TEST(other_versions) {
    refuse_bytes("\x93NUMPY\x04\x00\x00\x00\x00\x00", 12, "x.npy: .npy version 4.0 is none of 1.0, 2.0 and 3.0");
    refuse_bytes("\x93NUMPY\x01\x01\x00\x00", 10, "x.npy: .npy version 1.1 is none of 1.0, 2.0 and 3.0");
}
END_TEST

START_TEST(header_past_the_end) {
    refuse_bytes("\x93NUMPY\x01\x00v", 9, "x.npy: the file ends after 9 bytes, inside its header");
    refuse_bytes("\x93NUMPY\x01\x00v\x00{'de", 14, "x.npy: a header of 118 bytes is announced, and 4 follow");
    refuse_bytes("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13,
                 "x.npy: a header of 4294967295 bytes is announced, and 1 follow");
}
END_TEST

/* Every cut of a good file is refused. */
START_TEST(every_cut) {
    for (size_t size = 0; size < sizeof npy_f4 - 1; ++size) {
        npy_array array;
        unsigned char *copy = malloc(size ? size : 1);
        memcpy(copy, npy_f4, size);
        ck_assert(!npy_parse("x.npy", copy, size, &array, NULL));
        free(copy);
    }
}
END_TEST

/* ---- files ---- */

START_TEST(writes_what_numpy_writes) {
    outputs set = {0};
    failure f = {0};
    char *floats = folder_path("f.npy"), *integers = folder_path("i.npy");
    const int64_t shape[] = {2, 3}, pairs[] = {2, 2};
    const float values[] = {0, 1.5f, -2, 3, 65504, 0x1p-24f};
    const int32_t links[] = {1, -2, 3, 4};
    ck_assert_msg(npy_write_f32(&set, floats, 2, shape, values, &f), "%s", f.text);
    ck_assert_msg(npy_write_i32(&set, integers, 2, pairs, links, &f), "%s", f.text);
    ck_assert_msg(outputs_commit(&set, &f), "%s", f.text);
    folder_expect(floats, npy_f4, sizeof npy_f4 - 1);
    folder_expect(integers, npy_i4_pairs, sizeof npy_i4_pairs - 1);
    free(floats);
    free(integers);
}
END_TEST

START_TEST(every_rank_comes_back) {
    const int64_t shape[] = {3, 5, 7, 50};
    float values[3 * 5 * 7 * 50];
    char *path = folder_path("x.npy");
    for (int i = 0; i < 3 * 5 * 7 * 50; ++i) {
        values[i] = (float)i * 0.7f;
    }
    values[1] = NAN;
    for (int rank = 0; rank <= 4; ++rank) {
        outputs set = {0};
        npy_array back;
        failure f = {0};
        ck_assert(npy_write_f32(&set, path, rank, shape, values, &f) && outputs_commit(&set, &f));
        ck_assert_msg(npy_read(path, &back, &f), "%s", f.text);
        ck_assert_int_eq(back.rank, rank);
        ck_assert_mem_eq(back.shape, shape, (size_t)rank * sizeof *shape);
        ck_assert_mem_eq(back.values, values, (size_t)back.count * sizeof *values);
        npy_free(&back);
    }
    outputs set = {0};
    ck_assert(!npy_write_f32(&set, path, 5, shape, values, NULL));
    free(path);
}
END_TEST

START_TEST(files_are_named) {
    npy_array array;
    failure f = {0}, g = {0};
    ck_assert(!npy_read("no/such\n.npy", &array, &f));
    ck_assert_str_eq(f.text, "cannot read no/such?.npy: No such file or directory");
    ck_assert(!npy_read("/", &array, &g));
    ck_assert_str_eq(g.text, "cannot read /: it is a folder");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("npy");
    TCase *good = tcase_create("good"), *hostile = tcase_create("hostile"), *file = tcase_create("file");
    tcase_add_test(good, reads_f4);
    tcase_add_test(good, reads_f2_fortran_version_2);
    tcase_add_test(good, reads_f8_big_endian_version_3);
    tcase_add_test(good, reads_i4_big_endian_fortran_rank_4);
    tcase_add_test(good, reads_i8_scalar);
    tcase_add_test(good, reads_empty_and_vector);
    tcase_add_test(good, accepts_other_spellings);
    tcase_add_test(hostile, short_data);
    tcase_add_test(hostile, long_data);
    tcase_add_test(hostile, product_overflows);
    tcase_add_test(hostile, product_overflows_behind_a_zero);
    tcase_add_test(hostile, huge_shape_of_small_file);
    tcase_add_test(hostile, size_past_64_bits);
    tcase_add_test(hostile, negative_size);
    tcase_add_test(hostile, rank_5);
    tcase_add_test(hostile, other_types);
    tcase_add_test(hostile, missing_key);
    tcase_add_test(hostile, double_and_unknown_key);
    tcase_add_test(hostile, broken_headers);
    tcase_add_test(hostile, no_npy_file);
    tcase_add_test(hostile, other_versions);
    tcase_add_test(hostile, header_past_the_end);
    tcase_add_test(hostile, every_cut);
    tcase_add_checked_fixture(file, folder_setup, folder_teardown);
    tcase_add_test(file, writes_what_numpy_writes);
    tcase_add_test(file, every_rank_comes_back);
    tcase_add_test(file, files_are_named);
    suite_add_tcase(suite, good);
    suite_add_tcase(suite, hostile);
    suite_add_tcase(suite, file);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
