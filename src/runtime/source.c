/* Kernel sources: lookup, and textual includes. */
#include "runtime/source.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_HEADERS = 32, MAX_NAME = 64, MAX_SOURCE = 4 << 20 };

typedef struct expansion {
    const char *folder; /* NULL = embedded */
    char *data;
    size_t length, size;
    char seen[MAX_HEADERS][MAX_NAME]; /* headers already in place */
    int seen_count;
    clattn__error *error;
} expansion;

static clattn_status out_of_memory(expansion *e) {
    return clattn__fail(e->error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory while reading a kernel source");
}

static clattn_status append(expansion *e, const char *text, size_t length) {
    if (e->length + length + 1 > e->size) {
        size_t size = 2 * e->size + length + 1024;
        char *data = realloc(e->data, size);
        if (!data)
            return out_of_memory(e);
        e->data = data;
        e->size = size;
    }
    memcpy(e->data + e->length, text, length);
    e->length += length;
    e->data[e->length] = 0;
    return CLATTN_SUCCESS;
}

static clattn_status append_marker(expansion *e, int line, const char *name) {
    char marker[MAX_NAME + 64];
    int length = snprintf(marker, sizeof marker, "#line %d \"%s\"\n", line, name);
    return append(e, marker, (size_t)length);
}

static const char *find_embedded(const char *name) {
    for (const clattn__source *source = clattn__sources; source->name; source++)
        if (!strcmp(source->name, name))
            return source->text;
    return NULL;
}

/* *owned receives memory to free, or NULL. */
static clattn_status read_source(expansion *e, const char *name, const char **text, char **owned) {
    *owned = NULL;
    if (e->folder) {
        size_t size;
        char *path = clattn__path_join(e->folder, name);
        if (!path)
            return out_of_memory(e);
        clattn_status status = clattn__file_read(path, MAX_SOURCE, owned, &size, e->error);
        free(path);
        *text = *owned;
        return status;
    }
    *text = find_embedded(name);
    if (!*text)
        return clattn__fail(e->error, CLATTN_IO_FAILED, "no kernel source cl/%s in this library", name);
    return CLATTN_SUCCESS;
}

/* If the line is `#include "x.h"`, write include/x.h to name. */
static bool parse_include(const char *line, size_t length, char name[MAX_NAME]) {
    char copy[MAX_NAME + 32], header[41];
    int used = 0;
    if (length >= sizeof copy)
        return false;
    memcpy(copy, line, length);
    copy[length] = 0;
    if (sscanf(copy, " # include \"%40[^\"]%n", header, &used) != 1 || copy[used] != '"')
        return false;
    snprintf(name, MAX_NAME, "include/%s", header);
    return true;
}

/* True the first time for each header. */
static bool remember(expansion *e, const char *name) {
    for (int i = 0; i < e->seen_count; i++)
        if (!strcmp(e->seen[i], name))
            return false;
    if (e->seen_count < MAX_HEADERS)
        snprintf(e->seen[e->seen_count++], MAX_NAME, "%s", name);
    return true;
}

static clattn_status expand(expansion *e, const char *name, int depth);

/* Put one header in place of its include line, number `line` of the file `name`. */
static clattn_status expand_include(expansion *e, const char *header, const char *name, int line, int depth) {
    if (!remember(e, header))
        return append(e, "\n", 1);
    if (depth >= MAX_HEADERS || e->seen_count >= MAX_HEADERS)
        return clattn__fail(e->error, CLATTN_IO_FAILED, "%s:%d: more than %d headers", name, line, MAX_HEADERS - 1);
    clattn_status status = expand(e, header, depth + 1);
    return status ? status : append_marker(e, line + 1, name);
}

static clattn_status expand_text(expansion *e, const char *text, const char *name, int depth) {
    clattn_status status = append_marker(e, 1, name);
    for (int line = 1; !status && *text; line++) {
        size_t length = strcspn(text, "\n");
        char header[MAX_NAME];
        if (parse_include(text, length, header)) {
            status = expand_include(e, header, name, line, depth);
        } else {
            status = append(e, text, length);
            if (!status)
                status = append(e, "\n", 1);
        }
        text += length + (text[length] == '\n');
    }
    return status;
}

static clattn_status expand(expansion *e, const char *name, int depth) {
    const char *text = NULL;
    char *owned;
    clattn_status status = read_source(e, name, &text, &owned);
    if (!status)
        status = expand_text(e, text, name, depth);
    free(owned);
    return status;
}

clattn_status clattn__source_expand(const char *file, char **text, clattn__error *error) {
    const char *folder = getenv("CLATTN_KERNEL_PATH");
    expansion e = {.folder = folder && *folder ? folder : NULL, .error = error};
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s.cl", file);
    clattn_status status = expand(&e, name, 0);
    if (status) {
        free(e.data);
        e.data = NULL;
    }
    *text = e.data;
    return status;
}
