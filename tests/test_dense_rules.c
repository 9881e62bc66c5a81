/* The dense core: what must hold whatever the numbers, and what is refused. A few queries (split plan) and many (tile
 * plan). */
#include <clattn/dense.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/close.h"
#include "harness/dense_case.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/storage.h"

enum { D = 16, FEW = 3, MANY = 30 };

/* The device's answer to changed inputs. */
typedef struct answer {
    double *o, *lse;
} answer;

static answer run(const dense_case *c, const dense_data *data) {
    answer a;
    dense_run(device(), c, data, &a.o, &a.lse);
    return a;
}

static void answer_free(answer *a) {
    free(a->o);
    free(a->lse);
}

static dense_case plain(bool few, int keys) {
    return (dense_case){.B = 1, .H = 2, .M = few ? FEW : MANY, .N = keys, .D = D, .seed = 21};
}

/* Rows from.. of n of each head, into rows 0.. of the other. */
static void take_rows(double *to, const double *from, int heads, int n, int first, int count, int width) {
    for (int h = 0; h < heads; h++)
        memcpy(to + (size_t)h * count * width, from + ((size_t)h * n + first) * width, sizeof(double) * count * width);
}

/* ---- invariants ---- */

START_TEST(constant_values_come_back) {
    const dense_case c = plain(_i, 300);
    dense_data data;
    dense_data_make(&c, &data);
    for (size_t e = 0; e < data.v_count; e++)
        data.v[e] = (double)(e % D) - 5;
    answer a = run(&c, &data);
    for (size_t e = 0; e < data.o_count; e++)
        ck_assert_double_eq_tol(a.o[e], (double)(e % D) - 5, 1e-5);
    answer_free(&a);
    dense_data_free(&data);
}
END_TEST

/* Keys with their values in another order. */
START_TEST(the_order_of_keys_is_nothing) {
    const dense_case c = plain(_i, 300);
    dense_data data;
    dense_data_make(&c, &data);
    answer before = run(&c, &data);
    for (int h = 0; h < c.H; h++)
        for (int j = 0; j < c.N / 2; j++)
            for (int e = 0; e < D; e++) {
                const size_t a = ((size_t)h * c.N + j) * D + e, b = ((size_t)h * c.N + (c.N - 1 - j)) * D + e;
                const double k = data.k[a], v = data.v[a];
                data.k[a] = data.k[b];
                data.v[a] = data.v[b];
                data.k[b] = k;
                data.v[b] = v;
            }
    answer after = run(&c, &data);
    assert_close("o", after.o, before.o, data.o_count, 3e-6);
    assert_close("lse", after.lse, before.lse, data.lse_count, 1e-6);
    answer_free(&after);
    answer_free(&before);
    dense_data_free(&data);
}
END_TEST

/* The first queries of a causal sequence do not know that it goes on. The shorter one takes the split plan. */
START_TEST(a_causal_prefix_is_the_shorter_problem) {
    const int prefix = _i ? FEW : 20;
    dense_case c = plain(false, MANY), shorter = plain(false, prefix);
    dense_data data, cut;
    c.causal = shorter.causal = CLATTN_CAUSAL_TOP_LEFT;
    shorter.M = prefix;
    dense_data_make(&c, &data);
    dense_data_make(&shorter, &cut);
    take_rows(cut.q, data.q, c.H, c.M, 0, prefix, D);
    take_rows(cut.k, data.k, c.H, c.N, 0, prefix, D);
    take_rows(cut.v, data.v, c.H, c.N, 0, prefix, D);
    take_rows(cut.o, data.o, c.H, c.M, 0, prefix, D);
    answer a = run(&shorter, &cut);
    assert_close("o", a.o, cut.o, cut.o_count, 2e-5);
    answer_free(&a);
    dense_data_free(&cut);
    dense_data_free(&data);
}
END_TEST

