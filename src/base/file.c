#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

enum { FIRST_READ = 65536, NAME_ATTEMPTS = 1000 };

static clattn_status fail_system(clattn__error *error, const char *verb, const char *path) {
    char reason[128] = "unknown reason";
    int code = errno;
    if (strerror_r(code, reason, sizeof reason) != 0) {
        snprintf(reason, sizeof reason, "error %d", code);
    }
    return clattn__fail(error, CLATTN_IO_FAILED, "cannot %s %s: %s", verb, path, reason);
}

static clattn_status fail_memory(clattn__error *error, const char *path, size_t bytes) {
    return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "%s: no memory for %zu bytes", path, bytes);
}

/* ---- reading ---- */

/* Make room behind size bytes, at most limit + 1 data bytes (one past the limit proves an excess), and the 0. */
static clattn_status make_room(const char *path, size_t limit, size_t size, char **data, size_t *room,
                               clattn__error *error) {
    if (size < *room) {
        return CLATTN_SUCCESS;
    }
    size_t most = limit < SIZE_MAX - 2 ? limit + 1 : SIZE_MAX - 1;
    size_t wanted = *room > most / 2 ? most : 2 * *room;
    char *grown = realloc(*data, wanted + 1);
    if (!grown) {
        return fail_memory(error, path, wanted);
    }
    *data = grown;
    *room = wanted;
    return CLATTN_SUCCESS;
}

/* The size that fstat told is a first guess only: the file may grow or shrink meanwhile, or be a pipe. */
static clattn_status read_to_end(int fd, const char *path, size_t limit, char **data, size_t *room, size_t *size,
                                 clattn__error *error) {
    for (;;) {
        clattn_status status = make_room(path, limit, *size, data, room, error);
        if (status != CLATTN_SUCCESS) {
            return status;
        }
        ssize_t got = read(fd, *data + *size, *room - *size);
        if (got == 0) {
            (*data)[*size] = 0;
            return CLATTN_SUCCESS;
        }
        if (got < 0 && errno != EINTR) {
            return fail_system(error, "read", path);
        }
        *size += got > 0 ? (size_t)got : 0;
        if (*size > limit) {
            return clattn__fail(error, CLATTN_IO_FAILED, "%s holds more than the limit of %zu bytes", path, limit);
        }
    }
}

/* Room for the whole file and the byte that finds its end. */
static clattn_status first_room(int fd, const char *path, size_t limit, size_t *room, clattn__error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail_system(error, "read", path);
    }
    if (S_ISDIR(info.st_mode)) {
        return clattn__fail(error, CLATTN_IO_FAILED, "cannot read %s: it is a folder", path);
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        *room = FIRST_READ;
        return CLATTN_SUCCESS;
    }
    if ((uintmax_t)info.st_size > limit || (uintmax_t)info.st_size >= SIZE_MAX - 1) {
        return clattn__fail(error, CLATTN_IO_FAILED, "%s holds %jd bytes, over the limit of %zu", path,
                            (intmax_t)info.st_size, limit);
    }
    *room = (size_t)info.st_size + 1;
    return CLATTN_SUCCESS;
}

clattn_status clattn__file_read(const char *path, size_t limit, char **data, size_t *size, clattn__error *error) {
    char *read_data = NULL;
    size_t read_size = 0, room = 0;
    *data = NULL;
    *size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_system(error, "read", path);
    }
    clattn_status status = first_room(fd, path, limit, &room, error);
    if (status == CLATTN_SUCCESS && !(read_data = malloc(room + 1))) {
        status = fail_memory(error, path, room);
    }
    if (status == CLATTN_SUCCESS) {
        status = read_to_end(fd, path, limit, &read_data, &room, &read_size, error);
    }
    close(fd);
    if (status != CLATTN_SUCCESS) {
        free(read_data);
        return status;
    }
    *data = read_data;
    *size = read_size;
    return CLATTN_SUCCESS;
}

/* ---- writing ---- */

/* O_EXCL makes the name ours alone, whoever else writes here, on this machine or another that shares the
 * folder; the number of the process only makes the first attempt likely. Not mkstemp: its files are private,
 * and a shared cache must obey the umask. */
static int open_temporary(const char *path, char *name, size_t size) {
    for (int attempt = 0; attempt < NAME_ATTEMPTS; ++attempt) {
        snprintf(name, size, "%s.%ld.%d.tmp", path, (long)getpid(), attempt);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t put = write(fd, data, size);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        data += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* A rename would replace a device or a pipe by a plain file. */
static bool replaceable(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

clattn_status clattn__file_write(const char *path, const void *data, size_t size, clattn__error *error) {
    if (!replaceable(path)) {
        return clattn__fail(error, CLATTN_IO_FAILED, "cannot write %s: it is not a plain file", path);
    }
    size_t name_size = strlen(path) + 48;
    char *name = malloc(name_size);
    if (!name) {
        return fail_memory(error, path, name_size);
    }
    clattn_status status = CLATTN_SUCCESS;
    int fd = open_temporary(path, name, name_size);
    if (fd < 0) {
        status = fail_system(error, "write", path);
        goto done;
    }
    bool written = write_all(fd, data, size);
    int code = errno;
    if (close(fd) != 0 && written) {
        written = false;
        code = errno;
    }
    if (!written || rename(name, path) != 0) {
        errno = written ? errno : code;
        status = fail_system(error, "write", path);
        unlink(name);
    }
done:
    free(name);
    return status;
}

/* ---- names ---- */

/* Whoever makes the folder first wins; all that counts is that it is there. */
static bool make_one(const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) {
        return true;
    }
    int code = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return true;
    }
    errno = code;
    return false;
}

clattn_status clattn__folder_make(const char *path, clattn__error *error) {
    size_t length = strlen(path);
    char *partial = malloc(length + 1);
    if (!partial) {
        return fail_memory(error, path, length + 1);
    }
    memcpy(partial, path, length + 1);
    bool made = length > 0;
    errno = ENOENT; /* for the empty path */
    for (size_t i = 1; i <= length && made; ++i) {
        if (path[i] == '/' || path[i] == 0) {
            partial[i] = 0;
            made = make_one(partial);
            partial[i] = path[i];
        }
    }
    clattn_status status = made ? CLATTN_SUCCESS : fail_system(error, "make folder", path);
    free(partial);
    return status;
}

char *clattn__path_join(const char *folder, const char *name) {
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] != '/' ? "/" : "";
    clattn__text text = {NULL, length + strlen(name) + 2, 0};
    text.data = malloc(text.size);
    if (text.data) {
        clattn__text_add(&text, "%s%s%s", folder, slash, name);
    }
    return text.data;
}
