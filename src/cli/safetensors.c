#include "cli/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/convert.h"
#include "cli/safetensors_header.h"

/* The header limit is the format reference's own. CHUNK: a multiple of every element's size. */
enum { PREFIX = 8, HEADER_LIMIT = 100000000, CHUNK = 65536 };

struct safetensors {
    int fd;
    char *name;
    off_t data; /* byte of the file where the first tensor begins */
    safetensors_header header;
};

static bool read_at(const safetensors *file, void *data, size_t size, off_t from, failure *f) {
    char *to = data;
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file->fd, to + done, size - done, from + (off_t)done);
        if (got < 0 && errno != EINTR) {
            return fail_system(f, "read", file->name);
        }
        if (got == 0) {
            return fail_with(f, "%s: the file shrank while being read", file->name);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool read_size(const safetensors *file, uint64_t file_size, uint64_t *size, failure *f) {
    unsigned char prefix[PREFIX];
    if (file_size < PREFIX) {
        return fail_with(f, "%s: not a safetensors file: it holds %" PRIu64 " bytes, and %d are the least", file->name,
                         file_size, PREFIX);
    }
    if (!read_at(file, prefix, PREFIX, 0, f)) {
        return false;
    }
    *size = 0;
    for (int i = 0; i < PREFIX; ++i) {
        *size |= (uint64_t)prefix[i] << 8 * i;
    }
    if (*size > file_size - PREFIX) {
        return fail_with(f, "%s: a header of %" PRIu64 " bytes is announced, and %" PRIu64 " follow", file->name, *size,
                         file_size - PREFIX);
    }
    if (*size > HEADER_LIMIT) {
        return fail_with(f, "%s: a header of %" PRIu64 " bytes is over the limit of %d", file->name, *size,
                         HEADER_LIMIT);
    }
    return true;
}

static bool read_header(safetensors *file, failure *f) {
    struct stat info;
    uint64_t size;
    if (fstat(file->fd, &info) != 0) {
        return fail_system(f, "read", file->name);
    }
    if (!S_ISREG(info.st_mode)) {
        return fail_with(f, "cannot read %s: it is %s", file->name,
                         S_ISDIR(info.st_mode) ? "a folder" : "no plain file, which weights must be");
    }
    if (!read_size(file, (uint64_t)info.st_size, &size, f)) {
        return false;
    }
    char *text = malloc((size_t)size + 1);
    if (!text) {
        return fail_with(f, "%s: no memory for a header of %" PRIu64 " bytes", file->name, size);
    }
    file->data = PREFIX + (off_t)size;
    bool done = read_at(file, text, (size_t)size, PREFIX, f) &&
                safetensors_header_parse(file->name, text, (size_t)size, info.st_size - file->data, &file->header, f);
    free(text);
    return done;
}

bool safetensors_open_descriptor(int fd, const char *name, safetensors **out, failure *f) {
    *out = NULL;
    safetensors *file = calloc(1, sizeof *file);
    if (!file) {
        close(fd);
        return fail_with(f, "%s: no memory", name);
    }
    file->fd = fd;
    file->name = strdup(name);
    bool done = file->name ? read_header(file, f) : fail_with(f, "%s: no memory", name);
    if (!done) {
        safetensors_close(file);
        return false;
    }
    *out = file;
    return true;
}

bool safetensors_open(const char *path, safetensors **file, failure *f) {
    *file = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fail_system(f, "read", path) : safetensors_open_descriptor(fd, path, file, f);
}

void safetensors_close(safetensors *file) {
    if (file) {
        safetensors_header_free(&file->header);
        close(file->fd);
        free(file->name);
        free(file);
    }
}

size_t safetensors_count(const safetensors *file) { return file->header.count; }

const safetensors_info *safetensors_at(const safetensors *file, size_t i) { return &file->header.infos[i]; }

const safetensors_info *safetensors_find(const safetensors *file, const char *name) {
    for (size_t i = 0; i < file->header.count; ++i) {
        if (strcmp(file->header.infos[i].name, name) == 0) {
            return &file->header.infos[i];
        }
    }
    return NULL;
}

static bool readable_type(const char *dtype, number *type) {
    static const struct {
        const char *name;
        number type;
    } types[] = {{"F32", NUMBER_F32}, {"F16", NUMBER_F16}, {"BF16", NUMBER_BF16}, {"F64", NUMBER_F64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
        if (strcmp(types[i].name, dtype) == 0) {
            *type = types[i].type;
            return true;
        }
    }
    return false;
}

static bool read_values(const safetensors *file, const safetensors_info *info, number type, float *values, failure *f) {
    unsigned char chunk[CHUNK];
    size_t element = number_size(type);
    for (int64_t at = info->begin; at < info->end;) {
        size_t bytes = info->end - at < CHUNK ? (size_t)(info->end - at) : CHUNK;
        if (!read_at(file, chunk, bytes, file->data + at, f)) {
            return false;
        }
        for (size_t i = 0; i < bytes; i += element) {
            *values++ = number_float(type, chunk + i, false);
        }
        at += (int64_t)bytes;
    }
    return true;
}

bool safetensors_read(const safetensors *file, const safetensors_info *info, float **values, failure *f) {
    number type;
    *values = NULL;
    if (!readable_type(info->dtype, &type)) {
        return fail_with(f, "%s: tensor %s has type %s, which is none of F32, F16, BF16 and F64", file->name,
                         quote(info->name).text, quote(info->dtype).text);
    }
    if (info->rank > SAFETENSORS_MAX_RANK) {
        return fail_with(f, "%s: tensor %s has %d axes, and the most is %d", file->name, quote(info->name).text,
                         info->rank, SAFETENSORS_MAX_RANK);
    }
    size_t bytes = (size_t)info->count * sizeof(float);
    float *read = malloc(bytes > 0 ? bytes : 1);
    if (!read) {
        return fail_with(f, "%s: tensor %s: no memory for %zu bytes", file->name, quote(info->name).text, bytes);
    }
    if (!read_values(file, info, type, read, f)) {
        free(read);
        return false;
    }
    *values = read;
    return true;
}
