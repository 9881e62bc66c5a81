/* A small deterministic generator (splitmix64): the same numbers on every machine. */
#ifndef CLATTN_TESTS_RNG_H
#define CLATTN_TESTS_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

rng rng_make(uint64_t seed);
uint64_t rng_next(rng *r);

/* In [low, high). */
double rng_uniform(rng *r, double low, double high);
double rng_normal(rng *r);
/* In [0, bound). */
int rng_below(rng *r, int bound);

/* What a test fills an input with. */
typedef enum fill {
    FILL_NORMAL,   /* normal, deviation 1 */
    FILL_UNIFORM,  /* [−1, 1) */
    FILL_HUGE,     /* normal, deviation 1000 */
    FILL_DENORMAL, /* below the smallest normal float32 */
    FILL_TIES,     /* −1, 0 or 1: thousands of equal scores */
    FILL_CONSTANT, /* 0.5 */
    FILL_KINDS
} fill;

const char *fill_name(fill kind);
void rng_fill(rng *r, fill kind, double *values, size_t count);

/* count new normal numbers times deviation, rounded to float32; for free(). */
double *rng_array(rng *r, double deviation, size_t count);

#endif
