#include "cli/npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input.h"
#include "cli/npy_header.h"

/* Headers of plain arrays take about 100 bytes; version 1.0 allows HEADER_LIMIT, and no more is wanted of others. */
enum { MAGIC = 6, PREFIX = 8, ALIGNMENT = 64, HEADER_LIMIT = 65535 };

/* Where header and data lie. */
typedef struct layout {
    const unsigned char *header, *data;
    size_t header_size, data_size;
} layout;

static bool split(const char *name, const unsigned char *data, size_t size, layout *l, failure *f) {
    if (size < PREFIX || memcmp(data, "\x93NUMPY", MAGIC) != 0) {
        return fail_with(f, "%s: not a .npy file (%zu bytes, without NumPy's mark at the start)", name, size);
    }
    int major = data[MAGIC], minor = data[MAGIC + 1];
    if (major < 1 || major > 3 || minor != 0) {
        return fail_with(f, "%s: .npy version %d.%d is none of 1.0, 2.0 and 3.0", name, major, minor);
    }
    size_t width = major == 1 ? 2 : 4;
    if (size < PREFIX + width) {
        return fail_with(f, "%s: the file ends after %zu bytes, inside its header", name, size);
    }
    l->header_size = 0;
    for (size_t i = 0; i < width; ++i) {
        l->header_size |= (size_t)data[PREFIX + i] << 8 * i;
    }
    size_t left = size - PREFIX - width;
    if (l->header_size > left) {
        return fail_with(f, "%s: a header of %zu bytes is announced, and %zu follow", name, l->header_size, left);
    }
    if (l->header_size > HEADER_LIMIT) {
        return fail_with(f, "%s: a header of %zu bytes is over the limit of %d", name, l->header_size, HEADER_LIMIT);
    }
    l->header = data + PREFIX + width;
    l->data = l->header + l->header_size;
    l->data_size = left - l->header_size;
    return true;
}

static void print_shape(char *text, size_t size, int rank, const int64_t *shape) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < rank && used < size; ++i) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? ", " : "", shape[i]);
    }
}

static bool check_size(const char *name, const npy_header *h, size_t data_size, int64_t *count, failure *f) {
    char shape[100];
    print_shape(shape, sizeof shape, h->rank, h->shape);
    size_t element = number_size(h->type);
    if (!shape_count(h->shape, h->rank, INT64_MAX / 8, count)) {
        return fail_with(f, "%s: shape [%s] has more elements than memory can hold; %zu bytes of data follow", name,
                         shape, data_size);
    }
    uint64_t wanted = (uint64_t)*count * element;
    if (wanted != data_size) {
        return fail_with(f, "%s: shape [%s] of %zu-byte elements wants %" PRIu64 " bytes of data, and %zu follow", name,
                         shape, element, wanted, data_size);
    }
    return true;
}

/* Elements between neighbours along each axis of the file. */
static void file_strides(const npy_header *h, int64_t *stride) {
    int64_t next = 1;
    for (int i = 0; i < h->rank; ++i) {
        int axis = h->fortran ? i : h->rank - 1 - i;
        stride[axis] = next;
        next *= h->shape[axis];
    }
}

/* Walk the array in C order, with the file's position beside it. */
static void fill(const npy_header *h, const unsigned char *data, npy_array *array) {
    int64_t stride[NPY_MAX_RANK] = {0}, index[NPY_MAX_RANK] = {0}, from = 0;
    size_t element = number_size(h->type);
    file_strides(h, stride);
    for (int64_t i = 0; i < array->count; ++i) {
        const unsigned char *p = data + (size_t)from * element;
        if (array->values) {
            array->values[i] = number_float(h->type, p, h->big);
        } else {
            array->integers[i] = number_integer(h->type, p, h->big);
        }
        for (int axis = h->rank - 1; axis >= 0; --axis) {
            from += stride[axis];
            if (++index[axis] < h->shape[axis]) {
                break;
            }
            from -= stride[axis] * h->shape[axis];
            index[axis] = 0;
        }
    }
}

bool npy_parse(const char *name, const unsigned char *data, size_t size, npy_array *array, failure *f) {
    layout l;
    npy_header h;
    memset(array, 0, sizeof *array);
    int64_t count;
    if (!split(name, data, size, &l, f) || !npy_header_parse(name, l.header, l.header_size, &h, f) ||
        !check_size(name, &h, l.data_size, &count, f)) {
        return false;
    }
    bool floats = number_is_float(h.type);
    size_t bytes = (size_t)count * (floats ? sizeof(float) : sizeof(int64_t));
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (!memory) {
        return fail_with(f, "%s: no memory for %zu bytes", name, bytes);
    }
    array->rank = h.rank;
    memcpy(array->shape, h.shape, sizeof array->shape);
    array->count = count;
    array->values = floats ? memory : NULL;
    array->integers = floats ? NULL : memory;
    fill(&h, l.data, array);
    return true;
}

bool npy_read(const char *path, npy_array *array, failure *f) {
    unsigned char *data;
    size_t size;
    memset(array, 0, sizeof *array);
    if (!input_read(path, &data, &size, f)) {
        return false;
    }
    bool done = npy_parse(path, data, size, array, f);
    free(data);
    return done;
}

void npy_free(npy_array *array) {
    free(array->values);
    free(array->integers);
    memset(array, 0, sizeof *array);
}

/* ---- writing ---- */

/* Header text, padded so that the data begin at a multiple of 64 bytes. */
static void put_header(FILE *stream, const char *type, int rank, const int64_t *shape) {
    char sizes[100], text[256];
    print_shape(sizes, sizeof sizes, rank, shape);
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", type, sizes,
                          rank == 1 ? "," : "");
    int whole = (PREFIX + 2 + length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - PREFIX - 2;
    fwrite("\x93NUMPY\x01\x00", 1, PREFIX, stream);
    fputc(whole & 255, stream);
    fputc(whole >> 8, stream);
    fprintf(stream, "%-*s\n", whole - 1, text);
}

static bool write_words(outputs *set, const char *path, const char *type, int rank, const int64_t *shape,
                        const void *values, failure *f) {
    FILE *stream;
    int64_t count;
    if (rank < 0 || rank > NPY_MAX_RANK || !shape_count(shape, rank, INT64_MAX / 4, &count)) {
        return fail_with(f, "cannot write %s: no array has this shape", path);
    }
    if (!outputs_begin(set, path, &stream, f)) {
        return false;
    }
    put_header(stream, type, rank, shape);
    outputs_words(stream, values, (size_t)count);
    return outputs_finish(set, f);
}

bool npy_write_f32(outputs *set, const char *path, int rank, const int64_t *shape, const float *values, failure *f) {
    return write_words(set, path, "<f4", rank, shape, values, f);
}

bool npy_write_i32(outputs *set, const char *path, int rank, const int64_t *shape, const int32_t *values, failure *f) {
    return write_words(set, path, "<i4", rank, shape, values, f);
}
