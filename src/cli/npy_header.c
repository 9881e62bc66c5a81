#include "cli/npy_header.h"

#include <string.h>

typedef struct reader {
    const char *name; /* of the file */
    const char *at, *end;
    failure *f;
} reader;

enum { SAW_DESCR = 1, SAW_ORDER = 2, SAW_SHAPE = 4, SAW_ALL = 7 };

static void skip_space(reader *r) {
    while (r->at < r->end && memchr(" \t\r\n\f", *r->at, 5)) {
        r->at++;
    }
}

/* Take a character if it comes next, after space. */
static bool take(reader *r, char wanted) {
    skip_space(r);
    bool there = r->at < r->end && *r->at == wanted;
    r->at += there;
    return there;
}

static bool take_word(reader *r, const char *word) {
    size_t length = strlen(word);
    skip_space(r);
    bool there = (size_t)(r->end - r->at) >= length && memcmp(r->at, word, length) == 0;
    r->at += there ? length : 0;
    return there;
}

/* The sentence for a header that is no such dictionary shows where reading stopped. */
static bool fail_here(reader *r, const char *wanted) {
    size_t left = (size_t)(r->end - r->at);
    char rest[24];
    size_t shown = left < sizeof rest - 1 ? left : sizeof rest - 1;
    for (size_t i = 0; i < shown; ++i) {
        rest[i] = r->at[i] ? r->at[i] : '?';
    }
    rest[shown] = 0;
    return left > 0 ? fail_with(r->f, "%s: header wants %s where it holds \"%s\"", r->name, wanted, rest)
                    : fail_with(r->f, "%s: header ends where it wants %s", r->name, wanted);
}

/* A quoted string without escapes. */
static bool take_string(reader *r, const char *what, const char **text, size_t *length) {
    skip_space(r);
    char mark = r->at < r->end ? *r->at : 0;
    const char *stop = mark == '\'' || mark == '"' ? memchr(r->at + 1, mark, (size_t)(r->end - r->at - 1)) : NULL;
    if (!stop) {
        return fail_here(r, what);
    }
    *text = r->at + 1;
    *length = (size_t)(stop - *text);
    r->at = stop + 1;
    return true;
}

static bool parse_descr(reader *r, npy_header *h) {
    static const struct {
        char text[3];
        number type;
    } types[] = {{"f2", NUMBER_F16}, {"f4", NUMBER_F32}, {"f8", NUMBER_F64}, {"i4", NUMBER_I32}, {"i8", NUMBER_I64}};
    const char *text;
    size_t length;
    if (!take_string(r, "a plain element type", &text, &length)) {
        return false;
    }
    const char *base = text;
    if (length == 3 && memchr("<>|=", *text, 4)) { /* '=' and '|' are read as little-endian */
        h->big = *text == '>';
        base++;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
        if (length - (size_t)(base - text) == 2 && memcmp(base, types[i].text, 2) == 0) {
            h->type = types[i].type;
            return true;
        }
    }
    int shown = length < 40 ? (int)length : 40;
    return fail_with(r->f, "%s: element type '%.*s' is none of f2, f4, f8, i4 and i8", r->name, shown, text);
}

static bool parse_order(reader *r, npy_header *h) {
    h->fortran = take_word(r, "True");
    return h->fortran || take_word(r, "False") || fail_here(r, "True or False for fortran_order");
}

static bool parse_size(reader *r, int64_t *size) {
    skip_space(r);
    const char *start = r->at;
    bool negative = take(r, '-');
    int64_t value = 0;
    const char *digits = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        int digit = *r->at++ - '0';
        if (value > (INT64_MAX - digit) / 10) {
            r->at = start;
            return fail_here(r, "a size below 2^63");
        }
        value = 10 * value + digit;
    }
    if (r->at == digits) {
        return fail_here(r, "a size of shape");
    }
    if (negative && value > 0) {
        return fail_with(r->f, "%s: shape holds the negative size -%lld, and the least is 0", r->name,
                         (long long)value);
    }
    r->at += r->at < r->end && *r->at == 'L'; /* as Python 2 wrote long numbers */
    *size = value;
    return true;
}

static bool parse_shape(reader *r, npy_header *h) {
    if (!take(r, '(')) {
        return fail_here(r, "a tuple for shape");
    }
    bool comma = true;
    int rank = 0;
    for (; !take(r, ')'); ++rank) {
        int64_t size;
        if (!comma) {
            return fail_here(r, "a comma or ')' in shape");
        }
        if (!parse_size(r, &size)) {
            return false;
        }
        if (rank < NPY_MAX_RANK) {
            h->shape[rank] = size;
        }
        comma = take(r, ',');
    }
    if (rank == 1 && !comma) {
        return fail_here(r, "a tuple for shape, not a number in brackets");
    }
    if (rank > NPY_MAX_RANK) {
        return fail_with(r->f, "%s: shape has %d axes, and the most is %d", r->name, rank, NPY_MAX_RANK);
    }
    h->rank = rank;
    return true;
}

static bool parse_entry(reader *r, npy_header *h, int *seen) {
    static const struct {
        const char *key;
        int bit;
        bool (*parse)(reader *, npy_header *);
    } entries[] = {{"descr", SAW_DESCR, parse_descr},
                   {"fortran_order", SAW_ORDER, parse_order},
                   {"shape", SAW_SHAPE, parse_shape}};
    const char *key;
    size_t length;
    if (!take_string(r, "a quoted key", &key, &length)) {
        return false;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i) {
        if (length == strlen(entries[i].key) && memcmp(key, entries[i].key, length) == 0) {
            if (*seen & entries[i].bit) {
                return fail_with(r->f, "%s: header holds the key '%s' twice", r->name, entries[i].key);
            }
            *seen |= entries[i].bit;
            return take(r, ':') ? entries[i].parse(r, h) : fail_here(r, "':'");
        }
    }
    return fail_with(r->f, "%s: header holds the unknown key '%.*s'", r->name, length < 40 ? (int)length : 40, key);
}

bool npy_header_parse(const char *name, const unsigned char *text, size_t size, npy_header *header, failure *f) {
    reader r = {name, (const char *)text, (const char *)text + size, f};
    int seen = 0;
    bool comma = true;
    memset(header, 0, sizeof *header);
    if (!take(&r, '{')) {
        return fail_here(&r, "a dictionary");
    }
    while (!take(&r, '}')) {
        if (!comma) {
            return fail_here(&r, "a comma or '}'");
        }
        if (!parse_entry(&r, header, &seen)) {
            return false;
        }
        comma = take(&r, ',');
    }
    skip_space(&r);
    if (r.at < r.end) {
        return fail_here(&r, "nothing more after '}'");
    }
    if (seen != SAW_ALL) {
        return fail_with(f, "%s: header lacks the key '%s'", name,
                         !(seen & SAW_DESCR)   ? "descr"
                         : !(seen & SAW_ORDER) ? "fortran_order"
                                               : "shape");
    }
    return true;
}
