/* Where compiled kernels are kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/device.h>

#include "runtime/cache.h"

size_t clattn_cache_folder(char *text, size_t size) {
    char *folder = NULL;
    clattn__error error = {0};
    if (text && size > 0)
        text[0] = 0;
    if (clattn__cache_folder(NULL, &folder, &error) != CLATTN_SUCCESS || !folder)
        return 0;
    const size_t length = strlen(folder);
    if (text && size > 0)
        snprintf(text, size, "%s", folder);
    free(folder);
    return length;
}
