/* Names of codes; shapes and names of tensors. */
#include <check.h>
#include <stdlib.h>

#include <clattn/tensor.h>

START_TEST(codes_have_names) {
    ck_assert_str_eq(clattn_status_string(CLATTN_SUCCESS), "CLATTN_SUCCESS");
    ck_assert_str_eq(clattn_status_string(CLATTN_INVALID_SHAPE), "CLATTN_INVALID_SHAPE");
    ck_assert_str_eq(clattn_status_string(CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
    ck_assert_str_eq(clattn_status_string(CL_DEVICE_NOT_FOUND), "CL_DEVICE_NOT_FOUND");
    ck_assert_str_eq(clattn_status_string(CL_INVALID_GLOBAL_WORK_SIZE), "CL_INVALID_GLOBAL_WORK_SIZE");
    ck_assert_str_eq(clattn_status_string(-72), "CL_MAX_SIZE_RESTRICTION_EXCEEDED");
    ck_assert_str_eq(clattn_status_string(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
    ck_assert_str_eq(clattn_status_string(-1024), "CLBLAST_NOT_IMPLEMENTED");
    ck_assert_str_eq(clattn_status_string(-1007), "CLBLAST_INSUFFICIENT_MEMORY_Y");
    ck_assert_str_eq(clattn_status_string(-2050), "CLBLAST_INSUFFICIENT_MEMORY_TEMP");
    ck_assert_str_eq(clattn_status_string(-2039), "CLBLAST_UNEXPECTED_ERROR");
}
END_TEST

START_TEST(codes_without_names_are_unknown) {
    const clattn_status codes[] = {9, 99, 203, INT32_MAX, INT32_MIN, -20, -29, -73, -1006, -1023, -1025, -2038, -2051};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i) {
        ck_assert_str_eq(clattn_status_string(codes[i]), "unknown status");
    }
    ck_assert_str_eq(clattn_status_message(9), "unknown status");
    ck_assert_str_eq(clattn_status_message(-5), "OpenCL or CLBlast error");
    ck_assert_str_eq(clattn_status_message(CLATTN_UNSUPPORTED), "not supported here");
}
END_TEST

START_TEST(tensors_are_row_major) {
    const int64_t shape[] = {2, 3, 5};
    clattn_tensor t = clattn_tensor_make(NULL, CLATTN_F16, 3, shape);
    ck_assert_int_eq(t.rank, 3);
    ck_assert_int_eq(t.type, CLATTN_F16);
    ck_assert_uint_eq(t.offset, 0);
    ck_assert(t.shape[0] == 2 && t.shape[1] == 3 && t.shape[2] == 5 && t.shape[3] == 0);
    ck_assert(t.stride[0] == 15 && t.stride[1] == 5 && t.stride[2] == 1 && t.stride[3] == 0);
    ck_assert_int_eq(clattn_tensor_make(NULL, CLATTN_F32, 5, shape).rank, 0);
    ck_assert_int_eq(clattn_tensor_make(NULL, CLATTN_F32, -1, shape).rank, 0);
    ck_assert_int_eq(clattn_tensor_make(NULL, CLATTN_F32, 0, NULL).rank, 0);
}
END_TEST

START_TEST(tensors_of_odd_sizes_do_not_broadcast_or_trap) {
    const int64_t empty[] = {2, 0, 5}, huge[] = {INT64_MAX, INT64_MAX, INT64_MAX};
    ck_assert_int_eq(clattn_tensor_make(NULL, CLATTN_F32, 3, empty).stride[0], 5);
    ck_assert_int_eq(clattn_tensor_make(NULL, CLATTN_F32, 3, huge).stride[1], INT64_MAX);
}
END_TEST

START_TEST(types_have_sizes_and_names) {
    ck_assert_uint_eq(clattn_type_size(CLATTN_F32), 4);
    ck_assert_uint_eq(clattn_type_size(CLATTN_BF16), 2);
    ck_assert_uint_eq(clattn_type_size(CLATTN_I64), 8);
    ck_assert_str_eq(clattn_type_name(CLATTN_F16), "f16");
    ck_assert_str_eq(clattn_type_name(CLATTN_I32), "i32");
    ck_assert_uint_eq(clattn_type_size((clattn_type)5), 0);
    ck_assert_str_eq(clattn_type_name((clattn_type)-1), "?");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TCase *code = tcase_create("code");
    tcase_add_test(code, codes_have_names);
    tcase_add_test(code, codes_without_names_are_unknown);
    tcase_add_test(code, tensors_are_row_major);
    tcase_add_test(code, tensors_of_odd_sizes_do_not_broadcast_or_trap);
    tcase_add_test(code, types_have_sizes_and_names);
    suite_add_tcase(suite, code);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
