// Fill memory with one value: a work-item owns EACH neighbouring elements.
//
// Defines: those of types.h; EACH >= 1; TYPE_Y.
#include "types.h"

#if !defined(EACH) || !defined(TYPE_Y)
#error "EACH, TYPE_Y: see the head of fill.cl"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
fill_constant(__global STORAGE(TYPE_Y) *y, const long y_offset, const long count, const float value) {
    const long first = get_global_id(0) * EACH, last = min(first + EACH, count);
    for (long i = first; i < last; i++)
        STORE(TYPE_Y, y, y_offset + i, value);
}
