/* Comparing results with the reference. */
#ifndef CLATTN_TESTS_CLOSE_H
#define CLATTN_TESTS_CLOSE_H

#include <stddef.h>

/* Largest |got − want| over the largest finite |want| (at least 1e-3), and where. Infinite values must be equal;
 * a NaN on either side is an infinite error. */
double largest_error(const double *got, const double *want, size_t count, size_t *where);

/* Fail the running test unless that error is within tolerance: names the first element outside it, and the worst. */
void assert_close(const char *name, const double *got, const double *want, size_t count, double tolerance);

#endif
