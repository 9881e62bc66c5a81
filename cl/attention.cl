// What every backward pass of softmax attention needs of its queries.
//
//   attention_terms  L, the log-sum-exp in units of log2, +inf where it is -inf, and delta = dO . O, of each query: a work-item owns PW queries
//                    of one head. Padding queries have L = +inf and delta = 0, whatever dO holds there
//
// terms [B, H, 2, M rounded up to PW]: a head's L, then its delta. Defines: those of tile.h; DV, TYPE_Q.
#include "port.h"
#include "tile.h"

#if !defined(DV) || !defined(TYPE_Q)
#error "DV, TYPE_Q: see the head of attention.cl"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attention_terms(__global const STORAGE(TYPE_Q) *o, const long o_offset, __global const STORAGE(TYPE_Q) *grad_o,
                const long grad_o_offset, __global const float *saved, const long saved_offset, __global float *terms,
                const long terms_offset, __global const int *lengths, const long lengths_offset, const int queries,
                const long o_batch, const long o_head, const long o_row, const long grad_batch, const long grad_head,
                const long grad_row) {
    const long first = get_group_id(0) * PW, h = get_group_id(1), b = get_group_id(2), padded = ROUND_UP((long)queries, PW);
    const int length = lengths ? clamp(lengths[lengths_offset + b], 0, queries) : queries;
    o += o_offset + b * o_batch + h * o_head;
    grad_o += grad_o_offset + b * grad_batch + h * grad_head;
    saved += saved_offset + (b * get_num_groups(1) + h) * queries;
    terms += terms_offset + (b * get_num_groups(1) + h) * 2 * padded;
    for (long i = first; i < first + PW; i++) {
        float l = INFINITY, delta = 0.0f;
        if (i < length) {
            l = saved[i] == -INFINITY ? INFINITY : saved[i];
            for (int c = 0; c < DV; c++)
                delta = fma(LOAD(TYPE_Q, o, i * o_row + c), LOAD(TYPE_Q, grad_o, i * grad_row + c), delta);
        }
        terms[i] = l;
        terms[padded + i] = delta;
    }
}
