/* The disk cache of program binaries. */
#include "runtime/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { FORMAT = 1 };
static const size_t max_entry = (size_t)1 << 30;

/* Head of an entry, in the machine's own byte order; the binary follows. */
typedef struct head {
    char magic[8];
    uint32_t format;
    uint32_t zero;
    char key[32];
    uint64_t size;
    uint64_t checksum; /* of the binary */
} head;

static head make_head(const clattn__hash *key, const void *binary, size_t size) {
    head h = {.magic = "CLATTNB", .format = FORMAT, .size = size, .checksum = clattn__hash64(binary, size)};
    memcpy(h.key, key->hex, sizeof h.key);
    return h;
}

clattn_status clattn__cache_folder(const char *option, char **folder, clattn__error *error) {
    const char *given = option ? option : getenv("CLATTN_CACHE_DIR");
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *folder = NULL;
    if (given ? !*given : !(xdg && *xdg) && !(home && *home))
        return CLATTN_SUCCESS;
    if (given)
        *folder = strdup(given);
    else
        *folder = xdg && *xdg ? clattn__path_join(xdg, "clattn") : clattn__path_join(home, ".cache/clattn");
    return *folder ? CLATTN_SUCCESS : clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
}

static char *entry_path(const char *folder, const clattn__hash *key) {
    char name[sizeof key->hex + 8];
    snprintf(name, sizeof name, "%s.bin", key->hex);
    return clattn__path_join(folder, name);
}

/* NULL for a sound entry, else what is wrong with it. */
static const char *find_damage(const char *data, size_t size, const clattn__hash *key) {
    head h, want;
    if (size <= sizeof h)
        return "it is shorter than its head";
    memcpy(&h, data, sizeof h);
    want = make_head(key, data + sizeof h, size - sizeof h);
    if (memcmp(h.magic, want.magic, sizeof h.magic) || h.format != want.format || h.zero)
        return "it has another format";
    if (memcmp(h.key, want.key, sizeof h.key))
        return "it belongs to another key";
    if (h.size != want.size)
        return "its size is wrong";
    return h.checksum == want.checksum ? NULL : "its checksum is wrong";
}

bool clattn__cache_read(const char *folder, const clattn__hash *key, unsigned char **binary, size_t *size,
                        const char **reason) {
    char *path = entry_path(folder, key), *data = NULL;
    *reason = NULL;
    if (path && access(path, F_OK) == 0) {
        clattn_status status = clattn__file_read(path, max_entry, &data, size, NULL);
        *reason = status ? "it cannot be read" : find_damage(data, *size, key);
    }
    free(path);
    if (!data || *reason) {
        free(data);
        return false;
    }
    *size -= sizeof(head);
    memmove(data, data + sizeof(head), *size);
    *binary = (unsigned char *)data;
    return true;
}

clattn_status clattn__cache_write(const char *folder, const clattn__hash *key, const unsigned char *binary, size_t size,
                                  clattn__error *error) {
    clattn_status status = clattn__folder_make(folder, error);
    head h = make_head(key, binary, size);
    char *path = entry_path(folder, key), *data = malloc(sizeof h + size);
    if (!status && !(path && data))
        status = clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    if (!status) {
        memcpy(data, &h, sizeof h);
        memcpy(data + sizeof h, binary, size);
        status = clattn__file_write(path, data, sizeof h + size, error);
    }
    free(path);
    free(data);
    return status;
}
