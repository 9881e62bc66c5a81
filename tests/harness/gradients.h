/* Gradients of layers: from the device, from differences of the float64 references, and their comparison. */
#ifndef CLATTN_TESTS_GRADIENTS_H
#define CLATTN_TESTS_GRADIENTS_H

#include "harness/layer_case.h"

enum { MOST_GRADIENTS = 24 };

/* Owned. weights: in the order of the layer's own weights; NULL where one has no gradient. */
typedef struct gradients {
    double *x;
    size_t x_count;
    double *weights[MOST_GRADIENTS];
    size_t weight_counts[MOST_GRADIENTS];
    char names[MOST_GRADIENTS][80];
    size_t count;
} gradients;

/* How to run backward. Zeros are the defaults.
 * grad_type  storage of the weights' gradients
 * before     every element of the weights' gradients before the call, accumulated to; 0 = overwrite
 * repeats    further backward calls on the same plan, whose bits must equal the first's */
typedef struct gradient_options {
    clattn_type grad_type;
    double before;
    int repeats;
} gradient_options;

/* Forward and backward on the device, everything guarded: dy [B, n, d] is rounded to the run's type. */
void run_gradients(const fixture *f, const layer_run *r, const gradient_options *options, const double *x,
                   const double *dy, gradients *out);
void gradients_free(gradients *g);

/* Every bit of every gradient, or fail the test: they differ "from run to run". */
void assert_same_gradients(const gradients *a, const gradients *b, const char *from);

/* The case's gradients in o->grad_type are those of the same weights stored in float32, bit by bit. */
void check_gradient_storage(const fixture *f, const layer_case *c, const gradient_options *o);

/* Run a case and compare the gradients of the loss Σ y dy, dy normal, with central differences of the reference in
 * float64: single elements of each tensor (all of small ones), and the slope along random directions of all of it.
 * The case's tolerance defaults to 1e-4 for f32, 8e-3 for f16, 6e-2 for bf16: of the tensor's largest magnitude, or of
 * a thousandth of the largest in all tensors. */
void check_layer_gradients(const fixture *f, const layer_case *c, const gradient_options *options);

#endif
