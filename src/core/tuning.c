/* Tuning files: parsed, checked, applied whole or not at all. */
#include "core/tuning.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { FILE_LIMIT = 1 << 20 };

/* ---- reading ---- */

static const struct field {
    const char *name;
    size_t offset;
    int minimum, maximum;
} fields[] = {
    {"wg", offsetof(clattn__tile, wg), 1, 1024}, {"vw", offsetof(clattn__tile, vw), 1, 16},
    {"tm", offsetof(clattn__tile, tm), 1, 16},   {"tnv", offsetof(clattn__tile, tnv), 1, 4},
    {"pw", offsetof(clattn__tile, pw), 1, 256},  {"bm", offsetof(clattn__tile, bm), 1, 1024},
    {"bn", offsetof(clattn__tile, bn), 1, 4096}, {"kb", offsetof(clattn__tile, kb), 16, 512},
};

enum { FIELDS = sizeof fields / sizeof *fields };

static int *number(clattn__tile *tile, const struct field *field) { return (int *)((char *)tile + field->offset); }

static const struct field *find(const char *key) {
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].name, key) == 0)
            return &fields[i];
    return NULL;
}

/* What sentences are about: "tune.json: gemm". */
typedef struct place {
    const char *file, *shape;
} place;

static clattn_status read_number(const place *at, const char *key, const json_t *value, clattn__tile *tile,
                                 clattn__error *error) {
    const struct field *field = find(key);
    if (!field || (strcmp(key, "kb") == 0 && strcmp(at->shape, "gemm") != 0))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: %s has no number '%s'", at->file, at->shape, key);
    if (!json_is_integer(value))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: %s.%s is not a whole number", at->file, at->shape,
                            key);
    const json_int_t n = json_integer_value(value);
    if (n < field->minimum || n > field->maximum)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "%s: %s.%s is %" JSON_INTEGER_FORMAT ", but must be in %d..%d", at->file, at->shape, key, n,
                            field->minimum, field->maximum);
    *number(tile, field) = (int)n;
    return CLATTN_SUCCESS;
}

static clattn_status read_shape(const place *at, json_t *object, clattn__tile *tile, clattn__error *error) {
    const char *key;
    json_t *value;
    clattn_status status = CLATTN_SUCCESS;
    if (!json_is_object(object))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: %s is not an object", at->file, at->shape);
    json_object_foreach(object, key, value) {
        if (status == CLATTN_SUCCESS)
            status = read_number(at, key, value, tile, error);
    }
    return status;
}

static clattn_status read_shapes(const char *file, json_t *root, clattn__target *target, clattn__error *error) {
    const char *key;
    json_t *value;
    clattn_status status = CLATTN_SUCCESS;
    if (!json_is_object(root))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: not an object", file);
    json_object_foreach(root, key, value) {
        const bool gemm = strcmp(key, "gemm") == 0, attention = strcmp(key, "attention") == 0;
        const place at = {file, key};
        if (status == CLATTN_SUCCESS && !gemm && !attention)
            status = clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: there is no '%s'; known are gemm, attention",
                                  file, key);
        else if (status == CLATTN_SUCCESS)
            status = read_shape(&at, value, gemm ? &target->gemm : &target->attention, error);
    }
    return status;
}

/* ---- checking ---- */

static clattn_status multiple(const place *at, const char *name, int value, const char *of_name, int of,
                              clattn__error *error) {
    if (value % of == 0)
        return CLATTN_SUCCESS;
    return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: %s.%s is %d, which is no multiple of %s, %d", at->file,
                        at->shape, name, value, of_name, of);
}

static clattn_status check_shape(const place *at, const clattn__tile *t, clattn__error *error) {
    if (t->vw != 1 && t->vw != 4 && t->vw != 8 && t->vw != 16)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: %s.vw is %d, but must be 1, 4, 8 or 16", at->file,
                            at->shape, t->vw);
    clattn_status status = multiple(at, "pw", t->pw, "tnv*vw", t->tnv * t->vw, error);
    if (status == CLATTN_SUCCESS)
        status = multiple(at, "bm", t->bm, "tm", t->tm, error);
    if (status == CLATTN_SUCCESS)
        status = multiple(at, "bn", t->bn, "pw", t->pw, error);
    return status;
}

static clattn_status check_together(const char *file, const clattn__target *target, clattn__error *error) {
    const clattn__tile *gemm = &target->gemm, *attention = &target->attention;
    if (gemm->pw != attention->pw)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT,
                            "%s: gemm.pw is %d, but attention.pw is %d: panels are shared", file, gemm->pw,
                            attention->pw);
    return clattn__target_fits(target, file, error);
}

clattn_status clattn__tuning_apply(const char *name, const char *text, size_t size, clattn__target *target,
                                   clattn__error *error) {
    json_error_t wrong;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &wrong);
    if (!root)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s: line %d: %s", name, wrong.line, wrong.text);
    clattn__target tuned = *target;
    const place gemm = {name, "gemm"}, attention = {name, "attention"};
    clattn_status status = read_shapes(name, root, &tuned, error);
    if (status == CLATTN_SUCCESS)
        status = check_shape(&gemm, &tuned.gemm, error);
    if (status == CLATTN_SUCCESS)
        status = check_shape(&attention, &tuned.attention, error);
    if (status == CLATTN_SUCCESS)
        status = check_together(name, &tuned, error);
    if (status == CLATTN_SUCCESS)
        *target = tuned;
    json_decref(root);
    return status;
}

clattn_status clattn__tuning_load(const char *path, clattn__target *target, clattn__error *error) {
    char *text = NULL;
    size_t size = 0;
    if (!path || !*path)
        return CLATTN_SUCCESS;
    clattn_status status = clattn__file_read(path, FILE_LIMIT, &text, &size, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__tuning_apply(path, text, size, target, error);
    free(text);
    return status;
}
