// Additive attention over given scores [B, H, n] and values v: sums of parts, and the causal scan.
//
// cas_block  group (part, h, b) owns `span` tokens: largest score, sum of weights, weighted sum of v.
// cas_carry  group (chunk, h, b): turns the parts of one head into the state before each of them.
// cas_scan   group (part, h, b) owns BT tokens: output rows, starting from the state before them.
//
// A state is (largest score, sum of weights, weighted sum of v); a new largest score rescales the other two, so
// no weight exceeds 1. Tokens at padding are never read; cas_scan writes zeros there.
// v and o are at b*batch_stride + h*head_stride + i*row_stride + channel; o may be v itself.
// Shared memory: cas_block BT floats, cas_scan 3 * BT floats, cas_carry none.
// Defines: WG, VW, D (channels of v and o, a multiple of VW), TYPE_V, TYPE_O 0|1|2, BT >= 1.
#include "cas.h"

#if !defined(D) || !defined(TYPE_V) || !defined(TYPE_O) || !defined(BT)
#error "D, TYPE_V, TYPE_O, BT: see cas_scan.cl"
#endif

inline long head_row(void) { return get_group_id(2) * get_num_groups(1) + get_group_id(1); }

// sums [B, H, parts, D], peaks [B, H, parts, 2]. A part without tokens leaves (-inf, 0) and its sums unwritten.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_block(__global const float *scores, const long scores_at, __global const STORAGE(TYPE_V) * v, const long v_at,
          __global const int *lengths, const long lengths_at, __global float *sums, const long sums_at,
          __global float *peaks, const long peaks_at, const long n, const long span, const long batch_stride,
          const long head_stride, const long row_stride) {
    SHARED float p[BT];
    const int lid = get_local_id(0);
    const long b = get_group_id(2), begin = (long)get_group_id(0) * span;
    const long end = min(begin + span, length_of(lengths, lengths_at, b, n));
    const long v0 = v_at + b * batch_stride + (long)get_group_id(1) * head_stride;
    const long place = head_row() * get_num_groups(0) + get_group_id(0);
    scores += scores_at + head_row() * n;
    sums += sums_at + place * D;

    float top = -INFINITY, total = 0.0f;
    for (long j = begin; j < end; j++)
        top = fmax(top, scores[j]);
    for (long j0 = begin; j0 < end; j0 += BT) {
        const int count = (int)min((long)BT, end - j0);
        for (int j = lid; j < count; j += WG)
            p[j] = exp(scores[j0 + j] - top);
        SYNC;
        for (int j = 0; j < count; j++)
            total += p[j];
        for (int ch = lid * VW; ch < D; ch += WG * VW) {
            V acc = j0 == begin ? (V)(0.0f) : RAW_LOAD(sums + ch);
            for (int j = 0; j < count; j++)
                acc = fma((V)(p[j]), VLOAD(TYPE_V, v, v0 + (j0 + j) * row_stride + ch), acc);
            RAW_STORE(acc, sums + ch);
        }
        SYNC;
    }
    if (lid == 0) {
        peaks[peaks_at + place * 2] = top;
        peaks[peaks_at + place * 2 + 1] = total;
    }
}

// In place on sums; starts [B, H, parts, 2] is to peaks what the new sums are to the old.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_carry(__global float *sums, const long sums_at, __global const float *peaks, const long peaks_at,
          __global float *starts, const long starts_at, const int parts) {
    const int lid = get_local_id(0);
    sums += sums_at + head_row() * parts * D;
    peaks += peaks_at + head_row() * parts * 2;
    starts += starts_at + head_row() * parts * 2;
    for (int ch = ((int)get_group_id(0) * WG + lid) * VW; ch < D; ch += (int)get_num_groups(0) * WG * VW) {
        V acc = (V)(0.0f);
        float top = -INFINITY, total = 0.0f;
        for (int part = 0; part < parts; part++) {
            if (ch == 0) {
                starts[part * 2] = top;
                starts[part * 2 + 1] = total;
            }
            const V before = acc;
            const float peak = peaks[part * 2], weight = peaks[part * 2 + 1];
            if (weight > 0.0f) {
                const float now = fmax(top, peak), fade = exp(top - now), gain = exp(peak - now);
                acc = acc * fade + RAW_LOAD(sums + (long)part * D + ch) * gain;
                total = total * fade + weight * gain;
                top = now;
            }
            RAW_STORE(before, sums + (long)part * D + ch);
        }
    }
}

// fade, p, share: what token j does to the sums before it, its own weight, and 1 / (sum of weights). steps, unless
// NULL: o_j = step.x v_j + step.y o_{j-1}.
inline void walk(SHARED float *fade, SHARED float *p, SHARED float *share, __global const float *scores,
                 const int count, float top, float total, __global float *steps) {
    for (int j = 0; j < count; j++) {
        const float now = fmax(top, scores[j]);
        fade[j] = exp(top - now);
        p[j] = exp(scores[j] - now);
        const float before = total * fade[j];
        total = before + p[j];
        share[j] = 1.0f / total;
        if (steps) {
            steps[2 * j] = p[j] * share[j];
            steps[2 * j + 1] = before * share[j];
        }
        top = now;
    }
}

// sums and starts as cas_carry leaves them, for parts of BT tokens; steps [B, H, n, 2] or NULL.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_scan(__global const float *scores, const long scores_at, __global const STORAGE(TYPE_V) * v, const long v_at,
         __global const int *lengths, const long lengths_at, __global const float *sums, const long sums_at,
         __global const float *starts, const long starts_at, __global STORAGE(TYPE_O) * o, const long o_at,
         __global float *steps, const long steps_at, const long n, const long v_batch_stride, const long v_head_stride, const long v_row_stride,
         const long o_batch_stride, const long o_head_stride, const long o_row_stride) {
    SHARED float fade[BT], p[BT], share[BT];
    const int lid = get_local_id(0);
    const long b = get_group_id(2), h = get_group_id(1), j0 = (long)get_group_id(0) * BT;
    const int count = (int)clamp(length_of(lengths, lengths_at, b, n) - j0, 0L, (long)BT);
    const int rows = (int)min((long)BT, n - j0);
    const long v0 = v_at + b * v_batch_stride + h * v_head_stride + j0 * v_row_stride;
    const long o0 = o_at + b * o_batch_stride + h * o_head_stride + j0 * o_row_stride;
    const long place = head_row() * get_num_groups(0) + get_group_id(0);
    if (lid == 0)
        walk(fade, p, share, scores + scores_at + head_row() * n + j0, count, starts[starts_at + place * 2],
             starts[starts_at + place * 2 + 1], steps ? steps + steps_at + (head_row() * n + j0) * 2 : steps);
    SYNC;
    for (int ch = lid * VW; ch < D; ch += WG * VW) {
        V acc = RAW_LOAD(sums + sums_at + place * D + ch);
        for (int j = 0; j < count; j++) {
            acc = fma((V)(p[j]), VLOAD(TYPE_V, v, v0 + j * v_row_stride + ch), acc * fade[j]);
            VSTORE(TYPE_O, o, o0 + j * o_row_stride + ch, acc * share[j]);
        }
        for (int j = count; j < rows; j++)
            VSTORE(TYPE_O, o, o0 + j * o_row_stride + ch, (V)(0.0f));
    }
}
