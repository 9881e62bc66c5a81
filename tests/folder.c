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

void folder_put(const char *path, const void *data, size_t size) {
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(data, 1, size, stream), size);
    ck_assert_int_eq(fclose(stream), 0);
}

void folder_expect(const char *path, const void *data, size_t size) {
    FILE *stream = fopen(path, "rb");
    ck_assert_msg(stream != NULL, "%s is missing", path);
    char *held = malloc(size + 1);
    ck_assert_uint_eq(fread(held, 1, size + 1, stream), size);
    ck_assert_mem_eq(held, data, size);
    free(held);
    fclose(stream);
}