/* Both halves of the keys, joined by their log-sum-exp. */
START_TEST(halves_merge_by_their_lse) {
    const dense_case c = plain(_i, 302);
    dense_case half = c;
    dense_data data, part;
    answer halves[2];
    half.N = c.N / 2;
    dense_data_make(&c, &data);
    for (int side = 0; side < 2; side++) {
        dense_data_make(&half, &part);
        memcpy(part.q, data.q, sizeof(double) * data.q_count);
        take_rows(part.k, data.k, c.H, c.N, side * half.N, half.N, D);
        take_rows(part.v, data.v, c.H, c.N, side * half.N, half.N, D);
        halves[side] = run(&half, &part);
        dense_data_free(&part);
    }
    for (size_t e = 0; e < data.o_count; e++) {
        const double a = halves[0].lse[e / D], b = halves[1].lse[e / D], share = 1 / (1 + exp(b - a));
        halves[0].o[e] = share * halves[0].o[e] + (1 - share) * halves[1].o[e];
    }
    assert_close("o", halves[0].o, data.o, data.o_count, 2e-5);
    answer_free(&halves[0]);
    answer_free(&halves[1]);
    dense_data_free(&data);
}
END_TEST

/* Two sequences padded to one length give what each gives alone. */
START_TEST(a_padded_batch_equals_its_sequences) {
    static const int queries[] = {FEW - 1, FEW}, keys[] = {150, 290};
    const int rows[] = {_i ? queries[0] : 21, _i ? queries[1] : MANY};
    dense_case c = plain(_i, 300);
    dense_data data, one;
    c.B = 2;
    c.H = 1;
    c.nan = true;
    c.key_lengths = keys;
    c.query_lengths = rows;
    dense_data_make(&c, &data);
    answer together = run(&c, &data);
    for (int b = 0; b < c.B; b++) {
        dense_case alone = c;
        alone.B = 1;
        alone.key_lengths = &keys[b];
        alone.query_lengths = &rows[b];
        dense_data_make(&alone, &one);
        memcpy(one.q, data.q + (size_t)b * c.M * D, sizeof(double) * one.q_count);
        memcpy(one.k, data.k + (size_t)b * c.N * D, sizeof(double) * one.k_count);
        memcpy(one.v, data.v + (size_t)b * c.N * D, sizeof(double) * one.v_count);
        answer a = run(&alone, &one);
        assert_close("o", a.o, together.o + (size_t)b * c.M * D, one.o_count, 1e-6);
        answer_free(&a);
        dense_data_free(&one);
    }
    answer_free(&together);
    dense_data_free(&data);
}
END_TEST

/* The split plan and the tile plan: the same queries among others. */
START_TEST(both_plans_agree) {
    dense_case many = plain(false, 1000), few = plain(true, 1000);
    dense_data data, cut;
    many.windowed = few.windowed = true;
    many.left = few.left = -1;
    many.right = few.right = 700;
    dense_data_make(&many, &data);
    dense_data_make(&few, &cut);
    take_rows(cut.q, data.q, many.H, MANY, 0, FEW, D);
    memcpy(cut.k, data.k, sizeof(double) * data.k_count);
    memcpy(cut.v, data.v, sizeof(double) * data.v_count);
    answer tile = run(&many, &data), split = run(&few, &cut);
    for (int h = 0; h < many.H; h++) {
        assert_close("o", split.o + h * FEW * D, tile.o + h * MANY * D, FEW * D, 3e-6);
        assert_close("lse", split.lse + h * FEW, tile.lse + h * MANY, FEW, 1e-6);
    }
    answer_free(&split);
    answer_free(&tile);
    dense_data_free(&cut);
    dense_data_free(&data);
}
END_TEST

/* Twice the same bits. */
START_TEST(the_same_bits_again) {
    const dense_case c = plain(_i, 1000);
    dense_data data;
    dense_data_make(&c, &data);
    answer a = run(&c, &data), b = run(&c, &data);
    ck_assert_mem_eq(a.o, b.o, sizeof(double) * data.o_count);
    ck_assert_mem_eq(a.lse, b.lse, sizeof(double) * data.lse_count);
    answer_free(&b);
    answer_free(&a);
    dense_data_free(&data);
}
END_TEST

/* flash-attention #2611: element offsets past 2^31, by the tensor's offset and by a stride. What lies between is not
 * touched. Where the device makes no such buffer: as far as it goes, which at least passes 2^31 bytes. */
typedef struct far_rows {
    cl_mem memory;
    int64_t apart; /* elements between two rows */
} far_rows;

