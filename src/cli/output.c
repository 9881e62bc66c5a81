#define _XOPEN_SOURCE 700 /* realpath */

#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_ATTEMPTS = 1000, CHUNK = 4096 };

static char *join(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) {
        snprintf(path, size, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
    }
    return path;
}

/* Where a new file named path would lie, with every link of its folder resolved. NULL and errno on failure. */
static char *resolve_new(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!*name) {
        errno = *path ? EISDIR : ENOENT;
        return NULL;
    }
    size_t length = (size_t)(name - path);
    char *folder = length > 0 ? strndup(path, length) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    char *resolved = real ? join(real, name) : NULL;
    free(folder);
    free(real);
    return resolved;
}

/* A link is followed, so that the rename replaces the file and not the link. */
static char *resolve(const char *path) {
    char *real = realpath(path, NULL);
    return real || errno != ENOENT ? real : resolve_new(path);
}

/* O_EXCL makes the name ours alone; the mode leaves permissions to the umask, as for any output. */
static int open_temporary(output *o) {
    size_t size = strlen(o->path) + 48;
    o->temporary = malloc(size);
    for (int attempt = 0; o->temporary && attempt < NAME_ATTEMPTS; ++attempt) {
        snprintf(o->temporary, size, "%s.%ld.%d.tmp", o->path, (long)getpid(), attempt);
        int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static void drop(output *o) {
    if (o->stream) {
        fclose(o->stream);
    }
    if (o->temporary) {
        unlink(o->temporary);
    }
    free(o->temporary);
    free(o->path);
    memset(o, 0, sizeof *o);
}

static bool is_listed(const outputs *set, const char *path) {
    for (int i = 0; i < set->count; ++i) {
        /* Devices and pipes may take several outputs. */
        if (set->items[i].temporary && strcmp(set->items[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

static bool open_output(output *o, const char *path, failure *f) {
    struct stat info;
    bool exists = stat(o->path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        return fail_with(f, "cannot write %s: it is a folder", path);
    }
    int fd = exists && !S_ISREG(info.st_mode) ? open(o->path, O_WRONLY | O_CLOEXEC) : open_temporary(o);
    if (fd < 0) {
        int code = errno;
        free(o->temporary); /* not ours to remove */
        o->temporary = NULL;
        errno = code;
        return fail_system(f, "write", path);
    }
    o->stream = fdopen(fd, "wb");
    if (!o->stream) {
        close(fd);
        return fail_system(f, "write", path);
    }
    return true;
}

bool outputs_begin(outputs *set, const char *path, FILE **stream, failure *f) {
    *stream = NULL;
    if (set->count == OUTPUTS_MAX) {
        return fail_with(f, "cannot write %s: a command has at most %d outputs", path, OUTPUTS_MAX);
    }
    output *o = &set->items[set->count];
    o->path = resolve(path);
    if (!o->path) {
        return fail_system(f, "write", path);
    }
    bool begun = is_listed(set, o->path) ? fail_with(f, "cannot write %s: two outputs have this name", path)
                                         : open_output(o, path, f);
    if (!begun) {
        drop(o);
        return false;
    }
    set->count++;
    *stream = o->stream;
    return true;
}

void outputs_words(FILE *stream, const void *values, size_t count) {
    const unsigned char *from = values;
    unsigned char chunk[4 * CHUNK];
    while (count > 0) {
        size_t some = count < CHUNK ? count : CHUNK;
        for (size_t i = 0; i < some; ++i, from += 4) {
            uint32_t word;
            memcpy(&word, from, sizeof word);
            for (int b = 0; b < 4; ++b) {
                chunk[4 * i + (size_t)b] = (unsigned char)(word >> 8 * b);
            }
        }
        fwrite(chunk, 4, some, stream);
        count -= some;
    }
}

bool outputs_finish(outputs *set, failure *f) {
    output *o = &set->items[set->count - 1];
    bool failed = ferror(o->stream) || fflush(o->stream) != 0;
    int code = errno;
    if (fclose(o->stream) != 0 && !failed) {
        failed = true;
        code = errno;
    }
    o->stream = NULL;
    errno = code ? code : EIO;
    return failed ? fail_system(f, "write", o->path) : true;
}

bool outputs_commit(outputs *set, failure *f) {
    bool done = true;
    for (int i = 0; i < set->count && done; ++i) {
        output *o = &set->items[i];
        if (o->temporary && rename(o->temporary, o->path) != 0) {
            done = fail_system(f, "write", o->path);
        } else {
            free(o->temporary); /* nothing left to remove */
            o->temporary = NULL;
        }
    }
    outputs_discard(set);
    return done;
}

void outputs_discard(outputs *set) {
    for (int i = 0; i < set->count; ++i) {
        drop(&set->items[i]);
    }
    set->count = 0;
}
