/* Files: read whole, write whole and atomically, make folders. Knows no OpenCL. */
#ifndef CLATTN_BASE_FILE_H
#define CLATTN_BASE_FILE_H

#include <stddef.h>

#include "base/error.h"

/* Read a file into malloc'ed memory with one more byte, 0, at the end. A file larger than limit bytes fails.
 * Errors: IO_FAILED with the path and the system's reason, OUT_OF_HOST_MEMORY. */
clattn_status clattn__file_read(const char *path, size_t limit, char **data, size_t *size, clattn__error *error);

/* Write under a temporary name in the same folder, then rename: readers see the old or the new file, whole.
 * On failure nothing is left behind. */
clattn_status clattn__file_write(const char *path, const void *data, size_t size, clattn__error *error);

/* mkdir -p. */
clattn_status clattn__folder_make(const char *path, clattn__error *error);

/* folder/name, malloc'ed; NULL when out of memory. */
char *clattn__path_join(const char *folder, const char *name);

#endif
