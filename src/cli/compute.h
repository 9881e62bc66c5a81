/* A layer's passes on arrays in host memory. */
#ifndef CLATTN_CLI_COMPUTE_H
#define CLATTN_CLI_COMPUTE_H

#include <stdint.h>

#include <clattn/cjar.h>

#include "cli/gradients.h"

/* x          [batch, length, size], row-major
 * y          the same, filled by compute_run
 * lengths    [batch], where shape.has_lengths
 * links      where shape.links > 0
 * gradients  where shape.train: then each run is a forward and a backward pass */
typedef struct computation {
    clattn_layer_shape shape;
    int64_t size;
    const float *x;
    float *y;
    const int32_t *lengths;
    const clattn_links *links;
    const gradients *gradients;
    int64_t repeat; /* runs, at least 1 */
    bool profile;   /* the session's queue was opened for it */
} computation;

/* Milliseconds of each run: the least, and the median. */
typedef struct run_times {
    double least, median;
} run_times;

/* device: from the queue's events; NaN without profile. */
typedef struct compute_times {
    run_times host, device;
} compute_times;

bool compute_run(session *s, const clattn_layer *layer, const clattn_plan *plan, const computation *call,
                 compute_times *times, failure *f);

#endif
