// Top-k attention: each query keeps its k largest scores. A work-group owns BM queries of one head of one sequence,
// then, where lists are in global memory, those of the next block that is left.
//
//   scores of BM x BN, tile by tile  ->  a list a row (select.h)  ->  weights  ->  sum of k value rows
//
// Scores are q.k times a power of two, so that equal products stay equal; `unit` of them makes one of log2.
// A row is picked from by one work-item; its k value rows are summed by GV vectors of columns at a time.
// Defines: those of attention.h and select.h; NORMALISE_ALL 0|1 (weights sum to 1 over all visible keys, not over
// the kept); HAS_LISTS, HAS_LSE 0|1. Local memory (WG > 1): that of attention.h, and 2*BM*CAP + 2*BM floats.
#include "attention.h"
#include "select.h"

#if !defined(NORMALISE_ALL) || !defined(HAS_LISTS) || !defined(HAS_LSE)
#error "NORMALISE_ALL, HAS_LISTS, HAS_LSE: 0 or 1"
#endif

#define VALUE_VECTORS (DVP / VW)
#if WG == 1
#define GV (VALUE_VECTORS < 8 ? VALUE_VECTORS : 8) // in registers
#else
#define GV 1 // neighbouring work-items read neighbouring vectors
#endif
#define VALUE_CHUNKS CEIL_DIV(VALUE_VECTORS, GV)
#define SHARED_CAP (CAP ? CAP : 1)

// A block's lists.
typedef struct lists {
    LIST float *score;
    LIST int *key;
    SHARED int *count;
    SHARED float *floor;
    int k, capacity;
} lists;

inline list list_of(const lists all, const int row) {
    return (list){all.score + (long)row * all.capacity, all.key + (long)row * all.capacity, all.count[row], all.k,
                  all.capacity, all.floor[row]};
}

#if NORMALISE_ALL
// m and l of softmax over the block's columns from..to; a running pair.
inline void total_row(SHARED const float *s, const int from, const int to, const float unit, SHARED float *m,
                      SHARED float *l) {
    V most = (V)(-INFINITY), sum = (V)(0.0f);
    for (int j = from; j < to; j += VW)
        most = fmax(most, RAW_LOAD(s + j));
    const float now = fmax(*m, vmax(most)), base = now == -INFINITY ? 0.0f : now;
    for (int j = from; j < to; j += VW)
        sum += EXP2((RAW_LOAD(s + j) - base) * unit);
    *l = *l * EXP2((*m - base) * unit) + vsum(sum);
    *m = now;
}
#endif

// Keys first .. first+columns of each row into its list. Columns that a row does not see become -inf.
inline void take_block(SHARED float *s, const rows r, const lists all, const float unit, const int first,
                       const int columns, const int lid) {
    for (int i = lid; i < BM; i += WG) {
        const int lo = max(r.visible[i].x - first, 0), hi = min(r.visible[i].y - first, columns);
        const int from = lo / VW * VW, to = ROUND_UP(hi, VW);
        SHARED float *row = s + i * SLD;
        if (lo >= hi)
            continue;
        for (int j = from; j < lo; j++)
            row[j] = -INFINITY;
        for (int j = hi; j < to; j++)
            row[j] = -INFINITY;
        list l = list_of(all, i);
        list_take(&l, row, from, to, first);
        all.count[i] = l.count;
        all.floor[i] = l.floor;
#if NORMALISE_ALL
        total_row(row, from, to, unit, r.m + i, r.l + i);
#endif
    }
}

inline void cut_lists(const lists all, const int lid) {
    for (int i = lid; i < BM; i += WG) {
        list l = list_of(all, i);
        if (l.count > l.k)
            list_cut(&l, l.k);
        all.count[i] = l.count;
    }
}

#if HAS_LISTS
// The lists of a block's rows, each filled up to `slots`. Either may be missing.
inline void write_keys(const lists all, __global int *to, const long at, const long row_stride, const int slots,
                       const int count, const int lid) {
    for (int i = lid; i < count && to; i += WG) {
        const list l = list_of(all, i);
        for (int j = 0; j < slots; j++)
            to[at + i * row_stride + j] = j < l.count ? l.key[j] : -1;
    }
}

inline void write_scores(const lists all, const float unit, __global float *to, const long at, const long row_stride,
                         const int slots, const int count, const int lid) {
    for (int i = lid; i < count && to; i += WG) {
        const list l = list_of(all, i);
        for (int j = 0; j < slots; j++)
            to[at + i * row_stride + j] = j < l.count ? l.score[j] * (unit * LN2) : -INFINITY;
    }
}
#endif

// Scores become weights, not yet divided by r.l; r.m and r.l become those of the weights' softmax.
inline void weigh_lists(const rows r, const lists all, const float unit, const int lid) {
    for (int i = lid; i < BM; i += WG) {
        const list l = list_of(all, i);
        const int width = ROUND_UP(l.count, VW);
        for (int j = l.count; j < width; j++)
            l.score[j] = -INFINITY;
        V sum = (V)(0.0f);
#if !NORMALISE_ALL
        V most = (V)(-INFINITY);
        for (int j = 0; j < width; j += VW)
            most = fmax(most, RAW_LOAD(l.score + j));
        r.m[i] = vmax(most);
#endif
        const float m = r.m[i];
        for (int j = 0; j < width; j += VW) {
            const V weight = EXP2((RAW_LOAD(l.score + j) - m) * unit);
            sum += weight;
            RAW_STORE(weight, l.score + j);
        }
        if (!NORMALISE_ALL)
            r.l[i] = vsum(sum);
    }
}

