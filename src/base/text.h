/* Text into a buffer of fixed size. Knows no OpenCL. */
#ifndef CLATTN_BASE_TEXT_H
#define CLATTN_BASE_TEXT_H

#include <stddef.h>

/* A growing text in caller's memory. length counts what the whole text needs, even past size. */
typedef struct clattn__text {
    char *data; /* may be NULL when size is 0 */
    size_t size;
    size_t length;
} clattn__text;

/* Append printf-style; data always ends by 0 when size > 0. */
void clattn__text_add(clattn__text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
