/* What the library does behind its interface: its OpenCL calls and its allocations, counted, and failed on demand.
 *
 * A program that links spy.c overrides the loader's functions of these names; malloc, calloc, realloc and strdup are
 * wrapped by the linker (-Wl,--wrap=malloc …), for the objects linked into the program alone: those of the driver and
 * of libc do not count. */
#ifndef CLATTN_TESTS_SPY_H
#define CLATTN_TESTS_SPY_H

#include <stdbool.h>
#include <stdint.h>

#define SPY_LIST(X)                                                                                                    \
    X(CREATE_BUFFER)                                                                                                   \
    X(SUB_BUFFER) X(WRITE) X(READ) X(COPY) X(FILL) X(MAP) X(CREATE_PROGRAM) X(BUILD) X(CREATE_KERNEL) X(SET_ARG)       \
        X(KERNEL) X(TASK) X(MARKER) X(BARRIER) X(WAIT) X(FINISH) X(FLUSH) X(CALLBACK) X(MALLOC)

typedef enum spy_call {
#define SPY_ENUMERATOR(name) SPY_##name,
    SPY_LIST(SPY_ENUMERATOR)
#undef SPY_ENUMERATOR
        SPY_CALLS
} spy_call;

/* Forget counts and failures. */
void spy_reset(void);

/* Calls since the reset, by any thread. */
int spy_count(spy_call call);

/* All of them in one line, "KERNEL 4, SET_ARG 60", for messages; those named in `except` (ended by SPY_CALLS) are left
 * out. "" when there were none. Static. */
const char *spy_calls_except(const spy_call *except);

/* Let the number-th such call from now (1 = the next) answer code instead of doing anything; a MALLOC gives NULL. */
void spy_fail(spy_call call, int number, int32_t code);

/* Did that call come? */
bool spy_failed(void);

/* Events given out by queueing and retaining, less those released, since the program began. */
int spy_live_events(void);

#endif
