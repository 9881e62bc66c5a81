/* NumPy's .npy files, versions 1.0 to 3.0. */
#ifndef CLATTN_CLI_NPY_H
#define CLATTN_CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "cli/output.h"

enum { NPY_MAX_RANK = 4 };

/* An array in C order. Files of f2, f4 and f8 fill values, of i4 and i8 integers; the other is NULL. */
typedef struct npy_array {
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int64_t count; /* product of shape */
    float *values;
    int64_t *integers;
} npy_array;

/* Read a file. The sentence names the file, what is wrong, and both values. */
bool npy_read(const char *path, npy_array *array, failure *f);

/* The same for a file already in memory; name is for the sentence. */
bool npy_parse(const char *name, const unsigned char *data, size_t size, npy_array *array, failure *f);

void npy_free(npy_array *array);

/* Add a version 1.0 file of little-endian <f4 or <i4 in C order to a command's outputs. */
bool npy_write_f32(outputs *set, const char *path, int rank, const int64_t *shape, const float *values, failure *f);
bool npy_write_i32(outputs *set, const char *path, int rank, const int64_t *shape, const int32_t *values, failure *f);

#endif
