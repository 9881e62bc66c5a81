#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

clattn_status clattn__fail(clattn__error *e, clattn_status status, const char *format, ...) {
    if (!e || e->status != CLATTN_SUCCESS) {
        return status;
    }
    e->status = status;
    va_list args;
    va_start(args, format);
    if (vsnprintf(e->text, sizeof e->text, format, args) < 0) {
        e->text[0] = 0;
    }
    va_end(args);
    return status;
}
