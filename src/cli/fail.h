/* One sentence about what went wrong in a command. */
#ifndef CLATTN_CLI_FAIL_H
#define CLATTN_CLI_FAIL_H

#include <stdbool.h>

/* Zero-initialise; text is "" while nothing failed. */
typedef struct failure {
    char text[4096];
} failure;

/* Fill f (which may be NULL) and yield false, for `return fail_with(f, …)`. The first failure wins. File names
 * and names inside files may hold anything: control characters become '?', so the sentence stays one line. */
#define fail_with(f, ...) (fail_note(f, __VA_ARGS__), fail_result())

/* fail_with "cannot VERB PATH: reason", with the reason of errno. */
#define fail_system(f, verb, path) (fail_note_system(f, verb, path), fail_result())

/* The compiler must see that the result is false, or it warns of what a failed call left unset. */
static inline bool fail_result(void) { return false; }

void fail_note(failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fail_note_system(failure *f, const char *verb, const char *path);

/* A name in a sentence: 'name', cut between characters where it is long. */
typedef struct quoted {
    char text[128];
} quoted;

quoted quote(const char *name);

#endif
