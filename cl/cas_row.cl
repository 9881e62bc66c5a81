// From the parts of a softmax to one row a sequence.
//
// cas_merge   group (chunk, h, b): joins the parts of one head by log-sum-exp into row [D], scaled to a mean, and
//             leaves the state they join to. A sequence without tokens gives zeros. Shared memory: MAX_PARTS floats.
// cas_rows    group (block, section, 0): y[b, r] = act(sum_c w[r, c] in[b, r / row_head, c] + bias[r]) for row_block
//             output rows r and every b. Where `lengths` says that a sequence is empty, its row is 0.
//             Shared memory: WG floats.
//
// Defines: WG, VW, D (channels of a row, a multiple of VW), MAX_PARTS.
#include "cas.h"

#if !defined(D) || !defined(MAX_PARTS)
#error "D, MAX_PARTS: see cas_row.cl"
#endif

// sums [B, H, parts, D], peaks [B, H, parts, 2], parts <= MAX_PARTS -> mean [B, H, D], states [B, H, 2] or NULL.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_merge(__global const float *sums, const long sums_at, __global const float *peaks, const long peaks_at,
          __global float *mean, const long mean_at, __global float *states, const long states_at, const int parts) {
    SHARED float weight[MAX_PARTS];
    const int lid = get_local_id(0);
    const long row = get_group_id(2) * get_num_groups(1) + get_group_id(1);
    sums += sums_at + row * parts * D;
    peaks += peaks_at + row * parts * 2;
    mean += mean_at + row * D;

    float top = -INFINITY, total = 0.0f;
    for (int part = 0; part < parts; part++)
        top = fmax(top, peaks[part * 2]);
    for (int part = 0; part < parts; part++)
        total += peaks[part * 2 + 1] > 0.0f ? peaks[part * 2 + 1] * exp(peaks[part * 2] - top) : 0.0f;
    if (states && lid == 0 && get_group_id(0) == 0) {
        states[states_at + row * 2] = top;
        states[states_at + row * 2 + 1] = total;
    }
    for (int part = lid; part < parts; part += WG)
        weight[part] = peaks[part * 2 + 1] > 0.0f ? exp(peaks[part * 2] - top) / total : 0.0f;
    SYNC;
    // A part without tokens wrote no sums: it is passed over, not multiplied by 0.
    for (int v = get_group_id(0) * WG + lid; v < D / VW; v += get_num_groups(0) * WG) {
        V acc = (V)(0.0f);
        for (int part = 0; part < parts; part++)
            if (peaks[part * 2 + 1] > 0.0f)
                acc = fma((V)(weight[part]), RAW_LOAD(sums + (long)part * D + v * VW), acc);
        RAW_STORE(acc, mean + v * VW);
    }
}

// One dot product over D channels; every work-item of the group gets it.
inline float dot_rows(__global const float *a, __global const float *b, SHARED float *shares, const int lid) {
    V acc[2] = {(V)(0.0f), (V)(0.0f)};
    int v = lid;
    for (; v + WG < D / VW; v += 2 * WG) {
        acc[0] = fma(RAW_LOAD(a + v * VW), RAW_LOAD(b + v * VW), acc[0]);
        acc[1] = fma(RAW_LOAD(a + (v + WG) * VW), RAW_LOAD(b + (v + WG) * VW), acc[1]);
    }
    if (v < D / VW)
        acc[0] = fma(RAW_LOAD(a + v * VW), RAW_LOAD(b + v * VW), acc[0]);
#if WG == 1
    return vsum(acc[0] + acc[1]);
#else
    shares[lid] = vsum(acc[0] + acc[1]);
    for (int count = WG / 2; count > 0; count /= 2) {
        SYNC;
        if (lid < count)
            shares[lid] += shares[lid + count];
    }
    SYNC;
    const float sum = shares[0];
    SYNC;
    return sum;
#endif
}

// w [sections][out, D], in [sections][batch, out / row_head, D], y [sections][batch, out]; bias [out] or NULL.
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
cas_rows(__global const float *w, const long w_at, __global const float *bias, const long bias_at,
         __global const float *in, const long in_at, __global const int *lengths, const long lengths_at,
         __global float *y, const long y_at, const long batch, const long out, const long row_head,
         const int row_block, const int sigmoid) {
    SHARED float shares[WG];
    const int lid = get_local_id(0);
    const long section = get_group_id(1), r0 = (long)get_group_id(0) * row_block, heads = out / row_head;
    w += w_at + section * out * D;
    in += in_at + section * batch * heads * D;
    y += y_at + section * batch * out;
    for (long r = r0; r < min(r0 + row_block, out); r++)
        for (long b = 0; b < batch; b++) {
            float s = dot_rows(w + r * D, in + (b * heads + r / row_head) * D, shares, lid);
            if (bias)
                s += bias[bias_at + r];
            if (sigmoid)
                s = 1.0f / (1.0f + exp(-s));
            if (length_of(lengths, lengths_at, b, 1) == 0)
                s = 0.0f;
            if (lid == 0)
                y[b * out + r] = s;
        }
}
