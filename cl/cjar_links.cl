// The list of links by key instead of by query, in the order of queries: a counting sort, one writer for each number.
//
//   cjar_links_count    counts[c, j]: links to key j from the queries of chunk c; a work-item owns a chunk
//   cjar_links_offsets  counts[c, j] becomes the links to j of the chunks before c; totals[j], and their sum over each block
//                       of BLOCK keys; a work-item owns a block
//   cjar_links_starts   totals become where each key's queries begin, totals[n] where all end; a work-item owns a block
//   cjar_links_fill     the queries; a work-item owns a chunk
//
// Keys outside 0..n-1 and repetitions are left out. Defines: BLOCK >= 1.
#ifndef BLOCK
#error "BLOCK: keys of a work-item"
#endif

// Queries [first, last) of chunk c.
inline int chunk_start(const long c, const long chunks, const int n) { return (int)(c * n / chunks); }

inline int counted(__global const int *keys, const long e, const long begin, const int n) {
    return keys[e] >= 0 && keys[e] < n && !(e > begin && keys[e - 1] == keys[e]);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_links_count(__global const long *starts, const long starts_offset, __global const int *keys, const long keys_offset,
                 __global int *counts, const long counts_offset, const int n, const long links) {
    const long c = get_global_id(0), chunks = get_global_size(0);
    starts += starts_offset;
    keys += keys_offset;
    counts += counts_offset + c * n;
    for (int j = 0; j < n; j++)
        counts[j] = 0;
    for (int i = chunk_start(c, chunks, n); i < chunk_start(c + 1, chunks, n); i++) {
        const long begin = clamp(starts[i], 0L, links), end = clamp(starts[i + 1], begin, links);
        for (long e = begin; e < end; e++)
            if (counted(keys, e, begin, n))
                counts[keys[e]]++;
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_links_offsets(__global int *counts, const long counts_offset, __global int *totals, const long totals_offset,
                   __global int *sums, const long sums_offset, const int n, const long chunks) {
    const int first = get_global_id(0) * BLOCK, last = min(first + BLOCK, n);
    int sum = 0;
    counts += counts_offset;
    for (int j = first; j < last; j++) {
        int before = 0;
        for (long c = 0; c < chunks; c++) {
            const int here = counts[c * n + j];
            counts[c * n + j] = before;
            before += here;
        }
        totals[totals_offset + j] = before;
        sum += before;
    }
    sums[sums_offset + get_global_id(0)] = sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_links_starts(__global int *totals, const long totals_offset, __global const int *sums, const long sums_offset,
                  const int n) {
    const int block = get_global_id(0), first = block * BLOCK, last = min(first + BLOCK, n);
    int start = 0;
    totals += totals_offset;
    for (int before = 0; before < block; before++)
        start += sums[sums_offset + before];
    for (int j = first; j < last; j++) {
        const int count = totals[j];
        totals[j] = start;
        start += count;
    }
    if (last == n)
        totals[n] = start;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
cjar_links_fill(__global const long *starts, const long starts_offset, __global const int *keys, const long keys_offset,
                __global int *counts, const long counts_offset, __global const int *places, const long places_offset,
                __global int *queries, const long queries_offset, const int n, const long links) {
    const long c = get_global_id(0), chunks = get_global_size(0);
    starts += starts_offset;
    keys += keys_offset;
    counts += counts_offset + c * n;
    for (int i = chunk_start(c, chunks, n); i < chunk_start(c + 1, chunks, n); i++) {
        const long begin = clamp(starts[i], 0L, links), end = clamp(starts[i + 1], begin, links);
        for (long e = begin; e < end; e++)
            if (counted(keys, e, begin, n)) {
                const long place = (long)places[places_offset + keys[e]] + counts[keys[e]]++;
                if (place < links) // a list whose ranges overlap is wrong, but stays inside
                    queries[queries_offset + place] = i;
            }
    }
}
