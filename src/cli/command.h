/* The commands of the program: one file each. */
#ifndef CLATTN_CLI_COMMAND_H
#define CLATTN_CLI_COMMAND_H

#include "cli/fail.h"

/* Exit statuses, fixed: other tools rely on them. */
enum { EXIT_DONE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };

/* argv[0] is the command's own name. Each answers an exit status. */
int command_bench(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_run(int argc, char **argv);
int command_links(int argc, char **argv);
int command_cache(int argc, char **argv);

/* Print a failure's sentence to stderr and answer its exit status. */
int command_failed(const failure *f, int status);

/* The same for bad usage of a command, with where to read on. */
int command_misused(const char *command, const failure *f);

#endif
