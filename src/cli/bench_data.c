/* Seeded numbers: the same on every machine. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/convert.h"

/* Each element by itself: a counter through a mixing function (splitmix64's). */
static uint64_t mix(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

float bench_number(int64_t seed, uint64_t stream, uint64_t i) {
    uint64_t bits = mix(mix((uint64_t)seed * 256 + stream) + i);
    double unit = (double)(bits >> 11) * 0x1p-53;
    return (float)((2 * unit - 1) * 1.7320508075688772);
}

float bench_round(float value, clattn_type type) {
    switch (type) {
    case CLATTN_F16:
        return f16_to_f32(f32_to_f16(value));
    case CLATTN_BF16:
        return bf16_to_f32(f32_to_bf16(value));
    default:
        return value;
    }
}

bool bench_array_make(bench_array *a, const char *name, clattn_type type, int32_t rank, const int64_t *shape,
                      int64_t seed, uint64_t stream, float scale, float shift, failure *f) {
    *a = (bench_array){.name = name, .type = type, .rank = rank, .count = 1};
    memcpy(a->shape, shape, (size_t)rank * sizeof *shape);
    /* 2^46 bytes: no machine has them, and products of sizes stay far from overflow. */
    if (!shape_count(shape, rank, INT64_C(1) << 44, &a->count)) {
        return fail_with(f, "%s is too large", name);
    }
    a->values = malloc((size_t)(a->count > 0 ? a->count : 1) * sizeof *a->values);
    if (!a->values) {
        return fail_with(f, "no memory for the %" PRId64 " numbers of %s", a->count, name);
    }
    for (int64_t i = 0; i < a->count; ++i) {
        a->values[i] = bench_round(bench_number(seed, stream, (uint64_t)i) * scale + shift, type);
    }
    return true;
}

void bench_array_free(bench_array *a) {
    free(a->values);
    memset(a, 0, sizeof *a);
}

static bool ends(const char *name, const char *with) {
    size_t length = strlen(name), wanted = strlen(with);
    return length >= wanted && strcmp(name + length - wanted, with) == 0;
}

bool bench_weight_make(bench_array *a, const clattn_weight_info *info, int64_t seed, uint64_t stream, failure *f) {
    float scale = 0.1F, shift = 0; /* biases, running means, w of an adaptive mix */
    double fan = 1;
    for (int32_t i = 1; i < info->rank; ++i) {
        fan *= (double)info->shape[i];
    }
    if (ends(info->name, "running_var") || ends(info->name, "gamma") || strcmp(info->name, "position_weights") == 0 ||
        ends(info->name, "block.1.weight")) {
        shift = info->rank == 4 ? 0 : 1; /* near 1; but a 1x1 convolution has that last name too */
    }
    if (shift == 0 && ends(info->name, "weight")) {
        scale = (float)(1 / sqrt(fan > 0 ? fan : 1));
    } else if (shift == 0 && info->rank > 1) {
        scale = 0.5F; /* tables of logits, rows of memory */
    }
    bool done = bench_array_make(a, info->name, CLATTN_F32, info->rank, info->shape, seed, stream, scale, shift, f);
    a->trainable = info->trainable;
    return done;
}
