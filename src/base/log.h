/* Where sentences go: a callback and a level. Knows no OpenCL. */
#ifndef CLATTN_BASE_LOG_H
#define CLATTN_BASE_LOG_H

/* Same values as clattn_log_level. */
enum { CLATTN__LOG_ERROR, CLATTN__LOG_WARNING, CLATTN__LOG_INFO, CLATTN__LOG_DEBUG };

typedef struct clattn__log {
    void (*write)(void *user, int level, const char *line); /* NULL = silent */
    void *user;
    int level; /* lines above it are dropped */
} clattn__log;

void clattn__log_line(const clattn__log *log, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
