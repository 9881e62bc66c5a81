#include "cli/transfer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/convert.h"

uint64_t tensor_elements(int rank, const int64_t *shape) {
    uint64_t count = 1;
    for (int i = 0; i < rank; ++i) {
        count *= (uint64_t)shape[i];
    }
    return count;
}

static uint16_t *narrow(const float *values, uint64_t count, clattn_type type) {
    uint16_t *words = malloc(count > 0 ? (size_t)count * sizeof *words : 1);
    for (uint64_t i = 0; words && i < count; ++i) {
        words[i] = type == CLATTN_F16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
    }
    return words;
}

static void widen(const uint16_t *words, uint64_t count, clattn_type type, float *values) {
    for (uint64_t i = 0; i < count; ++i) {
        values[i] = type == CLATTN_F16 ? f16_to_f32(words[i]) : bf16_to_f32(words[i]);
    }
}

bool put_tensor(session *s, const char *what, clattn_type type, int rank, const int64_t *shape, const float *values,
                clattn_tensor *to, failure *f) {
    uint64_t count = tensor_elements(rank, shape), bytes = count * clattn_type_size(type);
    const void *data = values;
    uint16_t *words = NULL;
    cl_mem memory;
    if (values && type != CLATTN_F32) {
        data = words = narrow(values, count, type);
        if (!words) {
            return fail_with(f, "no memory for %" PRIu64 " bytes of %s", bytes, what);
        }
    }
    bool done = session_buffer(s, what, bytes, data, &memory, f);
    free(words);
    if (done) {
        *to = clattn_tensor_make(memory, type, rank, shape);
    }
    return done;
}

static bool read_back(session *s, const char *what, cl_mem memory, uint64_t bytes, void *to, failure *f) {
    cl_int code =
        bytes > 0 ? clEnqueueReadBuffer(s->queue, memory, CL_TRUE, 0, (size_t)bytes, to, 0, NULL, NULL) : CL_SUCCESS;
    return code == CL_SUCCESS || fail_with(f, "%s could not be read: %s", what, clattn_status_string(code));
}

bool get_tensor(session *s, const char *what, const clattn_tensor *from, float *values, failure *f) {
    uint64_t count = tensor_elements(from->rank, from->shape), bytes = count * clattn_type_size(from->type);
    if (from->type == CLATTN_F32) {
        return read_back(s, what, from->memory, bytes, values, f);
    }
    uint16_t *words = malloc(bytes > 0 ? (size_t)bytes : 1);
    bool done = words ? read_back(s, what, from->memory, bytes, words, f)
                      : fail_with(f, "no memory for %" PRIu64 " bytes of %s", bytes, what);
    if (done) {
        widen(words, count, from->type, values);
    }
    free(words);
    return done;
}
