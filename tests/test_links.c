/* Lists of links: from pairs, and drawn. */
#include <clattn/cjar.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/device.h"

static clattn_links draw(int64_t n, int64_t left, int64_t right, double p, uint64_t seed) {
    clattn_links links;
    ck_assert_int_eq(clattn_links_draw(n, left, right, p, seed, &links), CLATTN_SUCCESS);
    return links;
}

static bool in_window(int64_t i, int64_t j, int64_t left, int64_t right) {
    return (left < 0 || i - j <= left) && (right < 0 || j - i <= right);
}

/* Pairs that a draw chooses from. */
static double outside(int64_t n, int64_t left, int64_t right) {
    double count = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t lo = left < 0 || i < left ? 0 : i - left, hi = right < 0 || i + right >= n ? n : i + right + 1;
        count += (double)(n - (hi - lo));
    }
    return count;
}

static void check_list(const clattn_links *l, int64_t left, int64_t right) {
    ck_assert_int_eq(l->starts[0], 0);
    ck_assert_int_eq(l->starts[l->length], l->count);
    for (int64_t i = 0; i < l->length; i++) {
        ck_assert_int_le(l->starts[i], l->starts[i + 1]);
        for (int64_t e = l->starts[i]; e < l->starts[i + 1]; e++) {
            ck_assert(l->keys[e] >= 0 && l->keys[e] < l->length);
            ck_assert(e == l->starts[i] || l->keys[e] > l->keys[e - 1]);
            ck_assert(!in_window(i, l->keys[e], left, right));
        }
    }
}

/* ---- drawn ---- */

static const struct {
    int64_t n, left, right;
    double p;
} draws[] = {
    {0, 3, 3, 0.5},     {1, 0, 0, 1},         {1, 0, 0, 0.5},      {100, 0, 0, 0.05},     {100, 64, 64, 0.05},
    {500, -1, 64, 0.1}, {500, 3, -1, 0.1},    {500, -1, -1, 1},    {500, 499, 499, 1},    {500, 498, 498, 1},
    {500, 10, 2, 0.9},  {3000, 64, 64, 0.01}, {20000, 0, 0, 1e-5}, {20000, 64, 64, 1e-7}, {7, 2, 2, 0.999999},
};

/* Sorted, each once, outside the window; as many as p says, within five standard deviations. */
START_TEST(drawn_lists_are_sound) {
    const int64_t n = draws[_i].n, left = draws[_i].left, right = draws[_i].right;
    const double p = draws[_i].p, pairs = outside(n, left, right);
    clattn_links l = draw(n, left, right, p, 1);
    check_list(&l, left, right);
    ck_assert_int_eq(l.length, n);
    const double most = 5 * sqrt(pairs * p * (1 - p));
    ck_assert_msg(fabs((double)l.count - pairs * p) <= most, "%ld links of %g pairs at %g", (long)l.count, pairs, p);
    clattn_links_finish(&l);
}
END_TEST

START_TEST(certain_draws_are_certain) {
    clattn_links none = draw(1000, 3, 3, 0, 5), all = draw(200, 3, 5, 1, 5);
    ck_assert_int_eq(none.count, 0);
    ck_assert_int_eq(none.starts[1000], 0);
    ck_assert_int_eq(all.count, (int64_t)outside(200, 3, 5));
    check_list(&all, 3, 5);
    clattn_links_finish(&none);
    clattn_links_finish(&all);
}
END_TEST

/* A probability that no list of this length meets; and the smallest there are. The cost is that of the links. */
START_TEST(tiny_probabilities_give_few) {
    static const double tiny[] = {1e-12, 1e-15, 1e-17, 1e-300, 5e-324};
    clattn_links l = draw(100000, 64, 64, tiny[_i], 3); /* 1e10 pairs: an expected 0.01 at most */
    ck_assert_int_le(l.count, 1);
    clattn_links_finish(&l);
}
END_TEST

/* The same on every machine, whatever its compiler and libm. */
START_TEST(a_seed_is_a_list) {
    static const int32_t first[] = {70, 106, 131, 152, 216, 219, 249, 254, 276, 286, 317, 331};
    clattn_links l = draw(1000, 64, 64, 0.05, 42), again = draw(1000, 64, 64, 0.05, 42),
                 other = draw(1000, 64, 64, 0.05, 43);
    ck_assert_int_eq(l.count, again.count);
    ck_assert_mem_eq(l.keys, again.keys, (size_t)l.count * sizeof *l.keys);
    ck_assert(other.count != l.count || memcmp(l.keys, other.keys, (size_t)l.count * sizeof *l.keys) != 0);
    for (size_t e = 0; e < sizeof first / sizeof *first; e++)
        ck_assert_int_eq(l.keys[e], first[e]);
    ck_assert_int_eq(l.count, 44035);
    clattn_links_finish(&other);
    clattn_links_finish(&again);
    clattn_links_finish(&l);
}
END_TEST

/* Uniform over the whole table: chi-square over blocks of queries and keys. 63 degrees of freedom: mean 63, standard
 * deviation 11.2. */
