// Gradients of rows that a whole sequence shares: they are few, so matrices are read as they lie.
//
// cas_backward_sum    group (part, h, b) owns `span` tokens of y: the sum of their rows below the length, and past it.
// cas_backward_join   group (chunk, h, b): the sums of all parts; below the length, and of all tokens.
// cas_backward_apply  group (chunk, h, b): out[b, h] = the sum over r of in[b, h, r] w[h, r], rows of w: a product with
//                     w transposed. A work-item owns 4 vectors of it.
// cas_backward_outer  group (block, 0, 0) owns row_block rows of dw[r, c] = the sum over b of a[b, r] x[b, r / row_head, c],
//                     and of db[r] = the sum over b of s[b, r].
//
// Defines: WG, VW, D (channels of a row, a multiple of VW), BT >= 1 tokens at a time, TYPE_X (of y), TYPE_W (of dw, db)
// 0|1|2. No shared memory.
#include "cas.h"

#if !defined(D) || !defined(BT) || !defined(TYPE_X) || !defined(TYPE_W)
#error "D, BT, TYPE_X, TYPE_W: see cas_backward_rows.cl"
#endif

inline long head_row(void) { return get_group_id(2) * get_num_groups(1) + get_group_id(1); }

// sums[D] = the sum of rows begin..end of y, BT at a time: their channels stay in the nearest cache.
inline void sum_rows(__global float *sums, __global const STORAGE(TYPE_X) * y, const long y0, const long row_stride,
                     const long begin, const long end, const int lid) {
    for (int ch = lid * VW; ch < D; ch += WG * VW)
        RAW_STORE((V)(0.0f), sums + ch);
    for (long i0 = begin; i0 < end; i0 += BT)
        for (int ch = lid * VW; ch < D; ch += WG * VW) {
            V acc = RAW_LOAD(sums + ch);
            for (long i = i0; i < min(i0 + BT, end); i++)
                acc += VLOAD(TYPE_X, y, y0 + i * row_stride + ch);
            RAW_STORE(acc, sums + ch);
        }
}

// sums [B, H, parts, 2, D]. Without `padding` rows past the length are not read.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_sum(__global const STORAGE(TYPE_X) * y, const long y_at, __global const int *lengths,
                 const long lengths_at, __global float *sums, const long sums_at, const long n, const long span,
                 const long batch_stride, const long head_stride, const long row_stride, const int padding) {
    const int lid = get_local_id(0);
    const long b = get_group_id(2), begin = (long)get_group_id(0) * span, end = min(begin + span, n);
    const long cut = clamp(length_of(lengths, lengths_at, b, n), begin, end);
    const long y0 = y_at + b * batch_stride + (long)get_group_id(1) * head_stride;
    sums += sums_at + (head_row() * get_num_groups(0) + get_group_id(0)) * 2 * D;
    sum_rows(sums, y, y0, row_stride, begin, cut, lid);
    sum_rows(sums + D, y, y0, row_stride, cut, padding ? end : cut, lid);
}

// sums -> rows [2, B * H, D].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_join(__global const float *sums, const long sums_at, __global float *rows, const long rows_at,
                  const long parts) {
    const long all = get_num_groups(1) * get_num_groups(2);
    sums += sums_at + head_row() * parts * 2 * D;
    rows += rows_at + head_row() * D;
    for (int v = get_group_id(0) * WG + get_local_id(0); v < D / VW; v += get_num_groups(0) * WG) {
        V real = (V)(0.0f), rest = (V)(0.0f);
        for (long part = 0; part < parts; part++) {
            real += RAW_LOAD(sums + part * 2 * D + v * VW);
            rest += RAW_LOAD(sums + (part * 2 + 1) * D + v * VW);
        }
        RAW_STORE(real, rows + v * VW);
        RAW_STORE(real + rest, rows + all * D + v * VW);
    }
}

// w [H, rows, D]; in and out at b*batch + h*head.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_apply(__global const float *w, const long w_at, __global const float *in, const long in_at,
                   __global float *out, const long out_at, const long rows, const long in_batch, const long in_head,
                   const long out_batch, const long out_head, const float scale) {
    const long h = get_group_id(1), b = get_group_id(2);
    const int first = ((int)get_group_id(0) * 4 * WG + (int)get_local_id(0)) * VW;
    w += w_at + h * rows * D;
    in += in_at + b * in_batch + h * in_head;
    out += out_at + b * out_batch + h * out_head;
    V acc[4];
    int at[4]; // columns past the last are read, not written
    UNROLL for (int e = 0; e < 4; e++) {
        acc[e] = (V)(0.0f);
        at[e] = min(first + e * WG * VW, D - VW);
    }
    for (long r = 0; r < rows; r++) {
        const V a = (V)(in[r]);
        UNROLL for (int e = 0; e < 4; e++) { acc[e] = fma(a, RAW_LOAD(w + r * D + at[e]), acc[e]); }
    }
    UNROLL for (int e = 0; e < 4; e++) {
        if (first + e * WG * VW < D)
            RAW_STORE(acc[e] * scale, out + at[e]);
    }
}

// a, s [batch, out], x [batch, out / row_head, D] -> dw [out, D], db [out] or NULL; with `add` added to what is there.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_outer(__global const float *a, const long a_at, __global const float *x, const long x_at,
                   __global const float *s, const long s_at, __global STORAGE(TYPE_W) * dw, const long dw_at,
                   __global STORAGE(TYPE_W) * db, const long db_at, const long batch, const long out,
                   const long row_head, const int row_block, const int add) {
    const int lid = get_local_id(0);
    const long r0 = (long)get_group_id(0) * row_block, heads = out / row_head;
    a += a_at;
    for (long r = r0; r < min(r0 + row_block, out); r++) {
        for (int ch = lid * VW; ch < D; ch += WG * VW) {
            V acc = add ? VLOAD(TYPE_W, dw, dw_at + r * D + ch) : (V)(0.0f);
            for (long b = 0; b < batch; b++)
                acc = fma((V)(a[b * out + r]), RAW_LOAD(x + x_at + (b * heads + r / row_head) * D + ch), acc);
            VSTORE(TYPE_W, dw, dw_at + r * D + ch, acc);
        }
        if (db && lid == 0) {
            float sum = add ? LOAD(TYPE_W, db, db_at + r) : 0.0f;
            for (long b = 0; b < batch; b++)
                sum += s[s_at + b * out + r];
            STORE(TYPE_W, db, db_at + r, sum);
        }
    }
}
