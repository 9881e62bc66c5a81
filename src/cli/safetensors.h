/* safetensors files: 8 bytes of header size, a JSON header, the tensors' bytes. */
#ifndef CLATTN_CLI_SAFETENSORS_H
#define CLATTN_CLI_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "cli/output.h"

enum { SAFETENSORS_MAX_RANK = 4 };

/* An open file. Only its header is in memory; tensors are read one by one. */
typedef struct safetensors safetensors;

/* A tensor of an open file, which owns the texts.
 * dtype   as the file spells it, also one that safetensors_read cannot convert
 * rank    may be above SAFETENSORS_MAX_RANK: then shape holds the first axes only, and reading fails */
typedef struct safetensors_info {
    const char *name;
    const char *dtype;
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
    int64_t count;      /* elements */
    int64_t begin, end; /* bytes, from the first tensor's start */
} safetensors_info;

/* Open a file and check its whole header. As the format's reference does, tensors that overlap, leave a hole
 * or do not end where the file ends are refused. The sentence names file and tensor. */
bool safetensors_open(const char *path, safetensors **file, failure *f);

/* The same for an open, seekable descriptor, which the file then owns (closed on failure too). */
bool safetensors_open_descriptor(int fd, const char *name, safetensors **file, failure *f);

void safetensors_close(safetensors *file);

/* Tensors, in the order of their bytes. */
size_t safetensors_count(const safetensors *file);
const safetensors_info *safetensors_at(const safetensors *file, size_t i);

/* NULL where the file has no tensor of this name. */
const safetensors_info *safetensors_find(const safetensors *file, const char *name);

/* Read a tensor of this file as malloc'ed float32, row-major. F16, BF16 and F32 are exact, F64 rounds. */
bool safetensors_read(const safetensors *file, const safetensors_info *info, float **values, failure *f);

/* A tensor to write. */
typedef struct safetensors_tensor {
    const char *name; /* UTF-8 */
    int rank;
    const int64_t *shape;
    const float *values;
} safetensors_tensor;

/* Add a file of F32 tensors, in this order, to a command's outputs. */
bool safetensors_write(outputs *set, const char *path, const safetensors_tensor *tensors, size_t count, failure *f);

#endif
