/* Device buffers with guard bands: a kernel that writes outside its tensor is caught. */
#ifndef CLATTN_TESTS_GUARDED_H
#define CLATTN_TESTS_GUARDED_H

#include "harness/device.h"

/* before  bytes of the band in front of the elements; the band behind has GUARD_BYTES */
typedef struct guarded {
    cl_mem memory;
    clattn_type type;
    size_t count, before, bytes;
} guarded;

enum { GUARD_BYTES = 4096 };

/* count elements filled with NaN (integers with −1). */
guarded guarded_make(const fixture *f, clattn_type type, size_t count);

/* The same, of bytes not rounded to elements, never moved off alignment: a workspace. */
guarded guarded_bytes(const fixture *f, size_t bytes);

/* With these elements, rounded to the type. */
guarded guarded_upload(const fixture *f, clattn_type type, const double *values, size_t count);
guarded guarded_ints(const fixture *f, const int *values, size_t count);   /* I32 */
guarded guarded_longs(const fixture *f, const long *values, size_t count); /* I64 */

/* NaN again, bands too. */
void guarded_refill(const fixture *f, guarded *g);

/* Did no byte of the bands change? Else *where (may be NULL) is the first, counted from the first element. */
bool guarded_intact(const fixture *f, const guarded *g, long *where);

/* Fail the test unless so. */
void guarded_check(const fixture *f, const guarded *g, const char *name);

/* The elements, after guarded_check; a new array for free(). */
double *guarded_read(const fixture *f, const guarded *g, const char *name);

/* A contiguous tensor over the elements; unused axes are 0. */
clattn_tensor guarded_tensor(const guarded *g, int rank, int64_t s0, int64_t s1, int64_t s2, int64_t s3);

/* Release; a zeroed one is accepted. */
void guarded_free(guarded *g);

#endif
