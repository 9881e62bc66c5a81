// Gradients divided by the loss scale, in place, and a flag set if any of them was infinite or NaN.
//
// A work-group owns EACH neighbouring elements; its work-items take vectors lid, lid + WG, ... of them, then what is
// left one by one. Work-items that write the flag all write 1.
// Defines: VW; WG 1..1024; EACH a multiple of VW; TYPE_X. No local memory.
#include "types.h"

#if !defined(WG) || !defined(EACH) || !defined(TYPE_X)
#error "WG, EACH, TYPE_X: see the head of scaler.cl"
#endif

#define GREATEST 0x7f7fffff // finite float32 without its sign, as an integer

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scaler_unscale(__global STORAGE(TYPE_X) *x, const long x_offset, const long count, const float inverse,
               __global int *found) {
    const long first = (long)get_group_id(0) * EACH, here = min((long)EACH, count - first), whole = here / VW * VW;
    const int lid = get_local_id(0);
    VU most = (VU)(0);
    uint rest = 0;
    x += x_offset + first;
    for (long i = (long)lid * VW; i < whole; i += WG * VW) {
        const V g = VLOAD(TYPE_X, x, i);
        most = max(most, AS_VU(g) & 0x7fffffffu);
        VSTORE(TYPE_X, x, i, g * inverse);
    }
    for (long i = whole + lid; i < here; i += WG) {
        const float g = LOAD(TYPE_X, x, i);
        rest = max(rest, as_uint(g) & 0x7fffffffu);
        STORE(TYPE_X, x, i, g * inverse);
    }
#if VW == 1
    rest = max(rest, most);
#else
    uint lane[VW];
    CAT(vstore, VW)(most, 0, lane);
    for (int l = 0; l < VW; l++) rest = max(rest, lane[l]);
#endif
    if (rest > GREATEST) found[0] = 1;
}
