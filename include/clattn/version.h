/* Version of the headers, and of the library that runs. */
#ifndef CLATTN_VERSION_H
#define CLATTN_VERSION_H

#include <clattn/export.h>

#define CLATTN_VERSION_MAJOR 0
#define CLATTN_VERSION_MINOR 1
#define CLATTN_VERSION_PATCH 0
#define CLATTN_VERSION_STRING "0.1.0"

/* CLATTN_VERSION_STRING of the library itself; static. Thread-safety: any thread, any time. */
CLATTN_API const char *clattn_version(void);

#endif
