#include "cli/convert.h"

#include <string.h>

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) {
        return float_of(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent > 0) {
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    }
    float small = (float)fraction * 0x1p-24f; /* subnormal or 0; a float32 holds it as a normal number */
    return float_of(sign | bits_of(small));
}

float bf16_to_f32(uint16_t bits) { return float_of((uint32_t)bits << 16); }

/* Drop the low bits of an unsigned value, to the nearest, ties to even. */
static uint32_t round_off(uint32_t value, int drop) {
    uint32_t half = UINT32_C(1) << (drop - 1), odd = value >> drop & 1;
    return (value + half - 1 + odd) >> drop;
}

uint16_t f32_to_f16(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    }
    if (size >= 0x47800000) { /* 2^16; from 65520 on the carry below reaches infinity too */
        return (uint16_t)(sign | 0x7c00);
    }
    if (size >= 0x38800000) { /* 2^-14: normal; a carry out of the fraction rightly raises the exponent */
        return (uint16_t)(sign | round_off(size - (UINT32_C(112) << 23), 13));
    }
    if (size < 0x33000000) { /* below 2^-25, half the smallest */
        return (uint16_t)sign;
    }
    uint32_t fraction = (size & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | round_off(fraction, 126 - (int)(size >> 23)));
}

uint16_t f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)round_off(bits, 16);
}

size_t number_size(number type) {
    static const unsigned char sizes[] = {
        [NUMBER_F16] = 2, [NUMBER_BF16] = 2, [NUMBER_F32] = 4, [NUMBER_F64] = 8, [NUMBER_I32] = 4, [NUMBER_I64] = 8};
    return sizes[type];
}

bool number_is_float(number type) { return type <= NUMBER_F64; }

static uint64_t load_bits(const unsigned char *p, size_t size, bool big) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; ++i) {
        bits = bits << 8 | p[big ? i : size - 1 - i];
    }
    return bits;
}

float number_float(number type, const unsigned char *p, bool big) {
    uint64_t bits = load_bits(p, number_size(type), big);
    double wide;
    switch (type) {
    case NUMBER_F16:
        return f16_to_f32((uint16_t)bits);
    case NUMBER_BF16:
        return bf16_to_f32((uint16_t)bits);
    case NUMBER_F32:
        return float_of((uint32_t)bits);
    case NUMBER_F64:
        memcpy(&wide, &bits, sizeof wide);
        return (float)wide;
    default:
        return (float)number_integer(type, p, big);
    }
}

int64_t number_integer(number type, const unsigned char *p, bool big) {
    uint64_t bits = load_bits(p, number_size(type), big);
    return type == NUMBER_I32 ? (int32_t)(uint32_t)bits : (int64_t)bits;
}

bool shape_count(const int64_t *shape, int rank, int64_t limit, int64_t *count) {
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < rank; ++i) {
        if (shape[i] < 0 || (shape[i] > 0 && product > limit / shape[i])) {
            return false;
        }
        empty |= shape[i] == 0;
        product *= shape[i] > 0 ? shape[i] : 1;
    }
    *count = empty ? 0 : product;
    return true;
}
