// aft, backwards: gradients of what stands beside the keys. See include/aft_backward.h, include/aft_backward_bias.h.
//
//   dw_ij = sum over sequences and channels of A_ij P_i (V_j - O_i)
//
//   aft_backward_table    row i, TB columns: dw of [rows, rows]; 0 where no average ever looks
//   aft_backward_factor   row: OWN 0: du_i = sum_j dw_ij f_j; 1: df_j = sum_i dw_ij u_i, TB pairs at a time, so dw is
//                         never in memory. sums: the row's own [rank], in floats
//   aft_backward_taps     tap of a head, block: parts[b][block][head][tap] = sum of dw_ij over the block's i, j = i + tap - reach
//   aft_backward_conv     head: gradients of its taps from the parts; REPARAM 1: through f = gamma (t - mean) / s + beta,
//                         s = sqrt(var + 1e-5)
//
// What padding holds is never read. Strips here are single vectors, NV 1.
// Local memory: none; 2 TB vectors of private memory.
// Defines: see include/aft.h; SHARED_KEY, OWN, REPARAM 0|1; TYPE_G 0|1|2 type of the gradients.
#include "aft_backward_bias.h"

#if !defined(SHARED_KEY) || !defined(OWN) || !defined(REPARAM) || !defined(TYPE_G) || NV != 1
#error "SHARED_KEY, OWN, REPARAM, TYPE_G: see aft_backward_bias.cl; NV is 1"
#endif

#define CORE_PARAMETERS                                                                                                \
    __global const STORAGE(TYPE_X) * k, const long k_offset, const long k_batch, const long k_row, const long k_group, \
        __global const STORAGE(TYPE_X) * x, const long x_offset, const long x_batch, const long x_row,                 \
        const long x_group, QUERIES_PARAMETERS, BIAS_PARAMETERS, __global const int *lengths,                          \
        const long lengths_offset, const long n, const int width, const int strips, const int strip_count,             \
        const int batch

inline V key_of(__global const STORAGE(TYPE_X) * k, const long i, const int lanes) {
#if SHARED_KEY
    return (V)(LOAD(TYPE_X, k, i));
#else
    return load_lanes(k, i, lanes);
#endif
}

inline V share_of(const trace q, const V key, const V value, const float w) {
    return weight_of((key - q.k) + (w - q.c)) * (q.p * (value - q.o));
}

#define EACH_STRIP for (int id = 0; id < strip_count; id++)
#define STRIP_OF                                                                                                       \
    const int group = id / strips, c = (id - group * strips) * VW, lanes = min(width - c, VW);                         \
    const long ki = k_offset + b * k_batch + group * k_group + (SHARED_KEY ? 0 : c);                                   \
    const long xi = x_offset + b * x_batch + group * x_group + c;                                                      \
    const queries q = QUERIES(b, group, c)

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_table(CORE_PARAMETERS, __global STORAGE(TYPE_G) * to, const long to_offset, const long to_row,
                   const long rows, const int add) {
    const long begin = (long)get_global_id(0) * TB, i = get_group_id(1);
    if (begin >= rows) return;
    const bias w = BIAS(0);
    const long first = max(begin, i - w.reach), last = min(min(begin + TB, n), i + w.ahead + 1);
    V sum[TB];
    for (int r = 0; r < TB; r++) sum[r] = (V)(0.0f);
    if (i < n && first < last) {
        float near[TB];
        bias_row(near, w, i, begin, last);
        for (int b = 0; b < batch; b++) {
            const long seen = tokens_of(lengths, lengths_offset, b, n);
            if (i >= seen) continue;
            EACH_STRIP {
                STRIP_OF;
                const trace own = trace_of(q, 0, lanes, i);
                for (long j = first; j < min(last, seen); j++)
                    sum[j - begin] += share_of(own, key_of(k, ki + j * k_row, lanes),
                                               load_lanes(x, xi + j * x_row, lanes), near[j - begin]);
            }
        }
    }
    for (long j = begin; j < min(begin + TB, rows); j++) {
        const long at = to_offset + i * to_row + j;
        const float all = sum_of(sum[j - begin]);
        STORE(TYPE_G, to, at, add ? all + LOAD(TYPE_G, to, at) : all);
    }
}

