#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* getopt_long answers FIRST_ROW + a row of the command, or FIRST_SETTING + a row below. */
enum { FIRST_ROW = 256, FIRST_SETTING = 512, LONG_MAX_COUNT = 64, PLAIN_WORD = 1 };

static const struct setting_row {
    const char *name;
    bool has_value;
} setting_rows[] = {
    {"mode", true},   {"causal", false}, {"k", true},           {"normalise", true},    {"window", true},
    {"grid", true},   {"shift", true},   {"window-left", true}, {"window-right", true}, {"scale-by", true},
    {"masked", true}, {"local", true},   {"scale", true},
};

enum { SETTING_ROWS = sizeof setting_rows / sizeof *setting_rows };

_Static_assert((int)SETTING_ROWS <= (int)SETTINGS_MAX, "each setting is kept once");

static void list_options(const option_set *set, struct option *list) {
    size_t count = 0;
    for (int i = 0; set->rows[i].name && count < LONG_MAX_COUNT; ++i) {
        int takes = set->rows[i].kind == OPTION_FLAG ? no_argument : required_argument;
        list[count++] = (struct option){set->rows[i].name, takes, NULL, FIRST_ROW + i};
    }
    for (int i = 0; set->settings && i < SETTING_ROWS && count < LONG_MAX_COUNT; ++i) {
        int takes = setting_rows[i].has_value ? required_argument : no_argument;
        list[count++] = (struct option){setting_rows[i].name, takes, NULL, FIRST_SETTING + i};
    }
    list[count] = (struct option){0};
}

static bool set_whole(const option_row *row, const char *value, int64_t least, int64_t *field, failure *f) {
    char *end;
    errno = 0;
    long long parsed = strtoll(value, &end, 10);
    if (end == value || *end || errno || parsed < least) {
        return fail_with(f, "--%s is %s, but must be a whole number of at least %" PRId64, row->name, quote(value).text,
                         least);
    }
    *field = parsed;
    return true;
}

static bool set_limit(const option_row *row, const char *value, int64_t *field, failure *f) {
    failure ignored = {0};
    if (strcmp(value, "none") == 0) {
        *field = -1;
        return true;
    }
    return set_whole(row, value, 0, field, &ignored) ||
           fail_with(f, "--%s is %s, but must be a whole number of at least 0, or none", row->name, quote(value).text);
}

static bool set_share(const option_row *row, const char *value, double *field, failure *f) {
    char *end;
    double parsed = strtod(value, &end);
    /* Written so that NaN fails it. */
    if (end == value || *end || !(parsed >= 0 && parsed <= 1)) {
        return fail_with(f, "--%s is %s, but must be a number in 0..1", row->name, quote(value).text);
    }
    *field = parsed;
    return true;
}

static bool set_choice(const option_row *row, const char *value, int *field, failure *f) {
    char known[128] = "";
    for (int i = 0; row->choices[i]; ++i) {
        if (strcmp(row->choices[i], value) == 0) {
            *field = i;
            return true;
        }
        strncat(known, i > 0 ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, row->choices[i], sizeof known - strlen(known) - 1);
    }
    return fail_with(f, "--%s is %s, but must be one of: %s", row->name, quote(value).text, known);
}

static bool set_row(const option_row *row, void *to, const char *value, failure *f) {
    void *field = (char *)to + row->field;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_TEXT:
        *(const char **)field = value;
        return true;
    case OPTION_COUNT:
        return set_whole(row, value, 1, field, f);
    case OPTION_WHOLE:
        return set_whole(row, value, 0, field, f);
    case OPTION_LIMIT:
        return set_limit(row, value, field, f);
    case OPTION_SHARE:
        return set_share(row, value, field, f);
    default:
        return set_choice(row, value, field, f);
    }
}

static void keep_setting(settings *kept, const char *name, const char *value) {
    size_t at = 0;
    while (at < kept->count && strcmp(kept->items[at].name, name) != 0) {
        ++at;
    }
    kept->items[at] = (clattn_setting){name, value};
    kept->count += at == kept->count;
}

static bool set_word(const option_set *set, const char *word, failure *f) {
    if (!set->word) {
        return fail_with(f, "unexpected argument %s", quote(word).text);
    }
    if (*set->word) {
        return fail_with(f, "unexpected argument %s after %s %s", quote(word).text, set->word_name,
                         quote(*set->word).text);
    }
    *set->word = word;
    return true;
}

static const char *name_of(const option_set *set, int code) {
    return code >= FIRST_SETTING ? setting_rows[code - FIRST_SETTING].name : set->rows[code - FIRST_ROW].name;
}

/* After '?': optopt is a short option's letter, a known option's code (which got a value it does not take), or 0. */
static bool reject(const option_set *set, const char *argument, failure *f) {
    if (optopt >= FIRST_ROW) {
        return fail_with(f, "--%s takes no value", name_of(set, optopt));
    }
    if (optopt > 0) {
        return fail_with(f, "unknown option '-%c'", optopt);
    }
    return fail_with(f, "unknown or ambiguous option %s", quote(argument).text);
}

static bool apply(const option_set *set, int code, const char *argument, failure *f) {
    if (code == PLAIN_WORD) {
        return set_word(set, optarg, f);
    }
    if (code == ':') {
        return fail_with(f, "--%s needs a value", name_of(set, optopt));
    }
    if (code == '?') {
        return reject(set, argument, f);
    }
    if (code >= FIRST_SETTING) {
        keep_setting(set->settings, setting_rows[code - FIRST_SETTING].name, optarg);
        return true;
    }
    return set_row(&set->rows[code - FIRST_ROW], set->to, optarg, f);
}

bool options_parse(int argc, char **argv, const option_set *set, failure *f) {
    struct option list[LONG_MAX_COUNT + 1];
    list_options(set, list);
    opterr = 0;
    optind = 1;
    int code;
    /* '-': words come in their order, whatever POSIXLY_CORRECT says; ':': a missing value is told apart. */
    while ((code = getopt_long(argc, argv, "-:", list, NULL)) != -1) {
        if (!apply(set, code, argv[optind - 1], f)) {
            return false;
        }
    }
    for (; optind < argc; ++optind) {
        if (!set_word(set, argv[optind], f)) {
            return false;
        }
    }
    return true;
}
