/* clattn cache: the folder of compiled kernels, listed or emptied. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <clattn/device.h>

#include "cli/command.h"
#include "cli/options.h"

enum { KEY_DIGITS = 32, STALE_SECONDS = 600 };

static const char help[] =
    "usage: clattn cache ls|clear\n\n"
    "List or remove the compiled kernels that are kept on disk: in CLATTN_CACHE_DIR (empty: none\n"
    "are kept), else $XDG_CACHE_HOME/clattn, else $HOME/.cache/clattn. clear removes nothing but\n"
    "entries, and temporary files of theirs that nobody writes any more.\n";

/* What a walk through the folder has met. */
typedef struct tally {
    int64_t entries, bytes;
} tally;

typedef bool visit(const char *path, const char *name, const struct stat *info, tally *met, failure *f);

/* ---- names ---- */

/* Behind "<key>.bin", or NULL. */
static const char *after_entry(const char *name) {
    for (int i = 0; i < KEY_DIGITS; ++i) {
        if (!isxdigit((unsigned char)name[i])) {
            return NULL;
        }
    }
    return strncmp(name + KEY_DIGITS, ".bin", 4) == 0 ? name + KEY_DIGITS + 4 : NULL;
}

static bool is_entry(const char *name) {
    const char *rest = after_entry(name);
    return rest && !*rest;
}

/* "<key>.bin.<process>.<number>.tmp"; 0: it is none. */
static long temporary_process(const char *name) {
    const char *rest = after_entry(name);
    long process = 0;
    int number, length = 0;
    return rest && sscanf(rest, ".%9ld.%9d.tmp%n", &process, &number, &length) == 2 && length > 0 && !rest[length]
               ? process
               : 0;
}

/* Its process is gone, or, on another machine that shares the folder, it is far older than any write lasts. */
static bool is_stale(const char *name, const struct stat *info) {
    long process = temporary_process(name);
    return process > 0 &&
           ((kill((pid_t)process, 0) != 0 && errno == ESRCH) || time(NULL) - info->st_mtime > STALE_SECONDS);
}

/* ---- the folder ---- */

static bool visit_file(const char *folder, const char *name, visit *each, tally *met, failure *f) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    struct stat info;
    if (!path) {
        return fail_with(f, "no memory for a name of %zu bytes", size);
    }
    snprintf(path, size, "%s/%s", folder, name);
    /* Gone meanwhile, or a folder, or a link: not an entry. */
    bool done = lstat(path, &info) != 0 || !S_ISREG(info.st_mode) || each(path, name, &info, met, f);
    free(path);
    return done;
}

/* A folder that is not there is empty. */
static bool walk(const char *folder, visit *each, tally *met, failure *f) {
    DIR *dir = opendir(folder);
    bool done = true;
    if (!dir) {
        return errno == ENOENT || fail_system(f, "read", folder);
    }
    for (struct dirent *entry; done && (entry = readdir(dir));) {
        done = !after_entry(entry->d_name) || visit_file(folder, entry->d_name, each, met, f);
    }
    closedir(dir);
    return done;
}

static bool list(const char *path, const char *name, const struct stat *info, tally *met, failure *f) {
    (void)path;
    (void)f;
    char when[32] = "?";
    struct tm local;
    if (!is_entry(name)) {
        return true;
    }
    if (localtime_r(&info->st_mtime, &local)) {
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    }
    printf("%.*s  %s  %10jd bytes\n", KEY_DIGITS, name, when, (intmax_t)info->st_size);
    met->entries++;
    met->bytes += info->st_size;
    return true;
}

static bool clear(const char *path, const char *name, const struct stat *info, tally *met, failure *f) {
    if (!is_entry(name) && !is_stale(name, info)) {
        return true;
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        return fail_system(f, "remove", path);
    }
    met->entries += is_entry(name);
    met->bytes += info->st_size;
    return true;
}

/* ---- the command ---- */

static bool perform(bool clears, failure *f) {
    size_t size = clattn_cache_folder(NULL, 0) + 1;
    char *folder = malloc(size);
    tally met = {0};
    if (!folder) {
        return fail_with(f, "no memory for a name of %zu bytes", size);
    }
    clattn_cache_folder(folder, size);
    if (!*folder) {
        puts("no kernels are kept: CLATTN_CACHE_DIR is empty, or HOME is not set");
        free(folder);
        return true;
    }
    bool done = walk(folder, clears ? clear : list, &met, f);
    if (done) {
        printf("%s%" PRId64 " %s, %" PRId64 " bytes, %s %s\n", clears ? "removed " : "", met.entries,
               met.entries == 1 ? "entry" : "entries", met.bytes, clears ? "from" : "in", folder);
    }
    free(folder);
    return done;
}

int command_cache(int argc, char **argv) {
    struct {
        bool help;
    } a = {0};
    const option_row rows[] = {{"help", OPTION_FLAG, 0, NULL}, {0}};
    const char *word = NULL;
    failure f = {0};
    bool parsed =
        options_parse(argc, argv, &(option_set){.rows = rows, .to = &a, .word = &word, .word_name = "ACTION"}, &f);
    if (parsed && a.help) {
        fputs(help, stdout);
        return EXIT_DONE;
    }
    bool clears = word && strcmp(word, "clear") == 0;
    if (parsed && !clears && !(word && strcmp(word, "ls") == 0)) {
        parsed = word ? fail_with(&f, "there is no action %s: say ls or clear", quote(word).text)
                      : fail_with(&f, "no action is given: say ls or clear");
    }
    if (!parsed) {
        return command_misused("cache", &f);
    }
    return perform(clears, &f) ? EXIT_DONE : command_failed(&f, EXIT_WRONG);
}
