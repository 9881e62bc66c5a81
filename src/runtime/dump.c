/* CLATTN_DUMP: what the library compiled and planned, for people to read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runtime/build.h"

void clattn__dump(const clattn__runtime *runtime, const char *label, const char *extension, const void *data,
                  size_t size) {
    if (!runtime->dump_dir)
        return;
    clattn__error error = {0};
    char name[160];
    snprintf(name, sizeof name, "%s.%s", label, extension);
    char *path = clattn__path_join(runtime->dump_dir, name);
    clattn_status status = clattn__folder_make(runtime->dump_dir, &error);
    if (!status && path)
        status = clattn__file_write(path, data, size, &error);
    if (status || !path)
        clattn__log_line(&runtime->log, CLATTN__LOG_WARNING, "CLATTN_DUMP: no %s: %s", name, error.text);
    free(path);
}

void clattn__dump_text(const clattn__runtime *runtime, const char *name, const char *text) {
    clattn__dump(runtime, name, "txt", text, strlen(text));
}
