#include "cli/links.h"

#include <inttypes.h>

#include "cli/shape.h"

static bool check_links(const char *path, const npy_array *a, int64_t length, failure *f) {
    if (a->rank != 2 || a->shape[1] != 2) {
        return fail_with(f, "%s: the links have shape %s, but must have [m, 2]", path,
                         shape_print(a->rank, NPY_MAX_RANK, a->shape).text);
    }
    if (!a->integers) {
        return fail_with(f, "%s: the links hold floats, but must hold int32 or int64", path);
    }
    for (int64_t i = 0; i < a->count; ++i) {
        if (a->integers[i] < 0 || a->integers[i] >= length) {
            return fail_with(f, "%s: link [%" PRId64 ", %d] is %" PRId64 ", but the input's length wants 0..%" PRId64,
                             path, i / 2, (int)(i % 2), a->integers[i], length - 1);
        }
    }
    return true;
}

bool read_links(const char *path, int64_t length, npy_array *pairs, failure *f) {
    return npy_read(path, pairs, f) && check_links(path, pairs, length, f);
}
