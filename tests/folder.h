/* A folder of its own for each test that touches files. */
#ifndef CLATTN_TESTS_FOLDER_H
#define CLATTN_TESTS_FOLDER_H

#include <stddef.h>

/* Check's checked fixture: make the folder; remove it with all that is in it. */
void folder_setup(void);
void folder_teardown(void);

/* Path of a name inside it, malloc'ed. */
char *folder_path(const char *name);

/* Names directly inside it: temporary files that were left behind show up here. */
int folder_count(void);

/* Write a file. */
void folder_put(const char *path, const void *data, size_t size);

/* Assert that a file holds exactly these bytes. */
void folder_expect(const char *path, const void *data, size_t size);

#endif