START_TEST(draws_are_uniform) {
    enum { BLOCKS = 8, N = 1600, SIDE = N / BLOCKS };
    double count[BLOCKS][BLOCKS] = {{0}}, square = 0;
    clattn_links l = draw(N, 0, 0, 0.02, 100 + (uint64_t)_i);
    for (int64_t i = 0; i < N; i++)
        for (int64_t e = l.starts[i]; e < l.starts[i + 1]; e++)
            count[i / SIDE][l.keys[e] / SIDE]++;
    for (int a = 0; a < BLOCKS; a++)
        for (int b = 0; b < BLOCKS; b++) {
            const double want = 0.02 * (SIDE * SIDE - (a == b ? SIDE : 0));
            square += (count[a][b] - want) * (count[a][b] - want) / want;
        }
    ck_assert_msg(square > 20 && square < 63 + 5 * 11.3, "chi-square %g", square);
    clattn_links_finish(&l);
}
END_TEST

/* Neighbouring pairs are independent: both are links with p². */
START_TEST(neighbours_are_independent) {
    enum { N = 2000 };
    const double p = 0.1, pairs = (double)N * (N - 2);
    int64_t both = 0;
    clattn_links l = draw(N, 0, 0, p, 9);
    for (int64_t e = 1; e < l.count; e++)
        both += l.keys[e] == l.keys[e - 1] + 1;
    ck_assert_msg(fabs((double)both - pairs * p * p) < 6 * sqrt(pairs * p * p), "%ld", (long)both);
    clattn_links_finish(&l);
}
END_TEST

START_TEST(wrong_draws_are_refused) {
    static const struct {
        int64_t n, left, right;
        double p;
    } wrong[] = {{-1, 0, 0, 0.5},  {(int64_t)INT32_MAX + 1, 0, 0, 0.5},
                 {10, -2, 0, 0.5}, {10, 0, -2, 0.5},
                 {10, 0, 0, -0.1}, {10, 0, 0, 1.1},
                 {10, 0, 0, NAN}};
    clattn_links l;
    ck_assert_int_eq(clattn_links_draw(wrong[_i].n, wrong[_i].left, wrong[_i].right, wrong[_i].p, 1, &l),
                     CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_links_draw(10, 0, 0, 0.5, 1, NULL), CLATTN_INVALID_ARGUMENT);
}
END_TEST

/* ---- from pairs ---- */

START_TEST(pairs_are_sorted_and_kept_once) {
    const int64_t pairs[] = {3, 1, 0, 4, 3, 1, 0, 0, 4, 4, 0, 4, 3, 0};
    const int64_t starts[] = {0, 2, 2, 2, 4, 5};
    const int32_t keys[] = {0, 4, 0, 1, 4};
    int64_t bad = 7;
    clattn_links l;
    ck_assert_int_eq(clattn_links_from_pairs(pairs, 7, 5, &bad, &l), CLATTN_SUCCESS);
    ck_assert_int_eq(bad, -1);
    ck_assert_int_eq(l.length, 5);
    ck_assert_int_eq(l.count, 5);
    ck_assert_mem_eq(l.starts, starts, sizeof starts);
    ck_assert_mem_eq(l.keys, keys, sizeof keys);
    clattn_links_finish(&l);
    ck_assert_ptr_null(l.starts);
    clattn_links_finish(&l);
    clattn_links_finish(NULL);
}
END_TEST

START_TEST(no_pairs_are_a_list) {
    clattn_links l;
    ck_assert_int_eq(clattn_links_from_pairs(NULL, 0, 3, NULL, &l), CLATTN_SUCCESS);
    ck_assert_int_eq(l.count, 0);
    ck_assert_int_eq(l.starts[3], 0);
    clattn_links_finish(&l);
    ck_assert_int_eq(clattn_links_from_pairs(NULL, 0, 0, NULL, &l), CLATTN_SUCCESS);
    clattn_links_finish(&l);
}
END_TEST

START_TEST(wrong_pairs_are_refused) {
    static const int64_t lists[][6] = {
        {0, 0, 5, 1, 1, 1}, {0, 0, 1, 5, 1, 1}, {0, 0, -1, 1, 1, 1}, {0, 0, 1, -1, 9, 9}, {0, 0, INT64_MAX, 1, 1, 1}};
    int64_t bad = -7;
    clattn_links l;
    ck_assert_int_eq(clattn_links_from_pairs(lists[_i], 3, 5, &bad, &l), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(bad, 1);
    ck_assert_int_eq(clattn_links_from_pairs(NULL, 3, 5, &bad, &l), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(bad, -1);
    ck_assert_int_eq(clattn_links_from_pairs(lists[_i], -1, 5, NULL, &l), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_links_from_pairs(lists[_i], 1, -1, NULL, &l), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_links_from_pairs(lists[_i], 1, (int64_t)INT32_MAX + 1, NULL, &l), CLATTN_INVALID_ARGUMENT);
    ck_assert_int_eq(clattn_links_from_pairs(lists[_i], 1, 5, NULL, NULL), CLATTN_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("links");
    TCase *all = tcase_create("links");
    tcase_add_loop_test(all, drawn_lists_are_sound, 0, sizeof(draws) / sizeof(*draws));
    tcase_add_test(all, certain_draws_are_certain);
    tcase_add_loop_test(all, tiny_probabilities_give_few, 0, 5);
    tcase_add_test(all, a_seed_is_a_list);
    tcase_add_loop_test(all, draws_are_uniform, 0, 5);
    tcase_add_test(all, neighbours_are_independent);
    tcase_add_loop_test(all, wrong_draws_are_refused, 0, 7);
    tcase_add_test(all, pairs_are_sorted_and_kept_once);
    tcase_add_test(all, no_pairs_are_a_list);
    tcase_add_loop_test(all, wrong_pairs_are_refused, 0, 5);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
