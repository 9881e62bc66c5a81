/* Floats between host memory and buffers of any storage type. */
#ifndef CLATTN_CLI_TRANSFER_H
#define CLATTN_CLI_TRANSFER_H

#include "cli/session.h"

/* A contiguous tensor of float storage in a buffer of its own, filled from values unless NULL. what is for the
 * sentence. */
bool put_tensor(session *s, const char *what, clattn_type type, int rank, const int64_t *shape, const float *values,
                clattn_tensor *to, failure *f);

/* Read such a tensor back, behind what is queued. */
bool get_tensor(session *s, const char *what, const clattn_tensor *from, float *values, failure *f);

/* Elements of a contiguous tensor. */
uint64_t tensor_elements(int rank, const int64_t *shape);

#endif
