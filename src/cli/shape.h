/* Shapes in sentences. */
#ifndef CLATTN_CLI_SHAPE_H
#define CLATTN_CLI_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shape_text {
    char text[120]; /* "[2, 27, 384]" */
} shape_text;

/* rank may exceed known, the axes that shape holds: then "..." stands for the rest. */
shape_text shape_print(int rank, int known, const int64_t *shape);

bool shape_equal(int rank, const int64_t *a, const int64_t *b);

#endif
