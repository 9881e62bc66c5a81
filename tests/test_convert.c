/* 16-bit floats and stored numbers, checked against their definitions. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/convert.h"

/* sign * 2^(e-15) * 1.f, or sign * 2^-14 * 0.f */
static double f16_by_definition(int bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) {
        return fraction ? NAN : sign * INFINITY;
    }
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* Check's own assertions take microseconds even when they hold: too much for loops over every value. */
static void demand(bool holds, int bits) {
    if (!holds) {
        ck_abort_msg("wrong for bits 0x%04x", (unsigned)bits);
    }
}

START_TEST(every_f16_is_exact_and_returns) {
    for (int bits = 0; bits < 65536; ++bits) {
        double want = f16_by_definition(bits);
        float got = f16_to_f32((uint16_t)bits);
        if (isnan(want)) {
            ck_assert(isnan(got));
            ck_assert(isnan(f16_to_f32(f32_to_f16(got))));
        } else {
            demand(got == want && !signbit(got) == !signbit(want) && f32_to_f16(got) == bits, bits);
        }
    }
}
END_TEST

START_TEST(every_bf16_is_exact_and_returns) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        float got = bf16_to_f32((uint16_t)bits);
        uint32_t back;
        memcpy(&back, &got, 4);
        demand(back == bits << 16, (int)bits);
        if (isnan(got)) {
            ck_assert(isnan(bf16_to_f32(f32_to_bf16(got))));
        } else {
            demand(f32_to_bf16(got) == bits, (int)bits);
        }
    }
}
END_TEST

/* Between neighbours a and a + 1 (as bits): the middle goes to the even one, its neighbours to theirs. */
static void check_rounding(float (*widen)(uint16_t), uint16_t (*narrow)(float), uint16_t last) {
    for (uint16_t a = 0; a < last; ++a) {
        double low = widen(a), high = widen((uint16_t)(a + 1));
        float middle = (float)((low + high) / 2);
        unsigned even = a & 1 ? a + 1u : a;
        demand(narrow(middle) == even && narrow(-middle) == (0x8000u | even), a);
        demand(narrow(nextafterf(middle, 0)) == a && narrow(nextafterf(middle, INFINITY)) == a + 1u, a);
    }
}

START_TEST(f16_rounds_to_nearest_even) {
    check_rounding(f16_to_f32, f32_to_f16, 0x7bff);
    ck_assert_uint_eq(f32_to_f16(65504), 0x7bff);
    ck_assert_uint_eq(f32_to_f16(nextafterf(65520, 0)), 0x7bff);
    ck_assert_uint_eq(f32_to_f16(65520), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(-1e30f), 0xfc00);
    ck_assert_uint_eq(f32_to_f16(1e-30f), 0);
    ck_assert_uint_eq(f32_to_f16(-1e-45f), 0x8000);
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even) {
    check_rounding(bf16_to_f32, f32_to_bf16, 0x7f7f);
    ck_assert_uint_eq(f32_to_bf16(3.4e38f), 0x7f80);
    ck_assert_uint_eq(f32_to_bf16(INFINITY), 0x7f80);
}
END_TEST

/* A NaN whose payload lies in the dropped bits must not turn into an infinity. */
START_TEST(nan_with_low_payload_stays_nan) {
    uint32_t bits = 0xff800001;
    float value;
    memcpy(&value, &bits, 4);
    ck_assert(isnan(f16_to_f32(f32_to_f16(value))));
    ck_assert(isnan(bf16_to_f32(f32_to_bf16(value))));
}
END_TEST

START_TEST(stored_numbers_of_both_byte_orders) {
    const unsigned char third[] = {0x3f, 0xd5, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55};
    ck_assert(number_float(NUMBER_F64, third, true) == (float)(1.0 / 3));
    const unsigned char one[] = {0, 0, 0x80, 0x3f};
    ck_assert(number_float(NUMBER_F32, one, false) == 1);
    ck_assert(number_float(NUMBER_BF16, one + 2, false) == 1);
    const unsigned char minus[] = {0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0};
    ck_assert_int_eq(number_integer(NUMBER_I32, minus, true), -2);
    ck_assert_int_eq(number_integer(NUMBER_I64, minus, true), -(INT64_C(2) << 32));
    ck_assert_int_eq(number_integer(NUMBER_I64, minus, false), INT64_C(0xfeffffff));
}
END_TEST

START_TEST(huge_f64_becomes_infinite) {
    const unsigned char huge[] = {0x7f, 0xe0, 0, 0, 0, 0, 0, 0}, tiny[] = {0x00, 0x10, 0, 0, 0, 0, 0, 0};
    ck_assert(isinf(number_float(NUMBER_F64, huge, true)));
    ck_assert(number_float(NUMBER_F64, tiny, true) == 0);
}
END_TEST

START_TEST(shapes_are_multiplied_safely) {
    int64_t count = -1;
    const int64_t good[] = {2, 3, 4}, zero[] = {INT64_MAX, 0}, hidden[] = {INT64_MAX, 0, 3}, negative[] = {-1, 0};
    ck_assert(shape_count(good, 3, 24, &count) && count == 24);
    ck_assert(!shape_count(good, 3, 23, &count));
    ck_assert(shape_count(good, 0, 1, &count) && count == 1);
    ck_assert(shape_count(zero, 2, INT64_MAX, &count) && count == 0);
    ck_assert(!shape_count(hidden, 3, INT64_MAX, &count));
    ck_assert(!shape_count(negative, 2, INT64_MAX, &count));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("convert");
    TCase *all = tcase_create("all");
    tcase_add_test(all, every_f16_is_exact_and_returns);
    tcase_add_test(all, every_bf16_is_exact_and_returns);
    tcase_add_test(all, f16_rounds_to_nearest_even);
    tcase_add_test(all, bf16_rounds_to_nearest_even);
    tcase_add_test(all, nan_with_low_payload_stays_nan);
    tcase_add_test(all, stored_numbers_of_both_byte_orders);
    tcase_add_test(all, huge_f64_becomes_infinite);
    tcase_add_test(all, shapes_are_multiplied_safely);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
