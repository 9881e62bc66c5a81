#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/convert.h"
#include "cli/safetensors.h"

enum { PREFIX = 8, ALIGNMENT = 8 };

/* The header entry of a tensor whose data begin at *begin; NULL without memory. */
static json_t *make_entry(const safetensors_tensor *tensor, int64_t begin, int64_t end) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->rank; ++i) {
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)end);
}

static bool add_entry(const char *path, const safetensors_tensor *tensor, json_t *header, int64_t *end, failure *f) {
    int64_t count;
    if (!shape_count(tensor->shape, tensor->rank, INT64_MAX / 4 - *end / 4, &count)) {
        return fail_with(f, "cannot write %s: tensor %s has an impossible shape", path, quote(tensor->name).text);
    }
    if (strcmp(tensor->name, "__metadata__") == 0 || json_object_get(header, tensor->name)) {
        return fail_with(f, "cannot write %s: the name %s is taken", path, quote(tensor->name).text);
    }
    int64_t begin = *end;
    *end += 4 * count;
    if (json_object_set_new(header, tensor->name, make_entry(tensor, begin, *end)) != 0) {
        return fail_with(f, "cannot write %s: the name %s is no UTF-8", path, quote(tensor->name).text);
    }
    return true;
}

/* Header size and text; spaces move the data to a multiple of ALIGNMENT. */
static void put_header(FILE *stream, const char *text) {
    size_t length = strlen(text), whole = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < PREFIX; ++i) {
        fputc((int)((uint64_t)whole >> 8 * i & 255), stream);
    }
    fprintf(stream, "%s%*s", text, (int)(whole - length), "");
}

static bool write_file(outputs *set, const char *path, const safetensors_tensor *tensors, size_t count,
                       const char *text, failure *f) {
    FILE *stream;
    if (!outputs_begin(set, path, &stream, f)) {
        return false;
    }
    put_header(stream, text);
    for (size_t i = 0; i < count; ++i) {
        int64_t elements = 0;
        shape_count(tensors[i].shape, tensors[i].rank, INT64_MAX / 4, &elements);
        outputs_words(stream, tensors[i].values, (size_t)elements);
    }
    return outputs_finish(set, f);
}

bool safetensors_write(outputs *set, const char *path, const safetensors_tensor *tensors, size_t count, failure *f) {
    json_t *header = json_object();
    int64_t end = 0;
    bool done = header != NULL;
    for (size_t i = 0; i < count && done; ++i) {
        done = add_entry(path, &tensors[i], header, &end, f);
    }
    char *text = done ? json_dumps(header, JSON_COMPACT) : NULL;
    done = done && (text ? write_file(set, path, tensors, count, text, f)
                         : fail_with(f, "cannot write %s: no memory for its header", path));
    free(text);
    json_decref(header);
    return done || fail_with(f, "cannot write %s: no memory for its header", path);
}
