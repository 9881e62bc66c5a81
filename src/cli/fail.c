#include "cli/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void keep_one_line(char *text) {
    for (; *text; ++text) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

void fail_note(failure *f, const char *format, ...) {
    if (!f || f->text[0]) {
        return;
    }
    va_list args;
    va_start(args, format);
    if (vsnprintf(f->text, sizeof f->text, format, args) < 0) {
        snprintf(f->text, sizeof f->text, "failed, and the reason could not be printed");
    }
    va_end(args);
    keep_one_line(f->text);
}

void fail_note_system(failure *f, const char *verb, const char *path) {
    fail_note(f, "cannot %s %s: %s", verb, path, strerror(errno));
}

quoted quote(const char *name) {
    quoted q;
    size_t room = sizeof q.text - sizeof "'...'", length = strlen(name);
    size_t cut = length <= room ? length : room;
    while (cut < length && cut > 0 && ((unsigned char)name[cut] & 0xc0) == 0x80) {
        --cut; /* not inside a UTF-8 character */
    }
    snprintf(q.text, sizeof q.text, "'%.*s%s'", (int)cut, name, cut < length ? "..." : "");
    return q;
}
