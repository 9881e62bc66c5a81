/* Names of status codes. OpenCL's and CLBlast's are written out here: this layer knows neither header, and
 * codes newer than an installed header still get their name. */
#include <clattn/status.h>

#include <stddef.h>

enum { CL_LAST = 72, BLAS_LAST = 1024, BLAS_FIRST = 1007, CUSTOM_LAST = 2050, CUSTOM_FIRST = 2039 };

/* Index = minus the code. */
static const char *const opencl_names[CL_LAST + 1] = {
    [1] = "CL_DEVICE_NOT_FOUND",
    [2] = "CL_DEVICE_NOT_AVAILABLE",
    [3] = "CL_COMPILER_NOT_AVAILABLE",
    [4] = "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    [5] = "CL_OUT_OF_RESOURCES",
    [6] = "CL_OUT_OF_HOST_MEMORY",
    [7] = "CL_PROFILING_INFO_NOT_AVAILABLE",
    [8] = "CL_MEM_COPY_OVERLAP",
    [9] = "CL_IMAGE_FORMAT_MISMATCH",
    [10] = "CL_IMAGE_FORMAT_NOT_SUPPORTED",
    [11] = "CL_BUILD_PROGRAM_FAILURE",
    [12] = "CL_MAP_FAILURE",
    [13] = "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    [14] = "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    [15] = "CL_COMPILE_PROGRAM_FAILURE",
    [16] = "CL_LINKER_NOT_AVAILABLE",
    [17] = "CL_LINK_PROGRAM_FAILURE",
    [18] = "CL_DEVICE_PARTITION_FAILED",
    [19] = "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
    [30] = "CL_INVALID_VALUE",
    [31] = "CL_INVALID_DEVICE_TYPE",
    [32] = "CL_INVALID_PLATFORM",
    [33] = "CL_INVALID_DEVICE",
    [34] = "CL_INVALID_CONTEXT",
    [35] = "CL_INVALID_QUEUE_PROPERTIES",
    [36] = "CL_INVALID_COMMAND_QUEUE",
    [37] = "CL_INVALID_HOST_PTR",
    [38] = "CL_INVALID_MEM_OBJECT",
    [39] = "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR",
    [40] = "CL_INVALID_IMAGE_SIZE",
    [41] = "CL_INVALID_SAMPLER",
    [42] = "CL_INVALID_BINARY",
    [43] = "CL_INVALID_BUILD_OPTIONS",
    [44] = "CL_INVALID_PROGRAM",
    [45] = "CL_INVALID_PROGRAM_EXECUTABLE",
    [46] = "CL_INVALID_KERNEL_NAME",
    [47] = "CL_INVALID_KERNEL_DEFINITION",
    [48] = "CL_INVALID_KERNEL",
    [49] = "CL_INVALID_ARG_INDEX",
    [50] = "CL_INVALID_ARG_VALUE",
    [51] = "CL_INVALID_ARG_SIZE",
    [52] = "CL_INVALID_KERNEL_ARGS",
    [53] = "CL_INVALID_WORK_DIMENSION",
    [54] = "CL_INVALID_WORK_GROUP_SIZE",
    [55] = "CL_INVALID_WORK_ITEM_SIZE",
    [56] = "CL_INVALID_GLOBAL_OFFSET",
    [57] = "CL_INVALID_EVENT_WAIT_LIST",
    [58] = "CL_INVALID_EVENT",
    [59] = "CL_INVALID_OPERATION",
    [60] = "CL_INVALID_GL_OBJECT",
    [61] = "CL_INVALID_BUFFER_SIZE",
    [62] = "CL_INVALID_MIP_LEVEL",
    [63] = "CL_INVALID_GLOBAL_WORK_SIZE",
    [64] = "CL_INVALID_PROPERTY",
    [65] = "CL_INVALID_IMAGE_DESCRIPTOR",
    [66] = "CL_INVALID_COMPILER_OPTIONS",
    [67] = "CL_INVALID_LINKER_OPTIONS",
    [68] = "CL_INVALID_DEVICE_PARTITION_COUNT",
    [69] = "CL_INVALID_PIPE_SIZE",
    [70] = "CL_INVALID_DEVICE_QUEUE",
    [71] = "CL_INVALID_SPEC_ID",
    [72] = "CL_MAX_SIZE_RESTRICTION_EXCEEDED",
};

