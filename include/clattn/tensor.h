/* Tensors: borrowed device memory with a type, a shape and strides. */
#ifndef CLATTN_TENSOR_H
#define CLATTN_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <clattn/status.h>

/* Storage types. Arithmetic is float32 whatever the storage. I32 and I64 are for lengths and links. */
typedef enum clattn_type {
    CLATTN_F32 = 0,
    CLATTN_F16 = 1,
    CLATTN_BF16 = 2,
    CLATTN_I32 = 3,
    CLATTN_I64 = 4,
} clattn_type;

enum { CLATTN_MAX_RANK = 4 };

/* A tensor. The memory is borrowed: the caller keeps it alive until the work queued on it is done.
 *
 * Planning reads type, rank, shape and stride and ignores memory and offset; enqueueing wants the
 * same type, shape and strides again, with the memory.
 *
 * memory  the buffer; NULL where an optional tensor is absent
 * offset  elements from the start of the buffer to element (0, …, 0); 64 bits, any alignment of the
 *         element type. An offset, not a sub-buffer: no device alignment applies
 * type    storage type
 * rank    0..CLATTN_MAX_RANK; rank 0 with memory NULL is "absent"
 * shape   elements along each axis, ≥ 0
 * stride  elements between neighbours along each axis. The last axis must have stride 1 (where its
 *         shape is above 1); 0 broadcasts an input along an axis; negative ones are refused */
typedef struct clattn_tensor {
    cl_mem memory;
    uint64_t offset;
    clattn_type type;
    int32_t rank;
    int64_t shape[CLATTN_MAX_RANK];
    int64_t stride[CLATTN_MAX_RANK];
} clattn_tensor;

/* A tensor of the given shape with contiguous row-major strides, at element offset 0 of memory
 * (which may be NULL when only planning). rank outside 0..CLATTN_MAX_RANK gives rank 0.
 * Thread-safety: any thread, any time. */
CLATTN_API clattn_tensor clattn_tensor_make(cl_mem memory, clattn_type type, int32_t rank, const int64_t *shape);

/* Bytes of one element; 0 for a value that is no clattn_type. Thread-safety: any. */
CLATTN_API size_t clattn_type_size(clattn_type type);

/* "f32", "f16", "bf16", "i32", "i64"; "?" for a value that is no clattn_type. Thread-safety: any. */
CLATTN_API const char *clattn_type_name(clattn_type type);

#endif
