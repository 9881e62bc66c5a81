// The causal scan of additive attention, backwards.
//
// Forward left steps (a, keep) of each token: o_j = a_j v_j + keep_j o_{j-1}, a_j its own weight in its own softmax, and
// a_j + keep_j = 1. With g_j the gradient of o_j, delta_j = g_j . o_j, and from the last token to the first
//
//     R_j = g_j + keep_{j+1} R_{j+1}         gradient of v_j = a_j R_j
//     T_j = delta_j + keep_{j+1} T_{j+1}     slope_j = a_j (v_j . R_j - T_j), the gradient of its score
//
// no factor exceeds 1, and none is taken from scores again.
//
// cas_backward_block  group (part, h, b) owns BT tokens: keep R and keep T of the first, as if none stood behind the
//                     last; the product of keep; deltas.
// cas_backward_carry  group (chunk, h, b): turns the parts of one head into what reaches each of them from behind.
// cas_backward_scan   group (part, h, b): gradients of BT tokens; zeros at padding.
//
// Tensors are at b*batch_stride + h*head_stride + i*row_stride + channel; padding is not read. Slopes: cas_backward.cl.
// Shared memory: cas_backward_block and cas_backward_scan WG * BT floats, cas_backward_carry none.
// Defines: WG, VW, D (channels, a multiple of VW), BT >= 1, HALO >= 0, TYPE_V (of v), TYPE_O (o), TYPE_G (gradient of o),
// TYPE_D (gradient of v) 0|1|2.
#include "cas.h"

#if !defined(D) || !defined(BT) || !defined(HALO)
#error "D, BT, HALO: see cas_backward_scan.cl"
#endif
#if !defined(TYPE_V) || !defined(TYPE_O) || !defined(TYPE_G) || !defined(TYPE_D)
#error "TYPE_V, TYPE_O, TYPE_G, TYPE_D: see cas_backward_scan.cl"
#endif

inline long head_row(void) { return get_group_id(2) * get_num_groups(1) + get_group_id(1); }

inline void clear_parts(SHARED float *part, const int lid) {
    for (int j = 0; j < BT; j++)
        part[lid * BT + j] = 0.0f;
}

// part[j] = the sum of all work-items' parts.
inline void join_parts(SHARED float *part, const int count, const int lid) {
    SYNC;
    for (int j = lid; j < count; j += WG) {
        float sum = 0.0f;
        for (int item = 0; item < WG; item++)
            sum += part[item * BT + j];
        part[j] = sum;
    }
    SYNC;
}

// steps [B, H, n, 2] -> sums [B, H, parts, D], tails [B, H, parts, 2] = (keep T, product of keep), deltas [B, H, n].
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_block(__global const STORAGE(TYPE_G) * g, const long g_at, __global const STORAGE(TYPE_O) * o,
                   const long o_at, __global const float *steps, const long steps_at, __global const int *lengths,
                   const long lengths_at, __global float *sums, const long sums_at, __global float *tails,
                   const long tails_at, __global float *deltas, const long deltas_at, const long n,
                   const long g_batch_stride, const long g_head_stride, const long g_row_stride,
                   const long o_batch_stride, const long o_head_stride, const long o_row_stride) {
    SHARED float part[WG * BT];
    const int lid = get_local_id(0);
    const long b = get_group_id(2), h = get_group_id(1), j0 = (long)get_group_id(0) * BT;
    const int count = (int)clamp(length_of(lengths, lengths_at, b, n) - j0, 0L, (long)BT);
    const long g0 = g_at + b * g_batch_stride + h * g_head_stride + j0 * g_row_stride;
    const long o0 = o_at + b * o_batch_stride + h * o_head_stride + j0 * o_row_stride;
    const long place = head_row() * get_num_groups(0) + get_group_id(0);
    steps += steps_at + (head_row() * n + j0) * 2;
    deltas += deltas_at + head_row() * n + j0;

    clear_parts(part, lid);
    for (int ch = lid * VW; ch < D; ch += WG * VW) {
        V acc = (V)(0.0f);
        for (int j = count - 1; j >= 0; j--) {
            const V gj = VLOAD(TYPE_G, g, g0 + j * g_row_stride + ch);
            part[lid * BT + j] += vsum(gj * VLOAD(TYPE_O, o, o0 + j * o_row_stride + ch));
            acc = (acc + gj) * steps[2 * j + 1];
        }
        RAW_STORE(acc, sums + sums_at + place * D + ch);
    }
    join_parts(part, count, lid);
    for (int j = lid; j < count; j += WG)
        deltas[j] = part[j];
    if (lid == 0) {
        float tail = 0.0f, product = 1.0f;
        for (int j = count - 1; j >= 0; j--) {
            tail = (tail + part[j]) * steps[2 * j + 1];
            product *= steps[2 * j + 1];
        }
        tails[tails_at + place * 2] = tail;
        tails[tails_at + place * 2 + 1] = product;
    }
}

