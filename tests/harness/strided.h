/* Tensors [B, H, n, D] whose memory is not their contiguous order. */
#ifndef CLATTN_TESTS_STRIDED_H
#define CLATTN_TESTS_STRIDED_H

#include "harness/guarded.h"

/* by_token  memory is [B, n, H, row] instead of [B, H, n, row]
 * gap       elements behind each row: NaN, and an output leaves them so */
typedef struct spread {
    bool by_token;
    int gap;
} spread;

/* The tensor, without memory. */
clattn_tensor strided_layout(clattn_type type, spread s, const int64_t shape[4]);

/* A buffer behind the tensor, holding values [B, H, n, D], or NaN where values is NULL. */
guarded strided_make(const fixture *f, clattn_tensor *tensor, const double *values);

/* The elements [B, H, n, D]; fails where a gap was written. For free(). */
double *strided_read(const fixture *f, const guarded *g, const clattn_tensor *tensor, const char *name);

#endif
