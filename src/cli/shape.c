#include "cli/shape.h"

#include <inttypes.h>
#include <stdio.h>

shape_text shape_print(int rank, int known, const int64_t *shape) {
    shape_text s;
    size_t used = (size_t)snprintf(s.text, sizeof s.text, "[");
    for (int i = 0; i < rank && i < known && used < sizeof s.text; ++i) {
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    }
    if (used < sizeof s.text) {
        snprintf(s.text + used, sizeof s.text - used, "%s", rank > known ? ", ...]" : "]");
    }
    return s;
}

bool shape_equal(int rank, const int64_t *a, const int64_t *b) {
    for (int i = 0; i < rank; ++i) {
        if (a[i] != b[i]) {
            return false;
        }
    }
    return true;
}
