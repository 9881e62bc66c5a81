/* The outputs of one command: all written under temporary names first, renamed together at the end, so a
 * command that fails leaves its outputs' names as they were. */
#ifndef CLATTN_CLI_OUTPUT_H
#define CLATTN_CLI_OUTPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/fail.h"

enum { OUTPUTS_MAX = 8 };

typedef struct output {
    char *path;      /* links resolved */
    char *temporary; /* NULL: a device or pipe, written directly */
    FILE *stream;    /* NULL once finished */
} output;

/* Zero-initialise; end with outputs_commit or outputs_discard. */
typedef struct outputs {
    output items[OUTPUTS_MAX];
    int count;
} outputs;

/* Begin an output. The set owns *stream. A path that is already in the set is refused. */
bool outputs_begin(outputs *set, const char *path, FILE **stream, failure *f);

/* Append count values of 4 bytes, least significant byte first; values may be floats. */
void outputs_words(FILE *stream, const void *values, size_t count);

/* End the output begun last: flush, close, and report what any write to it met. */
bool outputs_finish(outputs *set, failure *f);

/* Rename every output to its name, in order, and empty the set. Should the system refuse one, the rest are
 * discarded. */
bool outputs_commit(outputs *set, failure *f);

/* Remove every temporary file and empty the set. */
void outputs_discard(outputs *set);

#endif
