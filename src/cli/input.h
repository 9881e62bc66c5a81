/* Files read whole. */
#ifndef CLATTN_CLI_INPUT_H
#define CLATTN_CLI_INPUT_H

#include <stddef.h>

#include "cli/fail.h"

/* Read a file, or a pipe up to 4 GiB, into malloc'ed memory. */
bool input_read(const char *path, unsigned char **data, size_t *size, failure *f);

#endif
