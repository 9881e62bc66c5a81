/* Running plans and layers, guarded. */
#ifndef CLATTN_TESTS_RUN_H
#define CLATTN_TESTS_RUN_H

#include <clattn/layer.h>

#include "harness/device.h"
#include "harness/expect.h"

/* Enqueue a plan with a guarded, NaN-filled workspace of exactly the size it asks for, wait, and check the bands. */
void run_plan(const fixture *f, const clattn_plan *plan, const clattn_tensor *tensors, size_t count);
void run_plan_backward(const fixture *f, const clattn_plan *plan, const clattn_tensor *tensors, size_t count);

size_t weight_elements(const ref_weight *weight);

/* A layer and its inputs. ref.causal is not used: the settings say it.
 * type         storage of x and y
 * weight_type  storage of the weights
 * links        may be NULL */
typedef struct layer_run {
    const char *variant;
    const settings *settings;
    ref_layer ref;
    clattn_type type, weight_type;
    const ref_links *links;
} layer_run;

/* Create, load. For clattn_layer_destroy. */
clattn_layer *load_layer(const fixture *f, const layer_run *r);

/* Plan for the run's shape and run: x [B, n, d] -> y. */
void run_loaded_layer(const fixture *f, const layer_run *r, clattn_layer *layer, const double *x, double *y);

/* All of it. */
void run_layer(const fixture *f, const layer_run *r, const double *x, double *y);

#endif
