#include "harness/storage.h"

#include <math.h>
#include <string.h>

/* Nearest multiple of 2^exponent, ties to even (the default rounding mode of rint). */
static double nearest(double value, int exponent) { return ldexp(rint(ldexp(value, -exponent)), exponent); }

/* A binary format of 16 bits: mantissa bits (without the leading one), smallest normal exponent, largest exponent. */
typedef struct format16 {
    int mantissa, smallest, largest;
} format16;

static const format16 half = {.mantissa = 10, .smallest = -14, .largest = 15};
static const format16 bfloat = {.mantissa = 7, .smallest = -126, .largest = 127};

static uint16_t encode(const format16 *f, double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinite = (uint16_t)((f->largest - f->smallest + 2) << f->mantissa);
    if (isnan(value))
        return sign | infinite | 1;
    int exponent = value == 0 || isinf(value) ? f->smallest : ilogb(value);
    exponent = exponent < f->smallest ? f->smallest : exponent;
    double magnitude = isinf(value) ? INFINITY : nearest(fabs(value), exponent - f->mantissa);
    if (magnitude >= ldexp(1, f->largest + 1))
        return sign | infinite;
    /* In units of the last place the bits just count: a carry into the next exponent is right by itself. */
    uint16_t units = (uint16_t)ldexp(magnitude, f->mantissa - exponent);
    return (uint16_t)(sign | (units + ((exponent - f->smallest) << f->mantissa)));
}

static double decode(const format16 *f, uint16_t bits) {
    int field = (bits & 0x7fff) >> f->mantissa, mantissa = bits & ((1 << f->mantissa) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (field == f->largest - f->smallest + 2)
        return mantissa ? NAN : sign * INFINITY;
    if (field == 0)
        return sign * ldexp(mantissa, f->smallest - f->mantissa);
    return sign * ldexp(mantissa + (1 << f->mantissa), field - 1 + f->smallest - f->mantissa);
}

static void pack_one(clattn_type type, double value, void *to) {
    switch (type) {
    case CLATTN_F32:
        *(float *)to = (float)value;
        break;
    case CLATTN_F16:
        *(uint16_t *)to = encode(&half, value);
        break;
    case CLATTN_BF16:
        *(uint16_t *)to = encode(&bfloat, value);
        break;
    case CLATTN_I32:
        *(int32_t *)to = (int32_t)value;
        break;
    case CLATTN_I64:
        *(int64_t *)to = (int64_t)value;
        break;
    }
}

static double unpack_one(clattn_type type, const void *from) {
    switch (type) {
    case CLATTN_F16:
        return decode(&half, *(const uint16_t *)from);
    case CLATTN_BF16:
        return decode(&bfloat, *(const uint16_t *)from);
    case CLATTN_I32:
        return *(const int32_t *)from;
    case CLATTN_I64:
        return (double)*(const int64_t *)from;
    default:
        return *(const float *)from;
    }
}

/* Bytes of an element; the harness must not depend on the library to judge it. */
static size_t size_of(clattn_type type) {
    return type == CLATTN_I64 ? 8 : type == CLATTN_F32 || type == CLATTN_I32 ? 4 : 2;
}

void storage_pack(clattn_type type, const double *values, size_t count, void *bytes) {
    for (size_t e = 0; e < count; e++)
        pack_one(type, values[e], (char *)bytes + e * size_of(type));
}

void storage_unpack(clattn_type type, const void *bytes, size_t count, double *values) {
    for (size_t e = 0; e < count; e++)
        values[e] = unpack_one(type, (const char *)bytes + e * size_of(type));
}

void storage_round(clattn_type type, double *values, size_t count) {
    for (size_t e = 0; e < count; e++) {
        int64_t element = 0;
        pack_one(type, values[e], &element);
        values[e] = unpack_one(type, &element);
    }
}

double storage_tolerance(clattn_type type) { return type == CLATTN_F16 ? 4e-3 : type == CLATTN_BF16 ? 3e-2 : 2e-5; }
