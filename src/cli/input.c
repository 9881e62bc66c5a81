#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_READ = 65536 };
static const uint64_t pipe_limit = UINT64_C(4) << 30;

/* What a file still grows by while being read is left out: its size at the start counts. */
static bool read_sized(int fd, const char *path, size_t wanted, unsigned char *data, failure *f) {
    for (size_t size = 0; size < wanted;) {
        ssize_t got = read(fd, data + size, wanted - size);
        if (got < 0 && errno != EINTR) {
            return fail_system(f, "read", path);
        }
        if (got == 0) {
            return fail_with(f, "%s held %zu bytes, but only %zu of them came: it changed while being read", path,
                             wanted, size);
        }
        size += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool read_file(int fd, const char *path, const struct stat *info, unsigned char **data, size_t *size,
                      failure *f) {
    *size = (size_t)info->st_size;
    *data = malloc(*size > 0 ? *size : 1);
    if (!*data) {
        return fail_with(f, "%s: no memory for its %zu bytes", path, *size);
    }
    return read_sized(fd, path, *size, *data, f);
}

static bool read_pipe(int fd, const char *path, unsigned char **data, size_t *size, failure *f) {
    for (size_t room = 0;;) {
        if (*size == room) {
            room = room > 0 ? 2 * room : FIRST_READ;
            unsigned char *grown = room > pipe_limit ? NULL : realloc(*data, room);
            if (!grown) {
                return fail_with(f, "%s: no memory for more than its first %zu bytes", path, *size);
            }
            *data = grown;
        }
        ssize_t got = read(fd, *data + *size, room - *size);
        if (got == 0) {
            return true;
        }
        if (got < 0 && errno != EINTR) {
            return fail_system(f, "read", path);
        }
        *size += got > 0 ? (size_t)got : 0;
    }
}

bool input_read(const char *path, unsigned char **data, size_t *size, failure *f) {
    struct stat info;
    *data = NULL;
    *size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_system(f, "read", path);
    }
    bool done;
    if (fstat(fd, &info) != 0) {
        done = fail_system(f, "read", path);
    } else if (S_ISDIR(info.st_mode)) {
        done = fail_with(f, "cannot read %s: it is a folder", path);
    } else if (S_ISREG(info.st_mode)) {
        done = read_file(fd, path, &info, data, size, f);
    } else {
        done = read_pipe(fd, path, data, size, f);
    }
    close(fd);
    if (!done) {
        free(*data);
        *data = NULL;
        *size = 0;
    }
    return done;
}
