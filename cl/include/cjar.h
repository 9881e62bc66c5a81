// Which keys a query of cjar sees beside its window (mask.h): links, and how far it may look at all. The steps that links
// take: rows of a head's packed keys, values, queries or dO, named one by one by a list, LINKS_AT_ONCE of each owned row at a
// time.
//
//   dot_rows     VW dot products of an owned row and named rows
//   gather_rows  acc += weights times named rows
//
// Defines: those of attention.h, D = DV.
#ifndef CLATTN_CJAR_H
#define CLATTN_CJAR_H

#include "attention.h"

// Few enough that what all rows of a block name stays in a CPU's second cache from one step to the next.
#ifndef LINKS_AT_ONCE
#define LINKS_AT_ONCE (BN < 64 ? BN : 64)
#endif
#define LINK_GROUPS (LINKS_AT_ONCE / VW) // in vectors

// Micro-tiles side by side whose rows a work-item adds to in one pass over the list: as many as registers hold.
#if WG > 1 || VALUE_COLUMNS % 2
#define GATHER_TILES 1
#elif VALUE_COLUMNS % 4 || TNV > 2
#define GATHER_TILES 2
#else
#define GATHER_TILES 4
#endif

// Keys that query i may see at all: [0, allowed); 0 for padding.
inline int allowed_keys(const sequence seq, const int i, const int causal) {
    return i >= seq.queries ? 0 : causal ? min(i + 1, seq.keys) : seq.keys;
}

typedef struct link_list {
    __global const long *starts; // [queries + 1]
    __global const int *keys;    // [count], ascending within a query
    long count;
} link_list;

typedef struct link_range {
    long begin, end;
} link_range;

