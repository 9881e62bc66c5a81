#include "cli/safetensors_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/convert.h"

/* A JSON value takes about 100 bytes of memory, however short its text: this bounds them to half a gigabyte.
 * It is room for 300000 tensors. */
static const size_t value_limit = 4000000;

/* Bits of an element, for every type of the format. Files with other types open; only their sizes go unchecked. */
static const struct {
    const char *name;
    int bits;
} types[] = {
    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F64", 64},    {"I64", 64},    {"I32", 32},
    {"I16", 16},        {"I8", 8},          {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},
    {"BOOL", 8},        {"C64", 64},        {"F4", 4},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

/* 0 for a type that is not of the list. */
static int type_bits(const char *dtype) {
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
        if (strcmp(types[i].name, dtype) == 0) {
            return types[i].bits;
        }
    }
    return 0;
}

typedef struct place {
    const char *file, *tensor;
    failure *f;
} place;

#define FAIL_AT(at, format, ...)                                                                                       \
    fail_with((at)->f, "%s: tensor %s: " format, (at)->file, quote((at)->tensor).text, __VA_ARGS__)

/* A member of the wrong kind, or none. */
static bool fail_member(const place *at, const char *key, const char *wanted) {
    return FAIL_AT(at, "its header entry has no \"%s\" that is %s", key, wanted);
}

static bool parse_integer(const json_t *value, int64_t *integer) {
    *integer = json_integer_value(value);
    return json_is_integer(value) && *integer >= 0;
}

static bool parse_shape(const place *at, const json_t *shape, safetensors_info *info) {
    if (!json_is_array(shape)) {
        return fail_member(at, "shape", "a list of sizes");
    }
    size_t rank = json_array_size(shape);
    int64_t count = 1;
    for (size_t i = 0; i < rank; ++i) {
        int64_t size, product;
        if (!parse_integer(json_array_get(shape, i), &size)) {
            return fail_member(at, "shape", "a list of integers, none below 0");
        }
        /* One axis at a time, for any rank. A 0 counts as 1 here, so what is multiplied later cannot overflow. */
        int64_t pair[] = {count, size > 0 ? size : 1};
        if (!shape_count(pair, 2, INT64_MAX / 64, &product)) {
            return FAIL_AT(at, "its shape has more than %" PRId64 " elements", INT64_MAX / 64);
        }
        count = product;
        if (i < SAFETENSORS_MAX_RANK) {
            info->shape[i] = size;
        }
    }
    info->rank = (int)rank;
    info->count = count;
    for (size_t i = 0; i < rank; ++i) {
        info->count = json_integer_value(json_array_get(shape, i)) == 0 ? 0 : info->count;
    }
    return true;
}

static bool parse_offsets(const place *at, const json_t *offsets, int64_t data_size, safetensors_info *info) {
    if (json_array_size(offsets) != 2 || !parse_integer(json_array_get(offsets, 0), &info->begin) ||
        !parse_integer(json_array_get(offsets, 1), &info->end)) {
        return fail_member(at, "data_offsets", "a pair of integers, none below 0");
    }
    if (info->begin > info->end) {
        return FAIL_AT(at, "begins at byte %" PRId64 " and ends before it, at %" PRId64, info->begin, info->end);
    }
    if (info->end > data_size) {
        return FAIL_AT(at, "ends at byte %" PRId64 ", and the file holds only %" PRId64 " bytes of data", info->end,
                       data_size);
    }
    return true;
}

static bool check_bytes(const place *at, const safetensors_info *info) {
    int bits = type_bits(info->dtype);
    int64_t wanted = info->count * bits, held = info->end - info->begin;
    if (bits == 0 || (wanted % 8 == 0 && wanted / 8 == held)) {
        return true;
    }
    return FAIL_AT(at, "%" PRId64 " elements of %s want %" PRId64 " bytes, and data_offsets span %" PRId64, info->count,
                   info->dtype, wanted / 8 + (wanted % 8 != 0), held);
}

static bool parse_tensor(const place *at, const json_t *entry, int64_t data_size, safetensors_info *info) {
    if (!json_is_object(entry)) {
        return FAIL_AT(at, "its header entry is no %s", "object");
    }
    info->name = at->tensor;
    info->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!info->dtype) {
        return fail_member(at, "dtype", "a text");
    }
    return parse_shape(at, json_object_get(entry, "shape"), info) &&
           parse_offsets(at, json_object_get(entry, "data_offsets"), data_size, info) && check_bytes(at, info);
}

static int compare_infos(const void *a, const void *b) {
    const safetensors_info *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Each tensor begins where the one before it ends, and the last ends with the file. */
static bool check_tiling(const char *name, const safetensors_header *h, int64_t data_size, failure *f) {
    int64_t end = 0;
    for (size_t i = 0; i < h->count; ++i) {
        place at = {name, h->infos[i].name, f};
        if (h->infos[i].begin != end) {
            return FAIL_AT(&at, "begins at byte %" PRId64 " where the tensors before it end at %" PRId64 ": they %s",
                           h->infos[i].begin, end, h->infos[i].begin < end ? "overlap" : "leave a hole");
        }
        end = h->infos[i].end;
    }
    if (end != data_size) {
        return fail_with(f, "%s: its tensors end at byte %" PRId64 ", and %" PRId64 " bytes of data follow the header",
                         name, end, data_size);
    }
    return true;
}

static bool check_values(const char *name, const char *text, size_t size, failure *f) {
    size_t values = 0;
    if (size == 0 || text[0] != '{') {
        return fail_with(f, "%s: not a safetensors file: its header of %zu bytes does not begin with '{'", name, size);
    }
    for (size_t i = 0; i < size; ++i) {
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return values <= value_limit ||
           fail_with(f, "%s: its header holds about %zu values, over the limit of %zu", name, values, value_limit);
}

static bool parse_entries(const char *name, int64_t data_size, safetensors_header *h, failure *f) {
    const char *key;
    json_t *entry;
    h->infos = calloc(json_object_size(h->json) + 1, sizeof *h->infos);
    if (!h->infos) {
        return fail_with(f, "%s: no memory for its header", name);
    }
    json_object_foreach(h->json, key, entry) {
        place at = {name, key, f};
        if (strcmp(key, "__metadata__") == 0) {
            continue;
        }
        if (!parse_tensor(&at, entry, data_size, &h->infos[h->count])) {
            return false;
        }
        h->count++;
    }
    qsort(h->infos, h->count, sizeof *h->infos, compare_infos);
    return check_tiling(name, h, data_size, f);
}

bool safetensors_header_parse(const char *name, const char *text, size_t size, int64_t data_size,
                              safetensors_header *header, failure *f) {
    json_error_t error;
    memset(header, 0, sizeof *header);
    if (!check_values(name, text, size, f)) {
        return false;
    }
    header->json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!header->json) {
        return fail_with(f, "%s: its header is no valid JSON: %s", name, error.text);
    }
    if (!parse_entries(name, data_size, header, f)) {
        safetensors_header_free(header);
        return false;
    }
    return true;
}

void safetensors_header_free(safetensors_header *header) {
    json_decref(header->json);
    free(header->infos);
    memset(header, 0, sizeof *header);
}
