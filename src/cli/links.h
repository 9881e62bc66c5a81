/* Links: extra pairs (query, key) that see each other, from a file or drawn. */
#ifndef CLATTN_CLI_LINKS_H
#define CLATTN_CLI_LINKS_H

#include <clattn/cjar.h>

#include "cli/options.h"

/* Read [m, 2] of whole numbers 0..length-1. Both fill links, for clattn_links_finish. */
bool links_read(const char *path, int64_t length, clattn_links *links, failure *f);

/* Draw pairs outside the window that the settings name. */
bool links_draw(const settings *s, int64_t length, double probability, int64_t seed, clattn_links *links, failure *f);

#endif
