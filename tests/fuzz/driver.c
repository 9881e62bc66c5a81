/* Mutates the seeds of a fuzzer a fixed number of times, the same each run: driver [ROUNDS [FIRST]].
 * With FUZZ_KEEP=FILE each input is kept there before it is tried, so a crash leaves it behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { SLACK = 256, MOST_CHANGES = 6 };

static uint64_t state;

/* splitmix64 */
static uint64_t next(void) {
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(size_t bound) { return (size_t)(next() % bound); }

/* Most bytes of a seed are data; half of the changes go to the front, where the headers are. */
static size_t position(size_t size) { return next() & 1 && size > 160 ? below(160) : below(size); }

static size_t paste(unsigned char *data, size_t size, size_t room, int insert) {
    size_t words = 0;
    while (fuzz_words[words]) {
        ++words;
    }
    const char *word = fuzz_words[below(words)];
    size_t length = strlen(word), at = position(size);
    if (insert && size + length <= room) {
        memmove(data + at + length, data + at, size - at);
        memcpy(data + at, word, length);
        return size + length;
    }
    memcpy(data + at, word, length < size - at ? length : size - at);
    return size;
}

static size_t erase(unsigned char *data, size_t size) {
    size_t at = position(size), length = 1 + below(8);
    length = length < size - at ? length : size - at;
    memmove(data + at, data + at + length, size - at - length);
    return size - length;
}

static size_t change(unsigned char *data, size_t size, size_t room) {
    static const unsigned char bytes[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '"', '\'', '\\', '\n', ' '};
    if (size == 0) {
        return 0;
    }
    switch (below(8)) {
    case 0:
        data[position(size)] ^= (unsigned char)(1u << below(8));
        return size;
    case 1:
        data[position(size)] = bytes[below(sizeof bytes)];
        return size;
    case 2:
        data[below(size < 16 ? size : 16)] = (unsigned char)next(); /* sizes and versions */
        return size;
    case 3:
        return below(16) == 0 ? below(size) : size; /* cut */
    case 4:
        return erase(data, size);
    default:
        return paste(data, size, room, (int)below(2));
    }
}

/* A header that grew or shrank no longer has the size in front of it, and little behind that is reached.
 * So most rounds mend it: both formats begin with or soon hold a little-endian size of the text up to the data. */
static void mend(unsigned char *data, size_t size, size_t old_size) {
    size_t at = size > 10 && data[0] == 0x93 ? 8 : 0;
    size_t announced = size > at + 2 ? data[at] | (size_t)data[at + 1] << 8 : 0;
    size_t wanted = announced + size - old_size;
    if (size > at + 2 && wanted < 65536) {
        data[at] = wanted & 255;
        data[at + 1] = (unsigned char)(wanted >> 8);
    }
}

static void keep(const unsigned char *data, size_t size) {
    const char *path = getenv("FUZZ_KEEP");
    FILE *stream = path ? fopen(path, "wb") : NULL;
    if (stream) {
        fwrite(data, 1, size, stream);
        fclose(stream);
    }
}

static void play(uint64_t round, size_t seeds) {
    state = round * UINT64_C(0xd1342543de82ef95);
    const fuzz_seed *seed = &fuzz_seeds[below(seeds)];
    size_t size = seed->size, room = size + SLACK;
    unsigned char *data = malloc(room);
    if (!data) {
        abort();
    }
    memcpy(data, seed->data, size);
    for (size_t left = below(MOST_CHANGES + 1); left > 0; --left) {
        size = change(data, size, room);
    }
    if (below(4) != 0) {
        mend(data, size, seed->size);
    }
    /* An exact allocation: a sanitizer sees one byte too many. */
    unsigned char *exact = malloc(size > 0 ? size : 1);
    if (!exact) {
        abort();
    }
    memcpy(exact, data, size);
    free(data);
    keep(exact, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000,
             first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    size_t seeds = 0;
    while (fuzz_seeds[seeds].data) {
        ++seeds;
    }
    for (uint64_t round = first; round < first + rounds; ++round) {
        play(round, seeds);
    }
    printf("%llu inputs\n", (unsigned long long)rounds);
    return EXIT_SUCCESS;
}
