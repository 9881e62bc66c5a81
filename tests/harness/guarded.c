#include "harness/guarded.h"

#include <stdlib.h>
#include <string.h>

#include "harness/storage.h"
#include "reference/reference.h"

/* Neither 0, nor all ones, nor the same twice in a row. */
static unsigned char pattern(size_t byte) { return (unsigned char)(byte * 151 + 90); }

static size_t whole(const guarded *g) { return g->before + g->bytes + GUARD_BYTES; }

static bool in_band(const guarded *g, size_t byte) { return byte < g->before || byte >= g->before + g->bytes; }

/* Write bands and elements; elements NULL = all ones, a NaN in every float type. */
static void write_all(const fixture *f, const guarded *g, const void *elements) {
    unsigned char *image = malloc(whole(g));
    ck_assert_ptr_nonnull(image);
    for (size_t byte = 0; byte < whole(g); byte++)
        image[byte] = in_band(g, byte) ? pattern(byte) : 0xff;
    if (elements)
        memcpy(image + g->before, elements, g->bytes);
    cl_int status = clEnqueueWriteBuffer(f->queue, g->memory, CL_TRUE, 0, whole(g), image, 0, NULL, NULL);
    free(image);
    ck_assert_int_eq(status, CL_SUCCESS);
}

static guarded create(const fixture *f, clattn_type type, size_t count, size_t before, size_t bytes,
                      const void *elements) {
    cl_int status;
    guarded g = {.type = type, .count = count, .before = before, .bytes = bytes};
    g.memory = clCreateBuffer(f->cl, CL_MEM_READ_WRITE, whole(&g), NULL, &status);
    ck_assert_int_eq(status, CL_SUCCESS);
    write_all(f, &g, elements);
    return g;
}

static guarded create_elements(const fixture *f, clattn_type type, size_t count, const void *elements) {
    size_t size = clattn_type_size(type);
    return create(f, type, count, GUARD_BYTES + f->shift * size, count * size, elements);
}

guarded guarded_make(const fixture *f, clattn_type type, size_t count) { return create_elements(f, type, count, NULL); }

guarded guarded_bytes(const fixture *f, size_t bytes) {
    return create(f, CLATTN_F32, bytes / 4, GUARD_BYTES, bytes, NULL);
}

guarded guarded_upload(const fixture *f, clattn_type type, const double *values, size_t count) {
    void *elements = malloc(count * clattn_type_size(type) + 1);
    ck_assert_ptr_nonnull(elements);
    storage_pack(type, values, count, elements);
    guarded g = create_elements(f, type, count, elements);
    free(elements);
    return g;
}

guarded guarded_ints(const fixture *f, const int *values, size_t count) {
    double *doubles = ref_array(count);
    for (size_t e = 0; e < count; e++)
        doubles[e] = values[e];
    guarded g = guarded_upload(f, CLATTN_I32, doubles, count);
    free(doubles);
    return g;
}

guarded guarded_longs(const fixture *f, const long *values, size_t count) {
    double *doubles = ref_array(count);
    for (size_t e = 0; e < count; e++)
        doubles[e] = (double)values[e];
    guarded g = guarded_upload(f, CLATTN_I64, doubles, count);
    free(doubles);
    return g;
}

void guarded_refill(const fixture *f, guarded *g) { write_all(f, g, NULL); }

/* The whole buffer, bands included; for free(). */
static unsigned char *read_all(const fixture *f, const guarded *g) {
    unsigned char *image = malloc(whole(g));
    ck_assert_ptr_nonnull(image);
    cl_int status = clEnqueueReadBuffer(f->queue, g->memory, CL_TRUE, 0, whole(g), image, 0, NULL, NULL);
    ck_assert_int_eq(status, CL_SUCCESS);
    return image;
}

static bool bands_intact(const guarded *g, const unsigned char *image, long *where) {
    for (size_t byte = 0; byte < whole(g); byte++)
        if (in_band(g, byte) && image[byte] != pattern(byte)) {
            if (where)
                *where = (long)byte - (long)g->before;
            return false;
        }
    return true;
}

bool guarded_intact(const fixture *f, const guarded *g, long *where) {
    unsigned char *image = read_all(f, g);
    bool intact = bands_intact(g, image, where);
    free(image);
    return intact;
}

void guarded_check(const fixture *f, const guarded *g, const char *name) {
    long where = 0;
    ck_assert_msg(guarded_intact(f, g, &where), "%s: byte %ld, counted from its first element, of %zu was overwritten",
                  name, where, g->bytes);
}

double *guarded_read(const fixture *f, const guarded *g, const char *name) {
    guarded_check(f, g, name);
    unsigned char *image = read_all(f, g);
    double *values = ref_array(g->count);
    void *elements = malloc(g->bytes + 1); /* the band in front may have left them unaligned */
    ck_assert_ptr_nonnull(elements);
    memcpy(elements, image + g->before, g->bytes);
    storage_unpack(g->type, elements, g->count, values);
    free(elements);
    free(image);
    return values;
}

clattn_tensor guarded_tensor(const guarded *g, int rank, int64_t s0, int64_t s1, int64_t s2, int64_t s3) {
    const int64_t shape[CLATTN_MAX_RANK] = {s0, s1, s2, s3};
    clattn_tensor tensor = clattn_tensor_make(g->memory, g->type, rank, shape);
    tensor.offset = g->before / clattn_type_size(g->type);
    return tensor;
}

void guarded_free(guarded *g) {
    if (g->memory)
        clReleaseMemObject(g->memory);
    g->memory = NULL;
}
