/* Text settings into the fields of a layer's description. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/variant.h"

static bool parse_int(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *value = parsed;
    return end != text && *end == 0 && errno == 0;
}

static clattn_status bad_int(const clattn__option *o, const char *value, clattn__error *error) {
    return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is '%s', but must be a whole number of at least %" PRId64 "%s",
                        o->name, value, o->minimum, o->kind == CLATTN__OPTION_LIMIT ? ", or 'none'" : "");
}

static clattn_status set_int(const clattn__option *o, const char *value, int64_t *field, clattn__error *error) {
    if (o->kind == CLATTN__OPTION_LIMIT && strcmp(value, "none") == 0) {
        *field = -1;
        return CLATTN_SUCCESS;
    }
    if (!parse_int(value, field) || *field < o->minimum)
        return bad_int(o, value, error);
    return CLATTN_SUCCESS;
}

static clattn_status set_float(const clattn__option *o, const char *value, float *field, clattn__error *error) {
    char *end;
    *field = strtof(value, &end);
    if (end == value || *end != 0 || !isfinite(*field))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is '%s', but must be a finite number", o->name, value);
    return CLATTN_SUCCESS;
}

static clattn_status set_pair(const clattn__option *o, const char *value, int64_t *field, clattn__error *error) {
    char *end;
    errno = 0;
    field[0] = strtoll(value, &end, 10);
    bool good = end != value && *end == 'x' && parse_int(end + 1, &field[1]) && errno == 0;
    if (!good || field[0] < o->minimum || field[1] < o->minimum)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is '%s', but must be HxW, each at least %" PRId64, o->name,
                            value, o->minimum);
    return CLATTN_SUCCESS;
}

static clattn_status set_choice(const clattn__option *o, const char *value, int *field, clattn__error *error) {
    char known[256] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], value) == 0) {
            *field = i;
            return CLATTN_SUCCESS;
        }
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, o->choices[i], sizeof known - strlen(known) - 1);
    }
    return clattn__fail(error, CLATTN_UNKNOWN_NAME, "%s is '%s', but must be one of: %s", o->name, value, known);
}

static clattn_status apply(const clattn__option *o, void *desc, const char *value, clattn__error *error) {
    void *field = (char *)desc + o->field;
    if (o->kind == CLATTN__OPTION_FLAG) {
        if (value)
            return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s takes no value, but has '%s'", o->name, value);
        *(bool *)field = true;
        return CLATTN_SUCCESS;
    }
    if (!value)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s needs a value", o->name);
    switch (o->kind) {
    case CLATTN__OPTION_FLOAT:
        return set_float(o, value, field, error);
    case CLATTN__OPTION_CHOICE:
        return set_choice(o, value, field, error);
    case CLATTN__OPTION_PAIR:
        return set_pair(o, value, field, error);
    default:
        return set_int(o, value, field, error);
    }
}

static const clattn__option *find(const clattn__variant *variant, const char *name) {
    for (const clattn__option *o = variant->options; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

clattn_status clattn__options_apply(const clattn__variant *variant, void *desc, const clattn_setting *settings,
                                    size_t count, clattn__error *error) {
    for (size_t i = 0; i < count; i++) {
        if (!settings[i].name)
            return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "setting %zu has no name", i);
        const clattn__option *o = find(variant, settings[i].name);
        if (!o)
            return clattn__fail(error, CLATTN_UNKNOWN_NAME, "%s has no option '%s'", variant->name, settings[i].name);
        clattn_status status = apply(o, desc, settings[i].value, error);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    return CLATTN_SUCCESS;
}