static far_rows far_make(const fixture *f) {
    enum { ROOM = 64 };
    far_rows rows = {.apart = (INT64_C(1) << 31) + 77};
    cl_ulong most = 0;
    cl_int code;
    clGetDeviceInfo(f->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
    if ((cl_ulong)(rows.apart + ROOM) * 2 > most) {
        test_skip("no buffer of more than 4 GiB on this device: offsets stay below 2^31 elements");
        rows.apart = (int64_t)(most / 2) - ROOM;
    }
    rows.memory = clCreateBuffer(f->cl, CL_MEM_READ_WRITE, (size_t)(rows.apart + ROOM) * 2, NULL, &code);
    if (code != CL_SUCCESS)
        test_skip("the device has no memory left for a buffer of 4 GiB");
    return rows;
}

static void far_write(const fixture *f, const far_rows *rows, int64_t at, const double *values) {
    uint16_t row[D];
    storage_pack(CLATTN_F16, values, D, row);
    ck_assert_int_eq(
        clEnqueueWriteBuffer(f->queue, rows->memory, CL_TRUE, (size_t)at * 2, sizeof row, row, 0, NULL, NULL),
        CL_SUCCESS);
}

START_TEST(offsets_past_two_to_the_31) {
    const fixture *f = device();
    const dense_case c = {.B = 1, .H = 1, .M = _i ? FEW : 7, .N = 2, .D = D, .type = CLATTN_F16};
    const far_rows rows = far_make(f);
    if (!rows.memory)
        return;
    dense_data data;
    dense_data_make(&c, &data);
    clattn_dense_problem p = dense_problem(&c);
    p.lse = (clattn_tensor){0};
    p.k.stride[2] = rows.apart; /* k: near and far; v: both far */
    clattn_tensor t[CLATTN_DENSE_SLOTS] = {p.q, p.k, p.v, p.o};
    guarded q = strided_make(f, &t[CLATTN_DENSE_Q], data.q), o = strided_make(f, &t[CLATTN_DENSE_O], NULL);
    t[CLATTN_DENSE_K].memory = t[CLATTN_DENSE_V].memory = rows.memory;
    t[CLATTN_DENSE_V].offset = (uint64_t)rows.apart + D;
    for (int j = 0; j < c.N; j++) {
        far_write(f, &rows, j * rows.apart, data.k + j * D);
        far_write(f, &rows, rows.apart + (1 + j) * D, data.v + j * D);
    }
    clattn_plan *plan = NULL;
    assert_ok(clattn_dense_plan(f->context, &p, &plan));
    run_plan(f, plan, t, sizeof t / sizeof *t);
    double *got = strided_read(f, &o, &t[CLATTN_DENSE_O], "o");
    assert_close("o", got, data.o, data.o_count, 4e-3);
    free(got);
    clattn_plan_destroy(plan);
    guarded_free(&q);
    guarded_free(&o);
    clReleaseMemObject(rows.memory);
    dense_data_free(&data);
}
END_TEST

/* ---- refusals ---- */

static void no_rank(clattn_dense_problem *p) { p->q.rank = 3; }
static void other_keys(clattn_dense_problem *p) { p->v.shape[2] = 49; }
static void other_size(clattn_dense_problem *p) { p->k.shape[3] = 8; }
static void other_out(clattn_dense_problem *p) { p->o.shape[2] = 29; }
static void other_type(clattn_dense_problem *p) { p->v.type = CLATTN_BF16; }
static void whole_type(clattn_dense_problem *p) { p->q.type = CLATTN_I32; }
static void heads(clattn_dense_problem *p) { p->k.shape[1] = p->v.shape[1] = 3; }
static void negative(clattn_dense_problem *p) { p->k.stride[1] = -800; }
static void overlapping(clattn_dense_problem *p) { p->o.stride[2] = 0; }
static void huge(clattn_dense_problem *p) { p->q.stride[0] = INT64_MAX / 2; }
static void bias_type(clattn_dense_problem *p) { p->bias.type = CLATTN_F16; }
static void bias_shape(clattn_dense_problem *p) { p->bias.shape[3] = 51; }
static void bias_stride(clattn_dense_problem *p) { p->bias.stride[3] = 0; }
static void lse_shape(clattn_dense_problem *p) { p->lse.shape[2] = 31; }
static void lengths_type(clattn_dense_problem *p) {
    p->key_lengths = clattn_tensor_make(NULL, CLATTN_I64, 1, &(int64_t){2});
}
static void lengths_shape(clattn_dense_problem *p) {
    p->query_lengths = clattn_tensor_make(NULL, CLATTN_I32, 1, &(int64_t){3});
}
static void causal(clattn_dense_problem *p) { p->causal = (clattn_causal)3; }
static void scale(clattn_dense_problem *p) { p->scale = NAN; }
static void window(clattn_dense_problem *p) {
    p->windowed = true;
    p->window_right = -2;
}
static void large_heads(clattn_dense_problem *p) { p->q.shape[3] = p->k.shape[3] = 257; }
static void large_values(clattn_dense_problem *p) { p->v.shape[3] = p->o.shape[3] = 300; }
/* A transposed view of V: ROCm/pytorch #3230. */
static void transposed(clattn_dense_problem *p) {
    p->v.stride[2] = 1;
    p->v.stride[3] = 50;
}

static const struct {
    void (*change)(clattn_dense_problem *p);
    clattn_status status;
    const char *sentence;
} refusals[] = {
    {no_rank, CLATTN_INVALID_SHAPE, "q has rank 3, but must have 4"},
    {other_keys, CLATTN_INVALID_SHAPE, "v has shape [2, 4, 49, 16], but must have [2, 4, 50, any]"},
    {other_size, CLATTN_INVALID_SHAPE, "k has shape [2, 4, 50, 8], but must have [2, any, any, 16]"},
    {other_out, CLATTN_INVALID_SHAPE, "o has shape [2, 4, 29, 16], but must have [2, 4, 30, 16]"},
    {other_type, CLATTN_INVALID_TYPE, "v has type bf16, but q has f32"},
    {whole_type, CLATTN_INVALID_TYPE, "q has type i32, but must be f32, f16 or bf16"},
    {heads, CLATTN_INVALID_SHAPE, "k has 3 heads, which do not divide q's 4"},
    {negative, CLATTN_INVALID_SHAPE, "k has stride -800 along axis 1"},
    {overlapping, CLATTN_INVALID_SHAPE, "o is an output of extent 30 along axis 2, but has stride 0 there"},
    {huge, CLATTN_INVALID_SHAPE, "q: extent 2 times stride 4611686018427387903 overflows"},
    {bias_type, CLATTN_INVALID_TYPE, "bias has type f16, but must be f32"},
    {bias_shape, CLATTN_INVALID_SHAPE, "bias has shape [2, 4, 30, 51], but must have [2, 4, 30, 50]"},
    {bias_stride, CLATTN_INVALID_SHAPE, "bias has innermost stride 0, but must have 1"},
    {lse_shape, CLATTN_INVALID_SHAPE, "lse has shape [2, 4, 31], but must have [2, 4, 30]"},
    {lengths_type, CLATTN_INVALID_TYPE, "key_lengths has type i64, but must be i32"},
    {lengths_shape, CLATTN_INVALID_SHAPE, "query_lengths has shape [3], but must have [2]"},
    {causal, CLATTN_INVALID_ARGUMENT, "causal is 3, but must be in 0..2"},
    {scale, CLATTN_INVALID_ARGUMENT, "scale is nan"},
    {window, CLATTN_INVALID_ARGUMENT, "window_right is -2, but must be in -1"},
    {large_heads, CLATTN_UNSUPPORTED, "head size is 257"},
    {large_values, CLATTN_UNSUPPORTED, "head size is 300"},
    {transposed, CLATTN_INVALID_SHAPE, "v has innermost stride 50, but must have 1"},
};

START_TEST(wrong_problems_are_refused) {
    const dense_case c = {.B = 2, .H = 4, .M = 30, .N = 50, .D = D, .bias = BIAS_FULL};
    clattn_dense_problem p = dense_problem(&c);
    clattn_plan *plan = NULL;
    refusals[_i].change(&p);
    assert_refused(clattn_dense_plan(device()->context, &p, &plan), refusals[_i].status, refusals[_i].sentence);
    ck_assert_ptr_null(plan);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dense rules");
    TCase *all = tcase_create("rules");
    tcase_add_loop_test(all, constant_values_come_back, 0, 2);
    tcase_add_loop_test(all, the_order_of_keys_is_nothing, 0, 2);
    tcase_add_loop_test(all, a_causal_prefix_is_the_shorter_problem, 0, 2);
    tcase_add_loop_test(all, halves_merge_by_their_lse, 0, 2);
    tcase_add_loop_test(all, a_padded_batch_equals_its_sequences, 0, 2);
    tcase_add_test(all, both_plans_agree);
    tcase_add_loop_test(all, the_same_bits_again, 0, 2);
    tcase_add_loop_test(all, offsets_past_two_to_the_31, 0, 2);
    tcase_add_loop_test(all, wrong_problems_are_refused, 0, sizeof(refusals) / sizeof(*refusals));
    suite_add_tcase(suite, all);
    return run_device_suite(suite);
}
