/* A status with its sentence, carried up from where a thing went wrong. Knows no OpenCL. */
#ifndef CLATTN_BASE_ERROR_H
#define CLATTN_BASE_ERROR_H

#include <clattn/status.h>

typedef struct clattn__error {
    clattn_status status;
    char text[4096];
} clattn__error;

/* Fill e (which may be NULL) and return status. The first failure wins: a filled e is kept. */
clattn_status clattn__fail(clattn__error *e, clattn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
