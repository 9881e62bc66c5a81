// aft by G = sum_j x_j x_j^T (aft_gram.cl): what is done channel by channel, forward and backward. size = d + 1.
//
//   aft_form             strip: sums[b][slot] = keys_c . products_c = sum_j K_jc V_jc; products = G W_v^T
//   aft_gram_scale       block of rows, strip: to = keys, each channel times p R; parts[b][slot] = R times aft_form's sum
//   aft_gram_weight      block of rows, strip: row k of products, summed over sequences, is column k of a weight's gradient;
//                        row d that of its bias. SCALE 1: each times p R
//   aft_gram_beside      block of tokens, strip: x, then 1, as float32 with a row of their own; 0 at padding
//
// p: the head's weight; R: aft_backward_later's sum. keys [size, d]: wk_c and its bias as a column; products and to [b, size, d].
// Padding is never read. Local memory: none. Defines: see include/aft.h; POSITION, SCALE 0|1, TYPE_G 0|1|2 type of gradients.
#include "aft_backward.h"

#if !defined(POSITION) || !defined(SCALE) || !defined(TYPE_G)
#error "POSITION, SCALE, TYPE_G: see aft_gram_channels.cl"
#endif

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_form(__global const float *keys, const long keys_offset, __global const float *products,
         const long products_offset, __global float *sums, const long sums_offset, const long sums_batch, const int d,
         const int strips) {
    if (get_global_id(0) >= strips) return;
    const strip s = strip_here(d, strips);
    const long b = get_group_id(2), size = d + 1;
    const long ki = keys_offset + s.c, pi = products_offset + b * size * d + s.c;
    V sum[NV];
    EACH_VECTOR sum[v] = (V)(0.0f);
    for (long k = 0; k < size; k++) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            sum[v] = fma(load_float(keys, ki + k * d + v * VW, lanes), load_float(products, pi + k * d + v * VW, lanes),
                         sum[v]);
        }
    }
    EACH_VECTOR RAW_STORE(sum[v], sums + sums_offset + b * sums_batch + s.slot + v * VW);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_gram_scale(__global const float *keys, const long keys_offset, __global const float *later,
               const long later_offset, const long later_batch, __global const float *sums, const long sums_offset,
               __global float *to, const long to_offset, __global float *parts, const long parts_offset,
               __global const float *position, const long position_offset, const int d, const int strips,
               const int head_size, const long pitch) {
    if (get_global_id(0) >= strips) return;
    const strip s = strip_here(d, strips);
    const long block = get_group_id(1), b = get_group_id(2), size = d + 1, end = min((block + 1) * TB, size);
    V scale[NV];
    EACH_VECTOR {
        const V run = RAW_LOAD(later + later_offset + b * later_batch + s.slot + v * VW);
        const long at = b * pitch + s.slot + v * VW;
        scale[v] = run * position_of(position, position_offset, s, v, head_size);
        if (block == 0) RAW_STORE(run * RAW_LOAD(sums + sums_offset + at), parts + parts_offset + at);
    }
    for (long k = block * TB; k < end; k++) {
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            store_float(to, to_offset + (b * size + k) * d + s.c + v * VW, lanes,
                        scale[v] * load_float(keys, keys_offset + k * d + s.c + v * VW, lanes));
        }
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_gram_weight(__global const float *products, const long products_offset, __global const float *later,
                const long later_offset, const long later_batch, __global STORAGE(TYPE_G) * dw, const long dw_offset,
                __global STORAGE(TYPE_G) * db, const long db_offset, __global const float *position,
                const long position_offset, const int d, const int strips, const int head_size, const long batch,
                const int add) {
    if (get_global_id(0) >= strips) return;
    const strip s = strip_here(d, strips);
    const long block = get_group_id(1), size = d + 1, end = min((block + 1) * TB, size);
    V scale[NV];
    EACH_VECTOR scale[v] = SCALE ? position_of(position, position_offset, s, v, head_size) : (V)(1.0f);
    for (long k = block * TB; k < end; k++) {
        float row[STRIP];
        EACH_VECTOR {
            V sum = (V)(0.0f);
            for (long b = 0; b < batch; b++) {
                const V own =
                    load_float(products, products_offset + (b * size + k) * d + s.c + v * VW, strip_lanes(s, v));
#if SCALE
                sum += RAW_LOAD(later + later_offset + b * later_batch + s.slot + v * VW) * own;
#else
                sum += own;
#endif
            }
            RAW_STORE(sum * scale[v], row + v * VW);
        }
        for (int l = 0; l < min(STRIP, d - s.c); l++) {
            const long c = s.c + l;
            if (k < d)
                STORE(TYPE_G, dw, dw_offset + c * d + k, row[l] + (add ? LOAD(TYPE_G, dw, dw_offset + c * d + k) : 0.0f));
            else
                STORE(TYPE_G, db, db_offset + c, row[l] + (add ? LOAD(TYPE_G, db, db_offset + c) : 0.0f));
        }
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_gram_beside(__global const STORAGE(TYPE_X) * x, const long x_offset, __global float *to, const long to_offset,
                const long to_row, __global const int *lengths, const long lengths_offset, const long n, const int d,
                const int strips) {
    if (get_global_id(0) >= strips) return;
    const strip s = strip_here(d, strips);
    const long block = get_group_id(1), b = get_group_id(2);
    const long end = min((block + 1) * TB, n), seen = tokens_of(lengths, lengths_offset, b, n);
    for (long i = block * TB; i < end; i++) {
        const long at = to_offset + (b * n + i) * to_row;
        EACH_VECTOR {
            const int lanes = strip_lanes(s, v);
            V token = (V)(0.0f);
            if (i < seen) token = load_lanes(x, x_offset + (b * n + i) * d + s.c + v * VW, lanes);
            store_float(to, at + s.c + v * VW, lanes, token);
        }
        if (s.c == 0) to[at + d] = i < seen ? 1.0f : 0.0f;
    }
}
