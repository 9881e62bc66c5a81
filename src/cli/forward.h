/* A layer's forward pass on arrays in host memory. */
#ifndef CLATTN_CLI_FORWARD_H
#define CLATTN_CLI_FORWARD_H

#include <stdint.h>

#include <clattn/cjar.h>

#include "cli/session.h"

/* x       [batch, length, size], row-major
 * y       the same, filled by forward_run
 * lengths [batch], where shape.has_lengths
 * links   where shape.links > 0 */
typedef struct forward {
    clattn_layer_shape shape;
    int64_t size;
    const float *x;
    float *y;
    const int32_t *lengths;
    const clattn_links *links;
    int64_t repeat; /* runs, at least 1 */
    bool profile;   /* the session's queue was opened for it */
} forward;

/* Milliseconds of each run: the least, and the median. */
typedef struct run_times {
    double least, median;
} run_times;

/* device: from the queue's events; NaN without profile. */
typedef struct forward_times {
    run_times host, device;
} forward_times;

bool forward_run(session *s, const clattn_plan *plan, const forward *call, forward_times *times, failure *f);

#endif
