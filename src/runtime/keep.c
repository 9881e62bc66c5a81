/* Some kernels out of a file of several.
 *
 * A plan wants kernels under defines that the file's other kernels need not share. PoCL compiles, and stores
 * in its binary, every kernel of a program, wanted or not. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/source.h"

static bool starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* text[0 .. length) holds `name (` as a whole word; name has size characters. */
static bool declares(const char *text, size_t length, const char *name, size_t size) {
    for (const char *at = text; at + size < text + length; at++) {
        char before = at == text ? ' ' : at[-1];
        if (!strncmp(at, name, size) && !isalnum((unsigned char)before) && before != '_' &&
            at[size + strspn(at + size, " \n")] == '(')
            return true;
    }
    return false;
}

/* How many of the names it declares. */
static int count_declared(const char *text, size_t length, const char *names, int *all) {
    int count = 0;
    *all = 0;
    for (const char *name = names + strspn(names, " "); *name; name += strspn(name, " ")) {
        const size_t size = strcspn(name, " ");
        count += declares(text, length, name, size);
        ++*all;
        name += size;
    }
    return count;
}

/* If a kernel starts at this line, its opening brace; attributes may come before the word itself. */
static const char *find_body(const char *line) {
    if (!starts(line, "__kernel") && !starts(line, "__attribute__"))
        return NULL;
    const char *brace = strchr(line, '{'), *word = strstr(line, "__kernel");
    return brace && word && word < brace ? brace : NULL;
}

/* Past the last line of a kernel: its own line, or the next one that begins with a brace. NULL when the next kernel
 * starts before that: the file is not written as expected. */
static const char *find_end(const char *brace) {
    const char *end = brace + strcspn(brace, "\n");
    if (end[-1] != '}') {
        end = strstr(brace, "\n}");
        const char *other = strstr(brace, "\n__kernel");
        if (!end || (other && other < end))
            return NULL;
        end += 1 + strcspn(end + 1, "\n");
    }
    return *end ? end + 1 : end;
}

/* Where the kernel that starts at this line ends, if it is to go; else NULL. */
static const char *find_unwanted(const char *line, const char *names) {
    const char *brace = find_body(line);
    int all;
    return brace && !count_declared(line, (size_t)(brace - line), names, &all) ? find_end(brace) : NULL;
}

void clattn__source_keep(char *text, const char *names) {
    char *to = text;
    int all;
    if (count_declared(text, strlen(text), names, &all) < all)
        return; /* a name may come out of a macro */
    for (const char *line = text; *line;) {
        const char *unwanted = find_unwanted(line, names);
        const char *next = line + strcspn(line, "\n");
        next = unwanted ? unwanted : *next ? next + 1 : next;
        for (; line < next; line++)
            if (!unwanted || *line == '\n') /* later lines keep their numbers */
                *to++ = *line;
    }
    *to = 0;
}