// In place on sums; enters [B, H, parts] is to the tails what the new sums are to the old.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_carry(__global float *sums, const long sums_at, __global const float *tails, const long tails_at,
                   __global float *enters, const long enters_at, const int parts) {
    const int lid = get_local_id(0);
    sums += sums_at + head_row() * parts * D;
    tails += tails_at + head_row() * parts * 2;
    enters += enters_at + head_row() * parts;
    for (int ch = ((int)get_group_id(0) * WG + lid) * VW; ch < D; ch += (int)get_num_groups(0) * WG * VW) {
        V acc = (V)(0.0f);
        float enter = 0.0f;
        for (int part = parts - 1; part >= 0; part--) {
            const V before = acc;
            if (ch == 0)
                enters[part] = enter;
            acc = fma((V)(tails[part * 2 + 1]), acc, RAW_LOAD(sums + (long)part * D + ch));
            enter = fma(tails[part * 2 + 1], enter, tails[part * 2]);
            RAW_STORE(before, sums + (long)part * D + ch);
        }
    }
}

// The slopes of a block from v . R in part, and zeros round them.
inline void write_slopes(__global float *slopes, SHARED const float *part, __global const float *steps,
                         __global const float *deltas, float enter, const int count, const int rows, const bool first,
                         const bool last) {
    for (int j = count - 1; j >= 0; j--) {
        const float t = deltas[j] + enter;
        slopes[j] = steps[2 * j] * (part[j] - t);
        enter = t * steps[2 * j + 1];
    }
    for (int j = count; j < rows; j++)
        slopes[j] = 0.0f;
    for (int i = 0; i < HALO; i++) {
        if (first)
            slopes[i - HALO] = 0.0f;
        if (last)
            slopes[rows + i] = 0.0f;
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_backward_scan(__global const STORAGE(TYPE_V) * v, const long v_at, __global const STORAGE(TYPE_G) * g,
                  const long g_at, __global const float *steps, const long steps_at, __global const float *deltas,
                  const long deltas_at, __global const int *lengths, const long lengths_at,
                  __global const float *sums, const long sums_at, __global const float *enters, const long enters_at,
                  __global STORAGE(TYPE_D) * dv, const long dv_at, __global float *slopes, const long slopes_at,
                  const long n, const long v_batch_stride, const long v_head_stride, const long v_row_stride,
                  const long g_batch_stride, const long g_head_stride, const long g_row_stride,
                  const long dv_batch_stride, const long dv_head_stride, const long dv_row_stride) {
    SHARED float part[WG * BT];
    const int lid = get_local_id(0);
    const long b = get_group_id(2), h = get_group_id(1), j0 = (long)get_group_id(0) * BT;
    const int count = (int)clamp(length_of(lengths, lengths_at, b, n) - j0, 0L, (long)BT);
    const int rows = (int)min((long)BT, n - j0);
    const long v0 = v_at + b * v_batch_stride + h * v_head_stride + j0 * v_row_stride;
    const long g0 = g_at + b * g_batch_stride + h * g_head_stride + j0 * g_row_stride;
    const long dv0 = dv_at + b * dv_batch_stride + h * dv_head_stride + j0 * dv_row_stride;
    const long place = head_row() * get_num_groups(0) + get_group_id(0);
    steps += steps_at + (head_row() * n + j0) * 2;

    clear_parts(part, lid);
    for (int ch = lid * VW; ch < D; ch += WG * VW) {
        V acc = RAW_LOAD(sums + sums_at + place * D + ch);
        for (int j = count - 1; j >= 0; j--) {
            const V r = acc + VLOAD(TYPE_G, g, g0 + j * g_row_stride + ch);
            part[lid * BT + j] += vsum(r * VLOAD(TYPE_V, v, v0 + j * v_row_stride + ch));
            VSTORE(TYPE_D, dv, dv0 + j * dv_row_stride + ch, r * steps[2 * j]);
            acc = r * steps[2 * j + 1];
        }
        for (int j = count; j < rows; j++)
            VSTORE(TYPE_D, dv, dv0 + j * dv_row_stride + ch, (V)(0.0f));
    }
    join_parts(part, count, lid);
    if (lid == 0)
        write_slopes(slopes + slopes_at + head_row() * (n + 2 * HALO) + HALO + j0, part, steps,
                     deltas + deltas_at + head_row() * n + j0, enters[enters_at + place], count, rows, j0 == 0,
                     j0 + rows == n);
}
