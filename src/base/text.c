#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void clattn__text_add(clattn__text *text, const char *format, ...) {
    size_t room = text->length < text->size ? text->size - text->length : 0;
    va_list args;
    va_start(args, format);
    int needed = vsnprintf(room > 0 ? text->data + text->length : NULL, room, format, args);
    va_end(args);
    if (needed > 0) {
        text->length += (size_t)needed;
    }
}
