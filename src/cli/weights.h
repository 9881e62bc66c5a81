/* A layer's weights, from a safetensors file onto the device. */
#ifndef CLATTN_CLI_WEIGHTS_H
#define CLATTN_CLI_WEIGHTS_H

#include "cli/safetensors.h"
#include "cli/session.h"

/* What the file holds, for the library to infer sizes from; malloc'ed, borrowing the file's names. */
bool weights_list(const safetensors *file, clattn_weight_info **infos, size_t *count, failure *f);

/* Check that every weight of the layer is in the file with its exact shape, then load them and wait. path is for the
 * sentences. */
bool weights_load(session *s, const safetensors *file, const char *path, clattn_layer *layer, failure *f);

#endif
