/* The gradients of a run: memory for them on both sides, and the file of the weights'. */
#ifndef CLATTN_CLI_GRADIENTS_H
#define CLATTN_CLI_GRADIENTS_H

#include "cli/output.h"
#include "cli/session.h"

enum { GRADIENTS_MAX = CLATTN_LAYER_SLOTS - CLATTN_LAYER_GRAD_WEIGHTS };

/* Zero-initialise.
 * y        [batch, length, size], the caller's; NULL: there is no backward pass
 * x        [batch, length, size], filled where not NULL
 * weights  of each weight, filled where not NULL; NULL for those that are not trained */
typedef struct gradients {
    const float *y;
    float *x;
    float *weights[GRADIENTS_MAX];
} gradients;

/* Host memory for what is wanted. */
bool gradients_alloc(gradients *g, const clattn_layer *layer, uint64_t elements, bool x, bool weights, failure *f);
void gradients_free(gradients *g);

/* Tensors of the backward pass into a layer's slots. shape: of x. */
bool gradients_put(session *s, const gradients *g, const clattn_layer *layer, const clattn_plan *plan, clattn_type type,
                   const int64_t *shape, clattn_tensor *slots, failure *f);

/* Read what is wanted back. */
bool gradients_get(session *s, const gradients *g, const clattn_tensor *slots, failure *f);

/* Add the file of the weights' gradients, under the weights' names and shapes, to a command's outputs. */
bool gradients_write(outputs *set, const char *path, const gradients *g, const clattn_layer *layer, failure *f);

#endif
