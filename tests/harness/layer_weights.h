/* Random weights of every layer. */
#ifndef CLATTN_TESTS_LAYER_WEIGHTS_H
#define CLATTN_TESTS_LAYER_WEIGHTS_H

#include "harness/layer_case.h"
#include "harness/rng.h"

/* Appends the weights that a case's layer takes; data->settings are parsed already. */
void layer_weights_make(const layer_case *c, rng *r, layer_data *data);

#endif
