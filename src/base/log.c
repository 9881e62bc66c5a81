#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Most lines fit here; build logs do not, and take the heap. */
enum { SHORT_LINE = 1024 };

void clattn__log_line(const clattn__log *log, int level, const char *format, ...) {
    if (!log || !log->write || level > log->level) {
        return;
    }
    char line[SHORT_LINE];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(line, sizeof line, format, args);
    char *whole = length >= SHORT_LINE ? malloc((size_t)length + 1) : NULL;
    if (whole) {
        vsnprintf(whole, (size_t)length + 1, format, again);
    }
    va_end(again);
    va_end(args);
    /* Without memory the line is cut rather than lost. */
    if (length >= 0) {
        log->write(log->user, level, whole ? whole : line);
    }
    free(whole);
}
