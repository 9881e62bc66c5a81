/* The storage types of cl/include/types.h: every 16-bit number is read and every rounding written right, by vectors of each
 * width, at each distance from alignment. */
#include <math.h>
#include <stdlib.h>

#include "api/object.h"
#include "harness/guarded.h"
#include "harness/storage.h"
#include "runtime/source.h"

enum { PATTERNS = 1 << 16, HALF = 1 << 15, WIDTHS = 4, CASES = 2 * WIDTHS, SHIFTS = 9 };

/* Behind a source that includes types.h. */
static const char convert[] = "__kernel void convert(__global const STORAGE(TYPE_X) *from, const long from_offset,\n"
                              "                      __global STORAGE(TYPE_Y) *to, const long to_offset) {\n"
                              "    const long i = get_global_id(0) * VW;\n"
                              "    VSTORE(TYPE_Y, to, to_offset + i, VLOAD(TYPE_X, from, from_offset + i));\n"
                              "}\n";

static cl_kernel build(clattn_type from, clattn_type to, int width) {
    const clattn__define defines[] = {{"EACH", 1}, {"TYPE_X", from}, {"TYPE_Y", to}, {"VW", width}};
    char *source, *options = clattn__program_options(device()->context->runtime->caps.quirks, defines, 4);
    ck_assert_int_eq(clattn__source_expand("fill", &source, NULL), CLATTN_SUCCESS);
    const char *parts[] = {source, convert};
    cl_program program = clCreateProgramWithSource(device()->cl, 2, parts, NULL, NULL);
    ck_assert_int_eq(clBuildProgram(program, 1, &device()->device, options, NULL, NULL), CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "convert", NULL);
    ck_assert_ptr_nonnull(kernel);
    clReleaseProgram(program);
    free(source);
    free(options);
    return kernel;
}

static cl_long first_of(const guarded *g) { return (cl_long)(g->before / clattn_type_size(g->type)); }

/* values through the kernel, compared with the same rounded through `to`: signs of zeros too, any NaN for a NaN. */
static void check(cl_kernel kernel, clattn_type from, clattn_type to, int width, const double *values, double *want) {
    const size_t items = PATTERNS / (size_t)width;
    guarded x = guarded_upload(device(), from, values, PATTERNS), y = guarded_make(device(), to, PATTERNS);
    const cl_long x_first = first_of(&x), y_first = first_of(&y);
    clSetKernelArg(kernel, 0, sizeof x.memory, &x.memory);
    clSetKernelArg(kernel, 1, sizeof x_first, &x_first);
    clSetKernelArg(kernel, 2, sizeof y.memory, &y.memory);
    clSetKernelArg(kernel, 3, sizeof y_first, &y_first);
    ck_assert_int_eq(clEnqueueNDRangeKernel(device()->queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), CL_SUCCESS);
    double *got = guarded_read(device(), &y, "y");
    for (int i = 0; i < PATTERNS; i++)
        ck_assert_msg(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i] && !signbit(got[i]) == !signbit(want[i]),
                      "%s to %s, vectors of %d, %zu off alignment: %a became %a, not %a", clattn_type_name(from),
                      clattn_type_name(to), width, device()->shift, values[i], got[i], want[i]);
    free(got);
    guarded_free(&x);
    guarded_free(&y);
}

static void check_shifted(clattn_type from, clattn_type to, int width, const double *values) {
    cl_kernel kernel = build(from, to, width);
    double *want = calloc(PATTERNS, sizeof *want);
    for (int i = 0; i < PATTERNS; i++)
        want[i] = values[i];
    storage_round(to, want, PATTERNS);
    for (size_t shift = 0; shift < SHIFTS; shift++) {
        device()->shift = shift; /* until aligned_again */
        check(kernel, from, to, width, values, want);
    }
    free(want);
    clReleaseKernel(kernel);
}

static void aligned_again(void) { device()->shift = 0; }

static clattn_type type_of(int number) { return number < WIDTHS ? CLATTN_F16 : CLATTN_BF16; }
static int width_of(int number) { return (const int[WIDTHS]){1, 4, 8, 16}[number % WIDTHS]; }

/* All that a type can hold. */
static void fill(clattn_type type, double *values) {
    uint16_t bits[PATTERNS];
    for (int i = 0; i < PATTERNS; i++)
        bits[i] = (uint16_t)i;
    storage_unpack(type, bits, PATTERNS, values);
}

START_TEST(every_number_is_read) {
    static double values[PATTERNS];
    fill(type_of(_i), values);
    check_shifted(type_of(_i), CLATTN_F32, width_of(_i), values);
}
END_TEST

/* Between each two neighbours the middle, and a float on either side of it. Past the largest, infinity begins where the next
 * would have been nearer. */
START_TEST(every_rounding_is_to_nearest_even) {
    static double all[PATTERNS], values[PATTERNS];
    fill(type_of(_i), all);
    for (int side = -1; side <= 1; side++) {
        for (int i = 0; i < PATTERNS; i++) {
            const double *low = &all[i % HALF];
            float middle = (float)*low;
            if (isfinite(*low)) {
                const double step = isfinite(low[1]) ? low[1] - low[0] : low[0] - low[-1];
                middle = (float)(*low + step / 2);
                middle = side < 0 ? nextafterf(middle, 0) : side > 0 ? nextafterf(middle, INFINITY) : middle;
            }
            values[i] = i < HALF ? middle : -middle;
        }
        check_shifted(CLATTN_F32, type_of(_i), width_of(_i), values);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("types");
    TCase *storage = tcase_create("storage");
    tcase_add_checked_fixture(storage, NULL, aligned_again);
    tcase_add_loop_test(storage, every_number_is_read, 0, CASES);
    tcase_add_loop_test(storage, every_rounding_is_to_nearest_even, 0, CASES);
    suite_add_tcase(suite, storage);
    return run_device_suite(suite);
}