// g: rows of u (OWN 1) or f (OWN 0).
__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_factor(CORE_PARAMETERS, __global const float *g, const long g_offset, const long g_row,
                    __global float *sums, const long sums_offset, const long g_rank,
                    __global STORAGE(TYPE_G) * to, const long to_offset, const long to_row, const long rows,
                    const int add) {
    const long own = get_global_id(0);
    if (own >= rows) return;
    __global float *total = sums + sums_offset + own * g_rank;
    for (long e = 0; e < g_rank; e++) total[e] = 0.0f;
    const bias w = BIAS(0);
    const long first = max(own - (OWN ? w.ahead : w.reach), 0L);
    const long last = own < n ? min(own + (OWN ? w.reach : w.ahead) + 1, n) : first;
    for (long begin = first / TB * TB; begin < last; begin += TB) {
        const long low = max(begin, first), high = min(begin + TB, last);
        float near[TB], all[TB];
        V sum[TB];
        for (int r = 0; r < TB; r++) sum[r] = (V)(0.0f);
#if OWN
        for (long i = low; i < high; i++) near[i - begin] = bias_of(w, i, own);
#else
        bias_row(near, w, own, begin, high);
#endif
        for (int b = 0; b < batch; b++) {
            const long seen = tokens_of(lengths, lengths_offset, b, n);
            if (own >= seen) continue;
            EACH_STRIP {
                STRIP_OF;
#if OWN
                const V key = key_of(k, ki + own * k_row, lanes), value = load_lanes(x, xi + own * x_row, lanes);
                for (long i = low; i < min(high, seen); i++)
                    sum[i - begin] += share_of(trace_of(q, 0, lanes, i), key, value, near[i - begin]);
#else
                const trace mine = trace_of(q, 0, lanes, own);
                for (long j = low; j < min(high, seen); j++)
                    sum[j - begin] += share_of(mine, key_of(k, ki + j * k_row, lanes),
                                               load_lanes(x, xi + j * x_row, lanes), near[j - begin]);
#endif
            }
        }
        for (long o = low; o < high; o++) all[o - begin] = sum_of(sum[o - begin]);
        for (long e = 0; e < g_rank; e++) {
            float part = 0.0f;
            for (long o = low; o < high; o++)
                part = fma(all[o - begin], g[g_offset + o * g_row + e], part);
            total[e] += part;
        }
    }
    for (long e = 0; e < g_rank; e++) {
        const long at = to_offset + own * to_row + e;
        STORE(TYPE_G, to, at, add ? total[e] + LOAD(TYPE_G, to, at) : total[e]);
    }
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_taps(CORE_PARAMETERS, __global float *parts, const long parts_offset, const int heads) {
    const int taps = (int)(2 * reach + 1), item = get_global_id(0), head = item / taps, tap = item - head * taps;
    if (head >= heads) return;
    const long block = get_group_id(1), b = get_group_id(2), shift = tap - reach;
    const long seen = tokens_of(lengths, lengths_offset, b, n);
    const long first = max(block * TB, -shift), last = min(min((block + 1) * TB, seen), seen - shift);
    const float w = w_base[w_offset + head * w_group + tap];
    V sum = (V)(0.0f);
    if (shift <= ahead) {
        for (int id = head * strips; id < (head + 1) * strips; id++) {
            STRIP_OF;
            for (long i = first; i < last; i++)
                sum += share_of(trace_of(q, 0, lanes, i), key_of(k, ki + (i + shift) * k_row, lanes),
                                load_lanes(x, xi + (i + shift) * x_row, lanes), w);
        }
    }
    parts[parts_offset + (b * get_num_groups(1) + block) * heads * taps + item] = sum_of(sum);
}

inline void put(__global STORAGE(TYPE_G) * to, const long at, const float x, const int add) {
    STORE(TYPE_G, to, at, add ? x + LOAD(TYPE_G, to, at) : x);
}

__attribute__((reqd_work_group_size(WG, 1, 1))) __kernel void
aft_backward_conv(__global float *parts, const long parts_offset, const long count, const int heads, const int taps,
                  __global const float *raw, const long raw_offset, __global const float *gamma,
                  const long gamma_offset, __global STORAGE(TYPE_G) * to, const long to_offset, const long to_row,
                  __global STORAGE(TYPE_G) * dgamma, const long dgamma_offset, __global STORAGE(TYPE_G) * dbeta,
                  const long dbeta_offset, const int add) {
    const int h = get_global_id(0);
    if (h >= heads) return;
    __global float *df = parts + parts_offset + (long)h * taps;
    for (int t = 0; t < taps; t++) {
        float sum = 0.0f;
        for (long part = 0; part < count; part++) sum += df[part * heads * taps + t];
        df[t] = sum;
    }
#if REPARAM
    __global const float *f = raw + raw_offset + (long)h * taps;
    float mean = 0.0f, variance = 0.0f, sum = 0.0f, dot = 0.0f;
    for (int t = 0; t < taps; t++) mean += f[t];
    mean /= (float)taps;
    for (int t = 0; t < taps; t++) variance = fma(f[t] - mean, f[t] - mean, variance);
    const float scale = 1.0f / sqrt(variance / (float)taps + 1e-5f), g = gamma[gamma_offset + h];
    for (int t = 0; t < taps; t++) {
        sum += df[t];
        dot = fma(df[t], (f[t] - mean) * scale, dot);
    }
    put(dgamma, dgamma_offset + h, dot, add);
    put(dbeta, dbeta_offset + h, sum, add);
    for (int t = 0; t < taps; t++)
        df[t] = g * scale * (df[t] - (sum + (f[t] - mean) * scale * dot) / (float)taps);
#endif
    for (int t = 0; t < taps; t++) put(to, to_offset + h * to_row + t, df[t], add);
}
