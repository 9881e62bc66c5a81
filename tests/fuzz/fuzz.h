/* The parsers of files, as fuzzers enter them. The entry is libFuzzer's, so one source serves
 *     clang -fsanitize=fuzzer,address,undefined …          an endless search
 *     driver.c                                             a fixed number of mutations, as an ordinary test */
#ifndef CLATTN_TESTS_FUZZ_H
#define CLATTN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Abort where a property of the parser is broken; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What driver.c mutates. Ended by data NULL; words, ended by NULL, are pasted in. */
typedef struct fuzz_seed {
    const char *data;
    size_t size;
} fuzz_seed;

extern const fuzz_seed fuzz_seeds[];
extern const char *const fuzz_words[];

#endif
