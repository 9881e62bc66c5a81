/* 128-bit hashes (xxHash) as 32 hexadecimal digits. Knows no OpenCL. */
#ifndef CLATTN_BASE_HASH_H
#define CLATTN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct clattn__hash {
    char hex[33]; /* ended by 0 */
} clattn__hash;

/* A hash over parts; each part is hashed with its length, so ("ab","c") differs from ("a","bc"). */
typedef struct clattn__part {
    const void *data;
    size_t size;
} clattn__part;

clattn__hash clattn__hash_parts(const clattn__part *parts, size_t count);
uint64_t clattn__hash64(const void *data, size_t size);

#endif
