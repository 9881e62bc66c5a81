/* Facts about a device as plain numbers, queried once; plans are made from these alone. */
#ifndef CLATTN_BASE_CAPS_H
#define CLATTN_BASE_CAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum clattn__device_kind {
    CLATTN__CPU,
    CLATTN__GPU,
    CLATTN__OTHER_DEVICE,
} clattn__device_kind;

/* A quirk is one thing that one implementation does differently; kernels see it as -DQUIRK_<NAME>=1. */
enum {
    CLATTN__QUIRK_NO_NATIVE_EXP = 1u << 0, /* native_exp2 is missing: clang's NVPTX back end; or coarse: Intel, CPU */
    CLATTN__QUIRK_LATE_BINARY = 1u << 1,   /* a binary is complete only after the first launch: PoCL */
    CLATTN__QUIRK_ALIGNED_HALF = 1u << 2,  /* vload_halfn and vstore_halfn want aligned vectors: PoCL (3.1: SIGSEGV) */
};

typedef struct clattn__caps {
    char name[128];
    char vendor[128];
    char platform[128];
    char platform_version[128];
    char driver_version[128];
    char device_version[128];
    clattn__device_kind kind;
    uint32_t vendor_id;
    uint32_t compute_units;
    uint32_t vector_width_f32; /* CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, at least 1 */
    uint64_t global_bytes;
    uint64_t max_alloc_bytes;
    uint64_t local_bytes;
    size_t max_work_group;
    size_t max_work_item[3];
    bool fp16, fp64, subgroups;
    bool compiler;
    uint32_t quirks;
} clattn__caps;

#endif
