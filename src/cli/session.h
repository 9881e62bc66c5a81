/* A device at work: OpenCL's objects, the library's context, and buffers. */
#ifndef CLATTN_CLI_SESSION_H
#define CLATTN_CLI_SESSION_H

#include <clattn/clattn.h>

#include "cli/fail.h"

/* Zero-initialise; close in any state. */
typedef struct session {
    clattn_device_info info;
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue; /* in order */
    clattn_context *context;
    char refusal[1024]; /* the library's sentence about the context */
} session;

/* wanted: as device_choose. profile: the queue's events carry times. The session must not move afterwards. */
bool session_open(session *s, const char *wanted, clattn_gemm gemm, bool profile, failure *f);
void session_close(session *s);

/* A buffer, filled from data unless NULL, of at least one element: OpenCL knows none of size 0. what is for the
 * sentence. */
bool session_buffer(session *s, const char *what, uint64_t bytes, const void *data, cl_mem *buffer, failure *f);

/* Wait for an event and release it; what it ran may have failed. what is for the sentence. */
bool session_wait(const session *s, const char *what, cl_event event, failure *f);

/* Fail with "VERB: " and the library's own sentence, or the code's meaning. */
bool session_failed(const session *s, const char *verb, clattn_status status, failure *f);

#endif
