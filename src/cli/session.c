#include "cli/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/select.h"

/* The library reports a failed context only here; all else goes to stderr, where CLATTN_LOG asks for it. */
static void take_line(void *user, clattn_log_level level, const char *line) {
    session *s = user;
    if (level == CLATTN_LOG_ERROR && !s->context) {
        snprintf(s->refusal, sizeof s->refusal, "%s", line);
    } else if (level != CLATTN_LOG_ERROR) {
        fprintf(stderr, "clattn: %s\n", line);
    }
}

static bool choose(session *s, const char *wanted, failure *f) {
    device_list list;
    const device_entry *entry = device_list_make(&list, f) ? device_choose(&list, wanted, f) : NULL;
    if (entry) {
        s->device = entry->id;
        s->info = entry->info;
    }
    device_list_free(&list);
    return entry != NULL;
}

static bool failed_code(const session *s, const char *what, cl_int code, failure *f) {
    return fail_with(f, "%s on %s: %s", what, s->info.name, clattn_status_string(code));
}

static bool open_context(session *s, clattn_gemm gemm, failure *f) {
    const clattn_context_options options = {.log = take_line, .log_user = s, .gemm = gemm};
    clattn_status status = clattn_context_create(s->cl, s->device, &options, &s->context);
    if (status == CLATTN_SUCCESS) {
        return true;
    }
    return s->refusal[0] ? fail_with(f, "%s: %s", s->info.name, s->refusal) : failed_code(s, "no context", status, f);
}

bool session_open(session *s, const char *wanted, clattn_gemm gemm, bool profile, failure *f) {
    cl_int code;
    if (!choose(s, wanted, f)) {
        return false;
    }
    s->cl = clCreateContext(NULL, 1, &s->device, NULL, NULL, &code);
    if (!s->cl) {
        return failed_code(s, "no OpenCL context", code, f);
    }
    s->queue = clCreateCommandQueue(s->cl, s->device, profile ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (!s->queue) {
        return failed_code(s, "no command queue", code, f);
    }
    return open_context(s, gemm, f);
}

void session_close(session *s) {
    clattn_context_destroy(s->context);
    if (s->queue) {
        clReleaseCommandQueue(s->queue);
    }
    if (s->cl) {
        clReleaseContext(s->cl);
    }
    memset(s, 0, sizeof *s);
}

bool session_buffer(session *s, const char *what, uint64_t bytes, const void *data, cl_mem *buffer, failure *f) {
    *buffer = NULL;
    if (bytes > s->info.max_alloc_bytes) {
        return fail_with(f, "%s needs a buffer of %" PRIu64 " bytes, and %s allocates at most %" PRIu64, what, bytes,
                         s->info.name, s->info.max_alloc_bytes);
    }
    cl_mem_flags copy = data && bytes > 0 ? CL_MEM_COPY_HOST_PTR : 0;
    cl_int code;
    *buffer = clCreateBuffer(s->cl, CL_MEM_READ_WRITE | copy, bytes > 0 ? (size_t)bytes : sizeof(double),
                             copy ? (void *)(uintptr_t)data : NULL, &code);
    if (!*buffer) {
        return fail_with(f, "%s: no buffer of %" PRIu64 " bytes on %s: %s", what, bytes, s->info.name,
                         clattn_status_string(code));
    }
    return true;
}

bool session_wait(const session *s, const char *what, cl_event event, failure *f) {
    cl_int code = clWaitForEvents(1, &event);
    clReleaseEvent(event);
    return code == CL_SUCCESS || failed_code(s, what, code, f);
}

bool session_failed(const session *s, const char *verb, clattn_status status, failure *f) {
    char sentence[3072];
    clattn_context_error(s->context, sentence, sizeof sentence);
    return fail_with(f, "%s: %s", verb, sentence[0] ? sentence : clattn_status_message(status));
}
