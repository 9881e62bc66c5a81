#include "harness/rng.h"

#include <math.h>

#include "reference/reference.h"

rng rng_make(uint64_t seed) { return (rng){.state = seed}; }

uint64_t rng_next(rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

double rng_uniform(rng *r, double low, double high) { return low + (high - low) * unit(r); }

double rng_normal(rng *r) {
    double radius = sqrt(-2 * log(1 - unit(r)));
    return radius * cos(6.283185307179586 * unit(r));
}

int rng_below(rng *r, int bound) { return (int)(unit(r) * bound); }

const char *fill_name(fill kind) {
    static const char *const names[] = {"normal", "uniform", "huge", "denormal", "ties", "constant"};
    return kind < FILL_KINDS ? names[kind] : "?";
}

static double draw(rng *r, fill kind) {
    switch (kind) {
    case FILL_UNIFORM:
        return rng_uniform(r, -1, 1);
    case FILL_HUGE:
        return 1000 * rng_normal(r);
    case FILL_DENORMAL:
        return 0x1p-130 * rng_normal(r);
    case FILL_TIES:
        return rng_below(r, 3) - 1;
    case FILL_CONSTANT:
        return 0.5;
    default:
        return rng_normal(r);
    }
}

void rng_fill(rng *r, fill kind, double *values, size_t count) {
    for (size_t e = 0; e < count; e++)
        values[e] = (float)draw(r, kind);
}

double *rng_array(rng *r, double deviation, size_t count) {
    double *values = ref_array(count);
    for (size_t e = 0; e < count; e++)
        values[e] = (float)(deviation * rng_normal(r));
    return values;
}
