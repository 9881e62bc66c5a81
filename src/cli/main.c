/* clattn: attention layers from the command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/clattn.h>

#include "cli/command.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"devices", command_devices, "list the OpenCL devices"},
    {"run", command_run, "run one layer on arrays in files"},
    {"bench", command_bench, "time a layer or a core, once its output is checked"},
    {"links", command_links, "draw random links into a file"},
    {"cache", command_cache, "list or remove compiled kernels that are kept"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

int command_failed(const failure *f, int status) {
    fprintf(stderr, "clattn: %s\n", f->text);
    return status;
}

int command_misused(const char *command, const failure *f) {
    command_failed(f, EXIT_USAGE);
    fprintf(stderr, "usage: 'clattn %s --help' lists the options\n", command);
    return EXIT_USAGE;
}

static void print_usage(FILE *to) {
    fputs("usage: clattn COMMAND [options]\n\ncommands:\n", to);
    for (int i = 0; i < COMMAND_COUNT; ++i) {
        fprintf(to, "  %-10s%s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n'clattn COMMAND --help' lists a command's options; 'clattn --version' prints the version.\n"
          "Exit status: 0 done, 1 failed or wrong, 2 bad usage.\n",
          to);
}

static int reject(const char *word) {
    if (word) {
        fprintf(stderr, "clattn: unknown %s %s\n", word[0] == '-' ? "option" : "command", quote(word).text);
    }
    print_usage(stderr);
    return EXIT_USAGE;
}

/* What was printed has not arrived until stdout says so: a full disk or a closed pipe must not look like success. */
static int flushed(int status) {
    if (fflush(stdout) != 0 && status == EXIT_DONE) {
        fputs("clattn: cannot write to the standard output\n", stderr);
        return EXIT_WRONG;
    }
    return status;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        return reject(NULL);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("clattn %s\n", clattn_version());
        return EXIT_DONE;
    }
    for (int i = 0; i < COMMAND_COUNT; ++i) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return reject(argv[1]);
}

/* PoCL compiles a kernel for its first launch's work-group size, offset and grid, and once more for any when it is
 * asked for a binary to keep. The first gains nothing here, where kernels fix their own work-group size: without it a
 * start with empty caches takes four fifths of the time. A program's own affair, so not the library's. */
static void tune_driver(void) { setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 0); }

int main(int argc, char **argv) {
    tune_driver();
    return flushed(dispatch(argc, argv));
}
