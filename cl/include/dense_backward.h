// What the kernels of dense attention's backward pass share.
#ifndef CLATTN_DENSE_BACKWARD_H
#define CLATTN_DENSE_BACKWARD_H

#include "attention_backward.h"

#define MASK_PARAMETERS                                                                                                \
    __global const float *terms_, const long terms_offset, __global const float *bias, const long bias_offset,         \
        __global const int *key_lengths, const long key_lengths_offset, __global const int *query_lengths,             \
        const long query_lengths_offset, const int queries, const int keys, const int heads_per_kv, const float scale, \
        const int left, const int right, const int bottom_right, const long bias_batch, const long bias_head,          \
        const long bias_row, const long bias_key
#define SEQUENCE                                                                                                       \
    sequence_of(b, queries, keys, query_lengths, query_lengths_offset, key_lengths, key_lengths_offset, bottom_right)

#endif
