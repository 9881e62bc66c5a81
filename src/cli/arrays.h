/* The arrays that a run takes from files, checked. */
#ifndef CLATTN_CLI_ARRAYS_H
#define CLATTN_CLI_ARRAYS_H

#include "cli/npy.h"

/* Read [B, n, d] of floats. */
bool read_input(const char *path, npy_array *x, failure *f);

/* Read floats of the input's shape: the gradient of the output. */
bool read_gradient(const char *path, const npy_array *x, npy_array *dy, failure *f);

/* Read [batch] of whole numbers 0..length into malloc'ed memory. */
bool read_lengths(const char *path, int64_t batch, int64_t length, int32_t **lengths, failure *f);

#endif
