// The k largest of a row's scores, picked while the scores arrive in blocks.
//
// A row has a list of (score, key) that takes what lies above its floor. When the list is full it is cut to its k
// largest or a few more, and the floor rises with them; soon it rejects nearly everything with one comparison a
// vector. Keys arrive in ascending order and every cut keeps the order, so a list is always sorted by key, and
// of equal scores the lowest keys stay. A NaN counts as +inf (and makes its row NaN in the end); -inf is never taken.
//
//   scores of a block   [ 0.3 | 2.1 | -1.0 | 1.7 | ...       floor 1.5
//   list                  (4.0, 3) (1.6, 9) (2.1, 257) (1.7, 259) ...     at most `capacity`
//
// One work-item works on one row. Defines: those of tile.h; CAP: entries of a list in SHARED memory, or 0: lists are
// in global memory. A list's capacity is a multiple of VW and at least 2 k + 4 VW.
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

#define ROOM (VW > 1 ? VW : 2) // entries that a vector's scores may write

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

// A condition of vectors as a mask; of scalars it is 0 or 1.
#if VW == 1
#define MASK(condition) (-(condition))
#else
#define MASK(condition) (condition)
#endif

// All bits that any lane has.
inline int any_lane(const VI x) {
#if VW == 16
    const int8 a = x.lo | x.hi;
#elif VW == 8
    const int8 a = x;
#endif
#if VW >= 8
    const int4 b = a.lo | a.hi;
#elif VW == 4
    const int4 b = x;
#endif
#if VW >= 4
    const int2 c = b.lo | b.hi;
    return c.x | c.y;
#else
    return x;
#endif
}

// A mask of at most eight lanes as a number, a byte a lane, 0 or 1; and the lowest lane that is 1, or any lane.
#if VW >= 8
inline ulong lane_bits(const int8 mask) { return as_ulong(convert_char8(mask)) & 0x0101010101010101UL; }
#elif VW == 4
inline ulong lane_bits(const int4 mask) { return as_uint(convert_char4(mask)) & 0x01010101U; }
#else
inline ulong lane_bits(const int mask) { return mask & 1; }
#endif
inline int lowest(const ulong bits) { return (int)((63 - (uint)clz(bits & -bits)) >> 3) & ((VW < 8 ? VW : 8) - 1); }

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

// Halves the interval (lo, hi] of ranks that holds the k-th largest score's, until a bound has k to `most` scores above.
inline cut find_cut(LIST const float *score, const int width, const int k, const int most) {
    V least = (V)(INFINITY), largest = (V)(-INFINITY);
    for (int j = 0; j < width; j += VW) {
        const V x = RAW_LOAD(score + j);
        least = fmin(least, SELECT(x, (V)(INFINITY), x == -INFINITY));
        largest = fmax(largest, x);
    }
    int lo = rank_of(-vmax(-least)) - 1, hi = rank_of(vmax(largest)), above = 0;
    while ((uint)hi - (uint)lo > 1) {
        const int middle = lo + (int)(((uint)hi - (uint)lo) / 2);
        const int n = count_above(score, width, ranked(middle));
        if (n >= k && n <= most)
            return (cut){ranked(middle), 0};
        lo = n > k ? middle : lo;
        above = n > k ? above : n;
        hi = n > k ? hi : middle;
    }
    return (cut){ranked(hi), k - above};
}

// More than k entries are cut to k..most, in place and in order.
inline void list_cut(list *l, const int most) {
    LIST float *score = l->score;
    LIST int *key = l->key;
    const int width = ROUND_UP(l->count, VW);
    for (int j = l->count; j < width; j++)
        score[j] = -INFINITY;
    const cut c = find_cut(score, width, l->k, most);
    int kept = 0, j = 0;
    for (int ties = c.ties; ties > 0; j++) {
        const float x = score[j];
        score[kept] = x;
        key[kept] = key[j];
        kept += x >= c.bound;
        ties -= x == c.bound;
    }
    for (; j < l->count; j++) {
        const float x = score[j];
        score[kept] = x;
        key[kept] = key[j];
        kept += x > c.bound;
    }
    l->count = kept;
    l->floor = c.bound;
}

// A floor from a row's first scores: the k-th largest of many groups' largest, or a little less. The list, still
// empty, holds the groups'.
inline float first_floor(const list *l, SHARED const float *s, const int from, const int to) {
    const int groups = 2 * ROUND_UP(l->k, VW);
    if (to - from < groups)
        return -INFINITY;
    for (int g = 0; g < groups; g += VW)
        RAW_STORE(RAW_LOAD(s + from + g), l->score + g);
    for (int j = from + groups, g = 0; j < to; j += VW, g = g + VW == groups ? 0 : g + VW)
        RAW_STORE(fmax(RAW_LOAD(l->score + g), RAW_LOAD(s + j)), l->score + g);
    if (count_above(l->score, groups, -INFINITY) < l->k)
        return -INFINITY;
    const cut c = find_cut(l->score, groups, l->k, l->k + l->k / 8);
    return c.ties == 0 ? c.bound : just_below(c.bound);
}

// The lowest of some scores, of keys from `key` on, that a bit stands for, becomes entry `count`; if there is no bit, any.
inline void set_lowest(LIST float *score, LIST int *keys, const int count, const ulong bits, SHARED const float *s,
                       const int key) {
    const int lane = lowest(bits);
    score[count] = s[lane] == s[lane] ? s[lane] : INFINITY;
    keys[count] = key + lane;
}

// All that a bit stands for, to a list of `count`; how many it has then. Seldom more than two: so many are written
// without a branch.
inline int append(LIST float *score, LIST int *keys, int count, ulong bits, SHARED const float *s, const int key) {
    for (;;) {
        set_lowest(score, keys, count, bits, s, key);
        count += bits != 0;
        bits &= bits - 1;
        set_lowest(score, keys, count, bits, s, key);
        count += bits != 0;
        bits &= bits - 1;
        if (!bits)
            return count;
    }
}

// Those of a vector that are above the floor.
inline int append_above(LIST float *score, LIST int *keys, int count, const float floor, SHARED const float *s,
                        const int key) {
    const VI above = MASK(!(RAW_LOAD(s) <= (V)(floor)));
#if VW == 16
    count = append(score, keys, count, lane_bits(above.lo), s, key);
    return append(score, keys, count, lane_bits(above.hi), s + 8, key + 8);
#else
    return append(score, keys, count, lane_bits(above), s, key);
#endif
}

// Columns from..to of a row of scores, multiples of VW, column 0 being key `first`. 32 vectors at a time are
// tested without a branch, one bit each; then those with a bit are walked.
inline void list_take(list *l, SHARED const float *s, const int from, const int to, const int first) {
    if (l->count == 0 && l->floor == -INFINITY)
        l->floor = first_floor(l, s, from, to);
    for (int j = from; j < to; j += 32 * VW) {
        const int vectors = min((to - j) / VW, 32);
        const V floor = (V)(l->floor);
        VI above = 0, bit = 1;
        for (int v = 0; v < vectors; v++, bit <<= 1)
            above |= MASK(!(RAW_LOAD(s + j + v * VW) <= floor)) & bit;
        uint hits = (uint)any_lane(above);
        while (hits) {
            const int at = j + VW * (31 - (int)clz(hits & -hits)); // lowest bit first
            hits &= hits - 1;
            l->count = append_above(l->score, l->key, l->count, l->floor, s + at, first + at);
            if (l->count > l->capacity - ROOM)
                list_cut(l, l->k + l->k / 8);
        }
    }
}

#endif
