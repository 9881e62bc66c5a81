/* What every clattn call answers.
 *
 * Three kinds of failure never mix: the caller's mistake (1..99), a thing that this device or this
 * version cannot do (100..199), and a failure at run time (200..299, and every negative code, which
 * is OpenCL's or CLBlast's own, passed through unchanged).
 */
#ifndef CLATTN_STATUS_H
#define CLATTN_STATUS_H

#include <stdint.h>

#include <clattn/export.h>

/* One list: enumerators, names and messages all come from here. */
#define CLATTN_STATUS_LIST(X)                                                                      \
    X(SUCCESS, 0, "success")                                                                       \
    X(INVALID_ARGUMENT, 1, "an argument is NULL or outside its range")                             \
    X(INVALID_SHAPE, 2, "a tensor's rank, shape or strides do not fit")                            \
    X(INVALID_TYPE, 3, "a tensor's element type does not fit")                                     \
    X(INVALID_BUFFER, 4, "a buffer is missing, too small, or of another context")                  \
    X(INVALID_WORKSPACE, 5, "the workspace is missing, too small or misaligned")                   \
    X(INVALID_CONTEXT, 6, "queue, context and device do not belong together")                      \
    X(INVALID_STATE, 7, "the object is not ready for this call")                                   \
    X(UNKNOWN_NAME, 8, "no variant, option or weight has this name")                               \
    X(UNSUPPORTED, 100, "not supported here")                                                      \
    X(OUT_OF_HOST_MEMORY, 200, "out of host memory")                                               \
    X(BUILD_FAILED, 201, "a kernel did not compile")                                               \
    X(IO_FAILED, 202, "a file could not be read or written")

enum {
#define CLATTN_STATUS_ENUMERATOR(name, value, message) CLATTN_##name = value,
    CLATTN_STATUS_LIST(CLATTN_STATUS_ENUMERATOR)
#undef CLATTN_STATUS_ENUMERATOR
};

/* CLATTN_SUCCESS, one of the codes above, or a negative OpenCL or CLBlast code. */
typedef int32_t clattn_status;

#if defined(__GNUC__)
#define CLATTN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define CLATTN_MUST_CHECK
#endif

/* Name of a code, "CLATTN_INVALID_SHAPE", "CL_OUT_OF_RESOURCES" or "unknown status"; never NULL, static.
 * Thread-safety: any thread, any time. */
CLATTN_API const char *clattn_status_string(clattn_status status);

/* One sentence for a code of this library; "OpenCL or CLBlast error" for a negative one. Static.
 * Thread-safety: any thread, any time. */
CLATTN_API const char *clattn_status_message(clattn_status status);

#endif
