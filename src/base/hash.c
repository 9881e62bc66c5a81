#include "base/hash.h"

#include <string.h>
#include <xxhash.h>

enum { DIGEST = 16, LENGTH = 8 };

static void put_digest(unsigned char *out, const void *data, size_t size) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(size ? data : "", size));
    memcpy(out, canonical.digest, DIGEST);
}

static void put_hex(char *hex, const unsigned char *digest) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST; ++i) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * DIGEST] = 0;
}

/* A chain, digest' = H(digest, length, H(part)): it needs no streaming state, whose layout belongs to
 * xxHash's version, and every link has a fixed size, so parts cannot run into each other. */
clattn__hash clattn__hash_parts(const clattn__part *parts, size_t count) {
    unsigned char digest[DIGEST] = {0};
    for (size_t i = 0; i < count; ++i) {
        unsigned char link[DIGEST + LENGTH + DIGEST];
        memcpy(link, digest, DIGEST);
        for (int b = 0; b < LENGTH; ++b) {
            link[DIGEST + b] = (unsigned char)((uint64_t)parts[i].size >> (8 * b));
        }
        put_digest(link + DIGEST + LENGTH, parts[i].data, parts[i].size);
        put_digest(digest, link, sizeof link);
    }
    clattn__hash hash;
    put_hex(hash.hex, digest);
    return hash;
}

uint64_t clattn__hash64(const void *data, size_t size) { return XXH3_64bits(size ? data : "", size); }
