/* Lists of links: sorted, unique, on the host. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/cjar.h>

/* ---- from pairs: a counting sort by query, then by key within each query ---- */

static int ascending(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static clattn_status allocate(clattn_links *links, int64_t length, int64_t count) {
    *links = (clattn_links){.length = length, .count = count};
    links->starts = calloc((size_t)length + 1, sizeof *links->starts);
    links->keys = malloc((size_t)(count > 0 ? count : 1) * sizeof *links->keys);
    if (links->starts && links->keys)
        return CLATTN_SUCCESS;
    clattn_links_finish(links);
    return CLATTN_OUT_OF_HOST_MEMORY;
}

static int64_t first_bad(const int64_t *pairs, int64_t count, int64_t length) {
    for (int64_t e = 0; e < count; e++)
        for (int side = 0; side < 2; side++)
            if (pairs[2 * e + side] < 0 || pairs[2 * e + side] >= length)
                return e;
    return -1;
}

/* starts[i] becomes where query i begins; keys are filled in the order of the pairs. */
static void distribute(const int64_t *pairs, int64_t count, clattn_links *links) {
    for (int64_t e = 0; e < count; e++)
        links->starts[pairs[2 * e] + 1]++;
    for (int64_t i = 0; i < links->length; i++)
        links->starts[i + 1] += links->starts[i];
    for (int64_t e = 0; e < count; e++)
        links->keys[links->starts[pairs[2 * e]]++] = (int32_t)pairs[2 * e + 1];
    memmove(links->starts + 1, links->starts, (size_t)links->length * sizeof *links->starts);
    links->starts[0] = 0;
}

/* Sort each query's keys and drop repetitions. */
static void tidy(clattn_links *links) {
    int64_t kept = 0, begin = 0;
    for (int64_t i = 0; i < links->length; i++) {
        const int64_t end = links->starts[i + 1];
        qsort(links->keys + begin, (size_t)(end - begin), sizeof *links->keys, ascending);
        for (int64_t e = begin; e < end; e++)
            if (e == begin || links->keys[e] != links->keys[e - 1])
                links->keys[kept++] = links->keys[e];
        links->starts[i + 1] = kept;
        begin = end;
    }
    links->count = kept;
}

clattn_status clattn_links_from_pairs(const int64_t *pairs, int64_t count, int64_t length, int64_t *bad,
                                      clattn_links *links) {
    if (bad)
        *bad = -1;
    if (!links || (!pairs && count > 0) || count < 0 || length < 0 || length > INT32_MAX)
        return CLATTN_INVALID_ARGUMENT;
    *links = (clattn_links){0};
    const int64_t wrong = first_bad(pairs, count, length);
    if (bad)
        *bad = wrong;
    if (wrong >= 0)
        return CLATTN_INVALID_ARGUMENT;
    clattn_status status = allocate(links, length, count);
    if (status != CLATTN_SUCCESS)
        return status;
    if (length > 0)
        distribute(pairs, count, links);
    tidy(links);
    return CLATTN_SUCCESS;
}

/* ---- drawn ---- */

/* splitmix64: a counter through a mixing function; the same on every machine. Source: Steele, Lea, Flood, "Fast
 * Splittable Pseudorandom Number Generators", 2014. */
static uint64_t next_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

__extension__ typedef unsigned __int128 wide;
enum { LOG_BITS = 57 };

/* -log2(u / 2^64) in units of 2^-57, u > 0, by squaring a 64-bit mantissa: integers alone, so that no machine's libm
 * decides where a link falls. */
static uint64_t minus_log2(uint64_t u) {
    uint64_t shift = 0, fraction = 0;
    for (; !(u >> 63); u <<= 1)
        shift++;
    for (int bit = 0; bit < LOG_BITS; bit++) {
        const wide square = (wide)u * u;
        const bool doubled = (square >> 127) != 0;
        fraction = fraction << 1 | doubled;
        u = (uint64_t)(square >> (doubled ? 64 : 63));
    }
    return ((shift + 1) << LOG_BITS) - fraction;
}

typedef struct gaps {
    uint64_t state;
    uint64_t miss; /* -log2(1 - p); 0: p = 1 */
} gaps;

/* Misses before the next hit of independent trials: geometric. */
static uint64_t next_gap(gaps *g) {
    const uint64_t bits = next_bits(&g->state);
    return g->miss ? minus_log2(bits ? bits : 1) / g->miss : 0;
}

static clattn_status push(clattn_links *links, int64_t *room, int32_t key) {
    if (links->count == *room) {
        const int64_t more = *room ? *room * 2 : 1024;
        int32_t *keys = realloc(links->keys, (size_t)more * sizeof *keys);
        if (!keys)
            return CLATTN_OUT_OF_HOST_MEMORY;
        links->keys = keys;
        *room = more;
    }
    links->keys[links->count++] = key;
    return CLATTN_SUCCESS;
}

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

/* The pairs outside the window stand in one long row; gaps walk along it. */
static clattn_status draw(clattn_links *links, int64_t left, int64_t right, gaps *g) {
    const int64_t n = links->length;
    int64_t room = links->count;
    links->count = 0;
    uint64_t ahead = next_gap(g); /* candidates before the next link */
    for (int64_t i = 0; i < n; i++) {
        const int64_t lo = left < 0 ? 0 : clamp(i - left, n), hi = right < 0 ? n : clamp(i + right + 1, n);
        const uint64_t outside = (uint64_t)(n - (hi - lo));
        for (; ahead < outside; ahead += 1 + next_gap(g)) {
            const int64_t key = (int64_t)ahead < lo ? (int64_t)ahead : (int64_t)ahead + (hi - lo);
            clattn_status status = push(links, &room, (int32_t)key);
            if (status != CLATTN_SUCCESS)
                return status;
        }
        ahead -= outside;
        links->starts[i + 1] = links->count;
    }
    return CLATTN_SUCCESS;
}

clattn_status clattn_links_draw(int64_t length, int64_t window_left, int64_t window_right, double p, uint64_t seed,
                                clattn_links *links) {
    if (!links || !(p >= 0 && p <= 1) || length < 0 || length > INT32_MAX || window_left < -1 || window_right < -1)
        return CLATTN_INVALID_ARGUMENT;
    clattn_status status = allocate(links, length, 0);
    const double miss = ldexp(1 - p, 64);
    const bool never = miss >= 0x1p64; /* p is 0, or too small to tell from it */
    gaps g = {seed, p == 1 ? 0 : never ? 1 : minus_log2((uint64_t)miss)};
    if (status == CLATTN_SUCCESS && !never)
        status = draw(links, window_left, window_right, &g);
    if (status != CLATTN_SUCCESS)
        clattn_links_finish(links);
    return status;
}

void clattn_links_finish(clattn_links *links) {
    if (!links)
        return;
    free(links->starts);
    free(links->keys);
    *links = (clattn_links){0};
}
