/* Kernel sources: embedded in the library at build time (cl/embed.py), expanded to one text. */
#ifndef CLATTN_RUNTIME_SOURCE_H
#define CLATTN_RUNTIME_SOURCE_H

#include "base/error.h"

/* name  path below cl/: "dense.cl", "include/types.h" */
typedef struct clattn__source {
    const char *name; /* NULL ends the table */
    const char *text;
} clattn__source;

extern const clattn__source clattn__sources[];

/* The text of <file>.cl with every `#include "x.h"` (include/x.h) in place, each header once, whatever #if stands
 * round it. #line markers keep the compiler's messages at the file and line that one edits.
 * Where the environment names CLATTN_KERNEL_PATH=dir, dir/<file>.cl and dir/include/x.h are read instead.
 * *text is malloc'ed. Errors: IO_FAILED with the path that is missing, OUT_OF_HOST_MEMORY. */
clattn_status clattn__source_expand(const char *file, char **text, clattn__error *error);

/* Empty the lines of every kernel but those named, between blanks, in place. A kernel's first line begins with __kernel or with its
 * __attribute__, and its last with a closing brace; one that is written otherwise stays.
 * Where one of the names is no kernel's, all stay. */
void clattn__source_keep(char *text, const char *names);

#endif
