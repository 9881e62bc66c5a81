// Which keys a query sees, as one interval [lo, hi) of key indices: causal, window and lengths all are one.
//
// Query i stands at position p = i + shift, shift = N - M of the sequence for a bottom-right alignment, else 0.
#ifndef CLATTN_MASK_H
#define CLATTN_MASK_H

typedef struct sequence {
    int queries, keys; // this sequence's own, padding excluded
    int shift;
} sequence;

inline sequence sequence_of(const long b, const int queries, const int keys, __global const int *query_lengths,
                            const long query_lengths_offset, __global const int *key_lengths,
                            const long key_lengths_offset, const int bottom_right) {
    sequence s = {queries, keys, 0};
    if (query_lengths)
        s.queries = clamp(query_lengths[query_lengths_offset + b], 0, queries);
    if (key_lengths)
        s.keys = clamp(key_lengths[key_lengths_offset + b], 0, keys);
    s.shift = bottom_right ? s.keys - s.queries : 0;
    return s;
}

// left, right: keys seen before and after a query's position, -1 = all. Padding queries see nothing: [0, 0).
inline int2 visible_keys(const sequence s, const int i, const int left, const int right) {
    const long p = (long)i + s.shift;
    const int lo = left < 0 ? 0 : (int)clamp(p - left, 0L, (long)s.keys);
    const int hi = right < 0 ? s.keys : (int)clamp(p + right + 1, 0L, (long)s.keys);
    return i < s.queries && lo < hi ? (int2)(lo, hi) : (int2)(0, 0);
}

// Of `count` rows: what any row sees and what all see, as (any.lo, any.hi, all.lo, all.hi).
inline int4 visible_union(SHARED const int2 *visible, const int count) {
    int any_lo = INT_MAX, any_hi = 0, all_lo = 0, all_hi = INT_MAX;
    for (int i = 0; i < count; i++) {
        const int lo = visible[i].x, hi = visible[i].y;
        any_lo = min(any_lo, lo < hi ? lo : INT_MAX);
        any_hi = max(any_hi, hi);
        all_lo = max(all_lo, lo);
        all_hi = min(all_hi, hi);
    }
    return (int4)(min(any_lo, any_hi), any_hi, all_lo, all_hi);
}

#endif
