// The k largest of a row's scores, picked while the scores arrive in blocks.
//
// A row has a list of (score, key) that takes what lies above its floor. When the list is full it is cut to its k
// largest, and the floor rises to the least of these; soon it rejects nearly everything with one comparison a
// vector. Keys arrive in ascending order and every cut keeps the order, so a list is always sorted by key, and
// of equal scores the lowest keys stay. A NaN counts as +inf (and makes its row NaN in the end); -inf is never taken.
//
//   scores of a block   [ 0.3 | 2.1 | -1.0 | 1.7 | ...       floor 1.5
//   list                  (4.0, 3) (1.6, 9) (2.1, 257) (1.7, 259) ...     at most `capacity`
//
// One work-item works on one row. Defines: those of tile.h; CAP: entries of a list in SHARED memory, or 0: lists are
// in global memory. A list's capacity is a multiple of VW and at least k + 2 VW.
#ifndef CLATTN_SELECT_H
#define CLATTN_SELECT_H

#include "tile.h"

#ifndef CAP
#error "CAP: entries of a list, or 0 for lists in global memory"
#endif

#if CAP
#define LIST SHARED
#define LIST_SYNC SYNC
#else
#define LIST __global
#define LIST_SYNC SYNC_GLOBAL
#endif

typedef struct list {
    LIST float *score;
    LIST int *key;
    int count, k, capacity;
    float floor; // every later score that can still be one of the k largest is above it
} list;

// Floats as integers of the same order, and back (its own inverse). +0 and -0 are neighbours.
inline int ordered(const int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }
inline int rank_of(const float x) { return ordered(as_int(x)); }
inline float ranked(const int rank) { return as_float(ordered(rank)); }

// A number below x with no score between that matters: nothing equal to x is at or below it.
inline float just_below(const float x) { return x == INFINITY ? FLT_MAX : x - fabs(x) * 1e-6f - FLT_MIN; }

// Does any lane of a mask (true: all bits set) hold?
inline bool any_lane(const VI mask) {
#if VW == 16
    const long4 a = as_long8(mask).lo | as_long8(mask).hi;
    const long2 b = a.lo | a.hi;
#elif VW == 8
    const long2 b = as_long4(mask).lo | as_long4(mask).hi;
#elif VW == 4
    const long2 b = as_long2(mask);
#endif
#if VW == 1
    return mask;
#else
    return (b.x | b.y) != 0;
#endif
}

inline int count_above(LIST const float *score, const int width, const float bound) {
    V n = (V)(0.0f);
    for (int j = 0; j < width; j += VW)
        n += SELECT((V)(0.0f), (V)(1.0f), RAW_LOAD(score + j) > bound);
    return (int)vsum(n);
}

// Where to cut: entries above `bound` stay, and the first `ties` of those equal to it.
typedef struct cut {
    float bound;
    int ties;
} cut;

// Halves the interval (lo, hi] of ranks that holds the k-th largest score's, until a bound has exactly k scores above.
inline cut find_cut(LIST const float *score, const int width, const int k) {
    V least = (V)(INFINITY), most = (V)(-INFINITY);
    for (int j = 0; j < width; j += VW) {
        const V x = RAW_LOAD(score + j);
        least = fmin(least, SELECT(x, (V)(INFINITY), x == -INFINITY));
        most = fmax(most, x);
    }
    int lo = rank_of(-vmax(-least)) - 1, hi = rank_of(vmax(most)), above = 0;
    while ((uint)hi - (uint)lo > 1) {
        const int middle = lo + (int)(((uint)hi - (uint)lo) / 2);
        const int n = count_above(score, width, ranked(middle));
        if (n == k)
            return (cut){ranked(middle), 0};
        lo = n > k ? middle : lo;
        above = n > k ? above : n;
        hi = n > k ? hi : middle;
    }
    return (cut){ranked(hi), k - above};
}

// More than k entries are cut to k, in place and in order.
inline void list_cut(list *l) {
    LIST float *score = l->score;
    LIST int *key = l->key;
    const int width = ROUND_UP(l->count, VW), padded = ROUND_UP(l->k, VW);
    for (int j = l->count; j < width; j++)
        score[j] = -INFINITY;
    const cut c = find_cut(score, width, l->k);
    int kept = 0, ties = c.ties;
    for (int j = 0; j < l->count; j++) {
        const float x = score[j];
        const int tie = x == c.bound && ties > 0;
        score[kept] = x;
        key[kept] = key[j];
        ties -= tie;
        kept += tie | (x > c.bound);
    }
    for (int j = l->k; j < padded; j++)
        score[j] = INFINITY;
    V least = (V)(INFINITY);
    for (int j = 0; j < padded; j += VW)
        least = fmin(least, RAW_LOAD(score + j));
    l->count = l->k;
    l->floor = -vmax(-least);
}

// A floor from a row's first scores: of k groups or more, each group's largest is at least the smallest of
// them. The list, still empty, holds the groups' largest.
inline float first_floor(const list *l, SHARED const float *s, const int from, const int to) {
    const int groups = ROUND_UP(l->k, VW);
    if (to - from < 2 * groups)
        return -INFINITY;
    for (int g = 0; g < groups; g += VW)
        RAW_STORE(RAW_LOAD(s + from + g), l->score + g);
    for (int j = from + groups, g = 0; j < to; j += VW, g = g + VW == groups ? 0 : g + VW)
        RAW_STORE(fmax(RAW_LOAD(l->score + g), RAW_LOAD(s + j)), l->score + g);
    V least = (V)(INFINITY);
    for (int g = 0; g < groups; g += VW)
        least = fmin(least, RAW_LOAD(l->score + g));
    return just_below(-vmax(-least));
}

// Those of VW scores, of keys from `key` on, that are above the floor. Every lane is written, few stay.
inline void list_append(list *l, SHARED const float *s, const int key) {
    const V x = RAW_LOAD(s);
    float lane[VW] ALIGNED;
    RAW_STORE(SELECT((V)(INFINITY), x, x == x), lane);
    int count = l->count;
    UNROLL for (int e = 0; e < VW; e++) {
        l->score[count] = lane[e];
        l->key[count] = key + e;
        count += lane[e] > l->floor;
    }
    l->count = count;
}

// Columns from..to of a row of scores, multiples of VW, column 0 being key `first`. 32 vectors at a time are
// tested without a branch, one bit each; then those with a bit are walked.
inline void list_take(list *l, SHARED const float *s, const int from, const int to, const int first) {
    if (l->count == 0 && l->floor == -INFINITY)
        l->floor = first_floor(l, s, from, to);
    for (int j = from; j < to; j += 32 * VW) {
        const int vectors = min((to - j) / VW, 32);
        const V floor = (V)(l->floor);
        uint hits = 0;
        for (int v = 0; v < vectors; v++)
            hits |= (uint)any_lane(!(RAW_LOAD(s + j + v * VW) <= floor)) << v;
        while (hits) {
            const int at = j + VW * (31 - (int)clz(hits & -hits)); // lowest bit first
            hits &= hits - 1;
            list_append(l, s + at, first + at);
            if (l->count > l->capacity - VW)
                list_cut(l);
        }
    }
}

#endif
