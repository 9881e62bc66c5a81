#include "folder.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

void folder_setup(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/clattn-test-XXXXXX", parent && *parent ? parent : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            char child[1024];
            snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
            if (unlink(child) != 0) {
                remove_tree(child);
            }
        }
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(path);
}

void folder_teardown(void) { remove_tree(folder); }

char *folder_path(const char *name) {
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    ck_assert_ptr_nonnull(path);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

int folder_count(void) {
    int count = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return count;
}
