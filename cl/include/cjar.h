// Which keys a query of cjar sees beside its window (mask.h): links, and how far it may look at all.
#ifndef CLATTN_CJAR_H
#define CLATTN_CJAR_H

#include "tile.h"
#include "mask.h"

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

inline link_range links_of(const link_list list, const int i) {
    const long begin = clamp(list.starts[i], 0L, list.count);
    return (link_range){begin, clamp(list.starts[i + 1], begin, list.count)};
}

// Links first .. first + BN of query i.
inline link_range link_chunk(const link_list list, const int i, const long first) {
    const link_range all = links_of(list, i);
    const long begin = min(all.begin + first, all.end);
    return (link_range){begin, min(begin + BN, all.end)};
}

inline long most_links(const link_list list, const int row0, const int count) {
    long most = 0;
    for (int i = row0; i < row0 + count; i++)
        most = max(most, list.starts[i + 1] - list.starts[i]);
    return min(most, list.count);
}

// Link e of a query, whose links are `all`, counts if its key is no padding, not in the future, not in the window already,
// and not the one before it again. A query that is padding has allowed = 0.
inline bool link_counts(const link_list list, const link_range all, const long e, const int2 window, const int allowed) {
    const int key = list.keys[e];
    return key >= 0 && key < allowed && !(key >= window.x && key < window.y) && !(e > all.begin && list.keys[e - 1] == key);
}

// Of rows of D floats.
inline float dot_row(SHARED const float *q, __global const float *k) {
    V sum = (V)(0.0f);
    int d = 0;
    for (; d + VW <= D; d += VW)
        sum = fma(RAW_LOAD(q + d), RAW_LOAD(k + d), sum);
    float total = vsum(sum);
    for (; d < D; d++)
        total = fma(q[d], k[d], total);
    return total;
}

#endif
