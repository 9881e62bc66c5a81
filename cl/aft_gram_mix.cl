// aft by G (aft_gram.cl), backwards: the weight of dx = [dq | x | 1] [Wq ; M], a sequence's own, in its engine's form.
//
// M = H + H^T, H [d + 1, d + 1] = wk^T (p R) wv with the biases as last columns (gated-matrix: R a matrix of each head); row d of M, whose column d is left out, is
// what the biases add. A work-item owns PW columns of one sequence. wq: as a linear layer keeps it.
//
// Local memory: none. Defines: those of tile.h, whose PW is the linear layers'; KEPT 0|1.
#include "tile.h"

#if !defined(KEPT)
#error "KEPT: see aft_gram_mix.cl"
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
aft_gram_mix(__global const float *wq, const long wq_offset, __global const float *h, const long h_offset,
             __global float *to, const long to_offset, const long to_batch, const long d) {
    const long first = get_global_id(0) * PW, b = get_group_id(2), size = d + 1, depth = d + size;
    const int count = min((long)PW, d - first);
    wq += wq_offset;
    h += h_offset + b * size * size;
    to += to_offset + b * to_batch;
    for (long k = 0; k < depth; k++) {
        const long r = k - d;
        for (int j = 0; j < (KEPT ? count : PW); j++) {
            const long c = first + j;
            float value = 0.0f;
            if (j < count) value = r < 0 ? wq[weight_at(c, k, d)] : h[r * size + c] + h[c * size + r];
            to[weight_at(k, c, depth)] = value;
        }
    }
    for (int j = 0; j < PW; j++)
        to[(KEPT ? d : CEIL_DIV(d, PW) * PW) * depth + first + j] = 0.0f;
}
