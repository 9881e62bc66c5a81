/* Links from a file: extra pairs (query, key) that see each other. */
#ifndef CLATTN_CLI_LINKS_H
#define CLATTN_CLI_LINKS_H

#include "cli/npy.h"

/* Read [m, 2] of whole numbers 0..length-1. */
bool read_links(const char *path, int64_t length, npy_array *pairs, failure *f);

#endif
