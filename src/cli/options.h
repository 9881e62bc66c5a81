/* Long options into the fields of a command's own struct. */
#ifndef CLATTN_CLI_OPTIONS_H
#define CLATTN_CLI_OPTIONS_H

#include <stddef.h>

#include <clattn/layer.h>

#include "cli/fail.h"

typedef enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char *, into argv */
    OPTION_COUNT,  /* int64_t, at least 1 */
    OPTION_WHOLE,  /* int64_t, at least 0 */
    OPTION_LIMIT,  /* int64_t, at least 0, or "none" = -1 */
    OPTION_SHARE,  /* double, 0..1 */
    OPTION_CHOICE, /* int: index of the word in choices */
} option_kind;

typedef struct option_row {
    const char *name;
    option_kind kind;
    size_t field;               /* offsetof in the command's struct */
    const char *const *choices; /* ended by NULL */
} option_row;

/* Options that the library itself reads, as text: which family has which, and their ranges, is its matter. */
enum { SETTINGS_MAX = 16 };

typedef struct settings {
    clattn_setting items[SETTINGS_MAX];
    size_t count;
} settings;

/* What a command accepts. */
typedef struct option_set {
    const option_row *rows; /* ended by name NULL */
    void *to;               /* zero-initialised or filled with the defaults */
    settings *settings;     /* NULL: no options of the families here */
    const char **word;      /* the one argument that is no option; NULL: none is accepted */
    const char *word_name;  /* "VARIANT" */
} option_set;

/* Each option given twice: the last counts. */
bool options_parse(int argc, char **argv, const option_set *set, failure *f);

#endif