// The first place of an ascending list whose number is at least `least`.
inline long first_at_least(__global const int *list, const link_range r, const int least) {
    long lo = r.begin, hi = r.end;
    while (lo < hi) {
        const long middle = lo + (hi - lo) / 2;
        if (list[middle] < least)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

// Links of query i to keys that it may see at all.
inline link_range links_of(const link_list list, const int i, const int allowed) {
    link_range r;
    r.begin = clamp(list.starts[i], 0L, list.count);
    r.end = clamp(list.starts[i + 1], r.begin, list.count);
    r.end = first_at_least(list.keys, r, allowed);
    return r;
}

// Links first .. first + LINKS_AT_ONCE of a row's.
inline link_range link_chunk(const link_range all, const long first) {
    const long begin = min(all.begin + first, all.end);
    return (link_range){begin, min(begin + LINKS_AT_ONCE, all.end)};
}

inline long most_links(SHARED const link_range *links, const int count) {
    long most = 0;
    for (int i = 0; i < count; i++)
        most = max(most, links[i].end - links[i].begin);
    return most;
}

// A vector of such a step: places e .. e + VW of the list, the owned row's columns at .. at + VW. some: the row has links there.
typedef struct link_task {
    int row, at;
    long e;
    bool some;
} link_task;

// Tasks of `count` owned rows are numbered 0 .. count * LINK_GROUPS.
inline link_task link_task_of(SHARED const link_range *links, const long first, const int number) {
    const int row = number / LINK_GROUPS, at = number % LINK_GROUPS * VW;
    const link_range chunk = link_chunk(links[row], first);
    return (link_task){row, at, chunk.begin + at, chunk.begin + at < chunk.end};
}

// Link e of a query, whose links are `all`, counts if its key is no padding, not in the future, not in the window already,
// and not the one before it again. A query that is padding has allowed = 0.
inline bool link_counts(const link_list list, const link_range all, const long e, const int2 window, const int allowed) {
    const int key = list.keys[e];
    return key >= 0 && key < allowed && !(key >= window.x && key < window.y) && !(e > all.begin && list.keys[e - 1] == key);
}

// Numbers e .. e + VW of a list, -1 outside of r.
inline VI list_lanes(__global const int *list, const long e, const link_range r) {
    if (e >= r.begin && e + VW <= r.end)
        return RAW_LOAD(list + e);
    int lane[VW];
    for (int u = 0; u < VW; u++)
        lane[u] = e + u >= r.begin && e + u < r.end ? list[e + u] : -1;
    return RAW_LOAD(lane);
}

// Of links e .. e + VW, the keys of those that count, -1 for the others.
inline VI counted_keys(const link_list list, const link_range all, const long e, const int2 window, const int allowed) {
    const VI key = list_lanes(list.keys, e, all), before = list_lanes(list.keys, e - 1, all);
    const VI counts = key >= 0 && key < allowed && !(key >= window.x && key < window.y) && key != before;
    return SELECT((VI)(-1), key, counts);
}

// Lane e: the sum of the lanes of x[e].
inline V vsums(const V x[VW]) {
#if VW == 1
    return x[0];
#elif VW == 4
#define SUM_PAIRS(a, b) ((V)((a).s02, (b).s02) + (V)((a).s13, (b).s13))
    return SUM_PAIRS(SUM_PAIRS(x[0], x[1]), SUM_PAIRS(x[2], x[3]));
#elif VW == 8
#define SUM_PAIRS(a, b) ((V)((a).s02, (b).s02, (a).s46, (b).s46) + (V)((a).s13, (b).s13, (a).s57, (b).s57))
    const V lo = SUM_PAIRS(SUM_PAIRS(x[0], x[1]), SUM_PAIRS(x[2], x[3]));
    const V hi = SUM_PAIRS(SUM_PAIRS(x[4], x[5]), SUM_PAIRS(x[6], x[7]));
    return (V)(lo.lo, hi.lo) + (V)(lo.hi, hi.hi);
#else
#define SUM_PAIRS(a, b)                                                                                                \
    ((V)((a).s02, (b).s02, (a).s46, (b).s46, (a).s8a, (b).s8a, (a).sce, (b).sce) +                                     \
     (V)((a).s13, (b).s13, (a).s57, (b).s57, (a).s9b, (b).s9b, (a).sdf, (b).sdf))
    float8 quarters[4];
    UNROLL for (int i = 0; i < 4; i++) {
        const V sum = SUM_PAIRS(SUM_PAIRS(x[4 * i], x[4 * i + 1]), SUM_PAIRS(x[4 * i + 2], x[4 * i + 3]));
        quarters[i] = sum.lo + sum.hi;
    }
    return (V)(quarters[0].lo, quarters[1].lo, quarters[2].lo, quarters[3].lo) +
           (V)(quarters[0].hi, quarters[1].hi, quarters[2].hi, quarters[3].hi);
#endif
}

#if WG == 1
#define UNROLL_STEPS UNROLL
#else
#define UNROLL_STEPS _Pragma("unroll 2") // whole, clang for AMD loads all rows at once and spills
#endif

// Of a row of D floats and VW rows by number. A lane with number -1 holds anything.
inline V dot_rows(SHARED const float *q, __global const float *rows_of, const VI number) {
    int at[VW];
    V sum[VW];
    RAW_STORE(max(number, (VI)(0)), at);
    __global const float *row[VW];
    UNROLL for (int e = 0; e < VW; e++) {
        row[e] = rows_of + (long)at[e] * DVP;
        sum[e] = (V)(0.0f);
    }
    UNROLL_STEPS for (int d = 0; d + VW <= D; d += VW) {
        const V x = RAW_LOAD(q + d);
        UNROLL for (int e = 0; e < VW; e++) sum[e] = fma(x, RAW_LOAD(row[e] + d), sum[e]);
    }
#if D % VW
    const int rest = D % VW, last = D - rest; // what pads a row may be NaN
    float lane[VW];
    for (int d = 0; d < VW; d++)
        lane[d] = d < rest ? q[last + d] : 0.0f;
    const V x = RAW_LOAD(lane);
    UNROLL for (int e = 0; e < VW; e++) {
        sum[e] = fma(x, SELECT((V)(0.0f), RAW_LOAD(row[e] + last), LANES < rest), sum[e]);
    }
#endif
    return vsums(sum);
}

// acc of owned row i, times factor[i] unless factor is NULL, += weight[i, e] times row list[links.begin + e] for each of its
// links; a row whose weight is 0 is not read.
inline void gather_rows(V (*acc)[TM][TNV], SHARED const float *weights, SHARED const float *factor,
                        __global const float *rows_of, __global const int *list, SHARED const link_range *links,
                        const long first, const int count, const int lid) {
    UNROLL_GPU for (int n = 0; n < VALUE_TILES_EACH / GATHER_TILES; n++) {
        const int own = n / ROW_TILES * (GATHER_TILES * ROW_TILES) + n % ROW_TILES, t = own * WG + lid;
        const int mi = TILE_ROW(t, ROW_TILES, VALUE_COLUMNS) * TM, column = TILE_COLUMN(t, ROW_TILES, VALUE_COLUMNS) * TN;
        UNROLL_GPU for (int i = 0; i < TM; i++) {
            if (t >= VALUE_TILES || mi + i >= count)
                continue;
            const link_range chunk = link_chunk(links[mi + i], first);
            const float times = factor ? factor[mi + i] : 1.0f;
            SHARED const float *w = weights + (mi + i) * SLD;
            V c[GATHER_TILES][TNV];
            UNROLL for (int g = 0; g < GATHER_TILES; g++) {
                UNROLL for (int j = 0; j < TNV; j++) c[g][j] = acc[own + g * ROW_TILES][i][j] * times;
            }
            for (long e = chunk.begin; e < chunk.end; e++) {
                const float weight = w[(int)(e - chunk.begin)];
                if (weight == 0.0f)
                    continue;
                __global const float *row = rows_of + (long)list[e] * DVP + column;
                UNROLL for (int g = 0; g < GATHER_TILES; g++) {
                    UNROLL for (int j = 0; j < TNV; j++) {
                        c[g][j] = fma((V)(weight), RAW_LOAD(row + g * TN + j * VW), c[g][j]);
                    }
                }
            }
            UNROLL for (int g = 0; g < GATHER_TILES; g++) {
                UNROLL for (int j = 0; j < TNV; j++) acc[own + g * ROW_TILES][i][j] = c[g][j];
            }
        }
    }
}

#endif
