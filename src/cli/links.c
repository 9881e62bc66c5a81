#include "cli/links.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "cli/shape.h"

enum { DEFAULT_WINDOW = 64, UNLIMITED = -1 };

/* ---- from a file ---- */

static bool check_pairs(const char *path, const npy_array *a, failure *f) {
    if (a->rank != 2 || a->shape[1] != 2) {
        return fail_with(f, "%s: the links have shape %s, but must have [m, 2]", path,
                         shape_print(a->rank, NPY_MAX_RANK, a->shape).text);
    }
    return a->integers || fail_with(f, "%s: the links hold floats, but must hold int32 or int64", path);
}

static bool sort_pairs(const char *path, const npy_array *a, int64_t length, clattn_links *links, failure *f) {
    int64_t bad = -1;
    clattn_status status = clattn_links_from_pairs(a->integers, a->shape[0], length, &bad, links);
    if (status != CLATTN_SUCCESS && bad >= 0) {
        return fail_with(f, "%s: link [%" PRId64 "] is (%" PRId64 ", %" PRId64 "), but the input's length is %" PRId64,
                         path, bad, a->integers[2 * bad], a->integers[2 * bad + 1], length);
    }
    return status == CLATTN_SUCCESS || fail_with(f, "%s: %s", path, clattn_status_message(status));
}

bool links_read(const char *path, int64_t length, clattn_links *links, failure *f) {
    npy_array a;
    bool done = npy_read(path, &a, f) && check_pairs(path, &a, f) && sort_pairs(path, &a, length, links, f);
    npy_free(&a);
    return done;
}

/* ---- drawn ---- */

/* The layer has checked the texts. */
static int64_t window(const settings *s, const char *name) {
    for (size_t i = 0; i < s->count; ++i) {
        if (strcmp(s->items[i].name, name) == 0) {
            const char *value = s->items[i].value;
            return strcmp(value, "none") == 0 ? UNLIMITED : strtoll(value, NULL, 10);
        }
    }
    return DEFAULT_WINDOW;
}

bool links_draw(const settings *s, int64_t length, double probability, int64_t seed, clattn_links *links, failure *f) {
    clattn_status status = clattn_links_draw(length, window(s, "window-left"), window(s, "window-right"), probability,
                                             (uint64_t)seed, links);
    return status == CLATTN_SUCCESS || fail_with(f, "no links were drawn: %s", clattn_status_message(status));
}
