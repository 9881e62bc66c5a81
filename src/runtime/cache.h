/* The disk cache of program binaries: one file an entry, <folder>/<key>.bin, written whole under another
 * name and renamed, so that any number of processes may fill one folder. */
#ifndef CLATTN_RUNTIME_CACHE_H
#define CLATTN_RUNTIME_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/hash.h"

/* Where entries live: option; where that is NULL CLATTN_CACHE_DIR, else $XDG_CACHE_HOME/clattn, else
 * $HOME/.cache/clattn. *folder is malloc'ed, or NULL when an empty text or no variable at all turns the cache off.
 * Errors: OUT_OF_HOST_MEMORY. */
clattn_status clattn__cache_folder(const char *option, char **folder, clattn__error *error);

/* Read an entry into malloc'ed memory. False when there is none, or when it is damaged in any way; *reason then
 * says why, NULL where the file simply does not exist. */
bool clattn__cache_read(const char *folder, const clattn__hash *key, unsigned char **binary, size_t *size,
                        const char **reason);

/* Write or replace an entry; makes the folder. */
clattn_status clattn__cache_write(const char *folder, const clattn__hash *key, const unsigned char *binary, size_t size,
                                  clattn__error *error);

#endif
