#include "harness/close.h"

#include <check.h>
#include <math.h>

static double scale_of(const double *want, size_t count) {
    double largest = 1e-3;
    for (size_t e = 0; e < count; e++)
        if (isfinite(want[e]))
            largest = fmax(largest, fabs(want[e]));
    return largest;
}

static double error_of(double got, double want, double scale) {
    if (got == want)
        return 0;
    return isfinite(got) && isfinite(want) ? fabs(got - want) / scale : INFINITY;
}

double largest_error(const double *got, const double *want, size_t count, size_t *where) {
    double scale = scale_of(want, count), worst = 0;
    *where = 0;
    for (size_t e = 0; e < count; e++) {
        double error = error_of(got[e], want[e], scale);
        if (error > worst) {
            worst = error;
            *where = e;
        }
    }
    return worst;
}

void assert_close(const char *name, const double *got, const double *want, size_t count, double tolerance) {
    size_t worst, first = 0;
    double error = largest_error(got, want, count, &worst), scale = scale_of(want, count);
    if (error <= tolerance)
        return;
    while (error_of(got[first], want[first], scale) <= tolerance)
        first++;
    ck_abort_msg(
        "%s: element %zu of %zu is %.9g, wanted %.9g; worst is element %zu, %.9g, wanted %.9g: error %.3g of the "
        "largest magnitude %.3g, tolerance %.3g",
        name, first, count, got[first], want[first], worst, got[worst], want[worst], error, scale, tolerance);
}
