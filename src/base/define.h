/* A preprocessor define of a kernel: NAME=value. */
#ifndef CLATTN_BASE_DEFINE_H
#define CLATTN_BASE_DEFINE_H

#include <stdint.h>

typedef struct clattn__define {
    const char *name; /* static */
    int64_t value;
} clattn__define;

#endif