// O rows = sum of weight times value row over the list, / l; zero where nothing was seen.
inline void sum_values(const rows r, const lists all, __global const float *values, __global STORAGE(TYPE_O) *o,
                       const long row_stride, const int count, const int lid) {
    for (int t = lid; t < count * VALUE_CHUNKS; t += WG) {
        const int i = t / VALUE_CHUNKS, vector = t % VALUE_CHUNKS * GV;
        const list l = list_of(all, i);
        V acc[GV];
        UNROLL for (int v = 0; v < GV; v++) { acc[v] = (V)(0.0f); }
        for (int j = 0; j < l.count; j++) {
            __global const float *row = values + (long)l.key[j] * DVP + vector * VW;
            const V weight = (V)(l.score[j]);
            UNROLL for (int v = 0; v < GV; v++) {
                if (VALUE_VECTORS % GV == 0 || vector + v < VALUE_VECTORS)
                    acc[v] = fma(weight, RAW_LOAD(row + v * VW), acc[v]);
            }
        }
        const V total = (V)(r.l[i]);
        UNROLL for (int v = 0; v < GV; v++) {
            const int column = (vector + v) * VW;
            if (column < DV)
                store_some(o + i * row_stride + column, l.count == 0 ? (V)(0.0f) : acc[v] / total, DV - column);
        }
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
assa_topk(__global const STORAGE(TYPE_Q) *q, const long q_offset, __global const float *k_panels, const long k_offset,
          __global const float *v_rows, const long v_offset, __global STORAGE(TYPE_O) *o, const long o_offset,
          __global int *indices, const long indices_offset, __global float *scores, const long scores_offset,
          __global float *lse, const long lse_offset, __global const int *key_lengths, const long key_lengths_offset,
          __global const int *query_lengths, const long query_lengths_offset, __global float *list_scores,
          const long list_scores_offset, __global int *list_keys, const long list_keys_offset, const int queries,
          const int keys, const int heads, const int heads_per_kv, const float power, const float unit,
          const int right, const int bottom_right, const int k, const int slots, const int capacity, const long blocks,
          const long q_batch, const long q_head, const long q_row, const long k_batch, const long k_head,
          const long v_batch, const long v_head, const long o_batch, const long o_head, const long o_row,
          const long indices_batch, const long indices_head, const long indices_row, const long scores_batch,
          const long scores_head, const long scores_row, const long lse_batch, const long lse_head,
          const long lse_row) {
    SHARED float qs[BM * D] ALIGNED, s[BM * SLD] ALIGNED, m[BM], l[BM], c[BM], floors[BM];
    SHARED int2 visible[BM];
    SHARED int counts[BM];
#if CAP
    SHARED float kept_scores[BM * CAP] ALIGNED;
    SHARED int kept_keys[BM * CAP] ALIGNED;
    const lists all = {kept_scores, kept_keys, counts, floors, k, capacity}; // at most CAP
#else
    const long own = (long)get_group_id(0) * BM * capacity;
    const lists all = {list_scores + list_scores_offset + own, list_keys + list_keys_offset + own, counts, floors, k,
                       capacity};
#endif
    const rows r = {m, l, c, visible};
    const int lid = get_local_id(0), row_blocks = CEIL_DIV(queries, BM);

    for (long block = get_group_id(0); block < blocks; block += get_num_groups(0)) {
        const int row0 = (int)(block % row_blocks) * BM, count = min(BM, queries - row0);
        const long h = block / row_blocks % heads, b = block / row_blocks / heads, kv = h / heads_per_kv;
        const sequence seq = sequence_of(b, queries, keys, query_lengths, query_lengths_offset, key_lengths,
                                         key_lengths_offset, bottom_right);
        LIST_SYNC; // the block before has been read
        for (int i = lid; i < BM; i += WG) {
            visible[i] = visible_keys(seq, row0 + i, -1, right);
            counts[i] = 0;
            floors[i] = -INFINITY;
        }
        rows_init(r, lid);
        query_block(qs, q + q_offset + b * q_batch + h * q_head + row0 * q_row, q_row, min(count, seq.queries - row0),
                    power, lid);
        SYNC;
        const int4 u = visible_union(visible, BM);
        __global const float *panels = k_panels + k_offset + b * k_batch + kv * k_head;
        for (int first = u.x / PW * PW; first < u.y; first += BN) {
            const int columns = min(BN, u.y - first);
            score_block(s, qs, panels, first, columns, lid);
            SYNC;
            take_block(s, r, all, unit, first, columns, lid);
            SYNC;
        }
        cut_lists(all, lid);
#if HAS_LISTS
        write_keys(all, indices, indices_offset + b * indices_batch + h * indices_head + row0 * indices_row, indices_row,
                   slots, count, lid);
        write_scores(all, unit, scores, scores_offset + b * scores_batch + h * scores_head + row0 * scores_row,
                     scores_row, slots, count, lid);
#endif
        weigh_lists(r, all, unit, lid);
#if HAS_LSE
        for (int i = lid; i < count; i += WG)
            lse[lse_offset + b * lse_batch + h * lse_head + (row0 + i) * lse_row] =
                counts[i] == 0 ? -INFINITY : (m[i] * unit + log2(l[i])) * LN2;
#endif
        LIST_SYNC;
        sum_values(r, all, v_rows + v_offset + b * v_batch + kv * v_head,
                   o + o_offset + b * o_batch + h * o_head + row0 * o_row, o_row, count, lid);
    }
}