/* CLBlast's own codes come in two blocks; index = minus the code, less the block's first. */
static const char *const blas_names[BLAS_LAST - BLAS_FIRST + 1] = {
    [0] = "CLBLAST_INSUFFICIENT_MEMORY_Y", [1] = "CLBLAST_INSUFFICIENT_MEMORY_X", [2] = "CLBLAST_INSUFFICIENT_MEMORY_C",
    [3] = "CLBLAST_INSUFFICIENT_MEMORY_B", [4] = "CLBLAST_INSUFFICIENT_MEMORY_A", [5] = "CLBLAST_INVALID_INCREMENT_Y",
    [6] = "CLBLAST_INVALID_INCREMENT_X",   [7] = "CLBLAST_INVALID_LEAD_DIM_C",    [8] = "CLBLAST_INVALID_LEAD_DIM_B",
    [9] = "CLBLAST_INVALID_LEAD_DIM_A",    [10] = "CLBLAST_INVALID_DIMENSION",    [11] = "CLBLAST_INVALID_VECTOR_Y",
    [12] = "CLBLAST_INVALID_VECTOR_X",     [13] = "CLBLAST_INVALID_MATRIX_C",     [14] = "CLBLAST_INVALID_MATRIX_B",
    [15] = "CLBLAST_INVALID_MATRIX_A",     [17] = "CLBLAST_NOT_IMPLEMENTED",
};

static const char *const custom_names[CUSTOM_LAST - CUSTOM_FIRST + 1] = {
    [0] = "CLBLAST_UNEXPECTED_ERROR",
    [1] = "CLBLAST_UNKNOWN_ERROR",
    [2] = "CLBLAST_DATABASE_ERROR",
    [3] = "CLBLAST_INSUFFICIENT_MEMORY_SCALAR",
    [4] = "CLBLAST_INVALID_VECTOR_SCALAR",
    [5] = "CLBLAST_NO_DOUBLE_PRECISION",
    [6] = "CLBLAST_NO_HALF_PRECISION",
    [7] = "CLBLAST_INVALID_LOCAL_MEM_USAGE",
    [8] = "CLBLAST_MISSING_OVERRIDE_PARAMETER",
    [9] = "CLBLAST_INVALID_OVERRIDE_KERNEL",
    [10] = "CLBLAST_INVALID_BATCH_COUNT",
    [11] = "CLBLAST_INSUFFICIENT_MEMORY_TEMP",
};

/* NULL where the code has no name. */
static const char *foreign_name(clattn_status status) {
    int64_t code = -(int64_t)status;
    if (code >= 0 && code <= CL_LAST) {
        return opencl_names[code];
    }
    if (code >= BLAS_FIRST && code <= BLAS_LAST) {
        return blas_names[code - BLAS_FIRST];
    }
    if (code >= CUSTOM_FIRST && code <= CUSTOM_LAST) {
        return custom_names[code - CUSTOM_FIRST];
    }
    return code == 1001 ? "CL_PLATFORM_NOT_FOUND_KHR" : NULL;
}

const char *clattn_status_string(clattn_status status) {
    switch (status) {
#define NAME_CASE(name, value, message)                                                                                \
    case value:                                                                                                        \
        return "CLATTN_" #name;
        CLATTN_STATUS_LIST(NAME_CASE)
#undef NAME_CASE
    default:
        break;
    }
    const char *name = foreign_name(status);
    return name ? name : "unknown status";
}

const char *clattn_status_message(clattn_status status) {
    switch (status) {
#define MESSAGE_CASE(name, value, message)                                                                             \
    case value:                                                                                                        \
        return message;
        CLATTN_STATUS_LIST(MESSAGE_CASE)
#undef MESSAGE_CASE
    default:
        return status < 0 ? "OpenCL or CLBlast error" : "unknown status";
    }
}
