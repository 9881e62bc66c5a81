/* A folder of its own for each test that touches files. */
#ifndef CLATTN_TESTS_FOLDER_H
#define CLATTN_TESTS_FOLDER_H

/* Check's checked fixture: make the folder; remove it with all that is in it. */
void folder_setup(void);
void folder_teardown(void);

/* Path of a name inside it, malloc'ed. */
char *folder_path(const char *name);

/* Names directly inside it: temporary files that were left behind show up here. */
int folder_count(void);

#endif
