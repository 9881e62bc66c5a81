/* Times of runs. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/clock.h"

enum { LEAST_RUNS = 5, MOST_RUNS = 1000 };
static const double enough_ms = 500;
static const uint64_t least_flush = UINT64_C(64) << 20;

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between the two nearest of count sorted values. */
static double quantile(const double *sorted, int64_t count, double share) {
    const double at = share * (double)(count - 1);
    const int64_t below = (int64_t)at;
    const double part = at - (double)below;
    return below + 1 < count ? sorted[below] * (1 - part) + sorted[below + 1] * part : sorted[below];
}

/* A buffer several times the size of the device's cache. */
static bool make_flush(session *s, cl_mem *buffer, uint64_t *bytes, failure *f) {
    cl_ulong cache = 0;
    clGetDeviceInfo(s->device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL);
    *bytes = 4 * cache > least_flush ? 4 * cache : least_flush;
    if (*bytes > s->info.max_alloc_bytes) {
        *bytes = s->info.max_alloc_bytes / 16 * 16;
    }
    return session_buffer(s, "what flushes the caches", *bytes, NULL, buffer, f);
}

static bool flush(session *s, cl_mem buffer, uint64_t bytes, failure *f) {
    const cl_int pattern = 1;
    cl_event done;
    cl_int code = clEnqueueFillBuffer(s->queue, buffer, &pattern, sizeof pattern, 0, (size_t)bytes, 0, NULL, &done);
    return code == CL_SUCCESS ? session_wait(s, "flushing the caches", done, f)
                              : fail_with(f, "the caches were not flushed: %s", clattn_status_string(code));
}

static bool wanted(int64_t repeat, int64_t runs, double sum) {
    return repeat > 0 ? runs < repeat : runs < LEAST_RUNS || (sum < enough_ms && runs < MOST_RUNS);
}

/* ms and host hold a number a run. */
static bool run_all(bench_subject *s, int64_t repeat, cl_mem flushed, uint64_t bytes, double *ms, double *host,
                    int64_t *runs, failure *f) {
    double sum = 0;
    for (*runs = 0; wanted(repeat, *runs, sum); ++*runs) {
        bench_run run;
        if ((flushed && !flush(s->session, flushed, bytes, f)) || !bench_subject_run(s, s->c->train, &run, f)) {
            return false;
        }
        ms[*runs] = run.all;
        host[*runs] = run.host;
        sum += run.all;
    }
    return true;
}

bool bench_measure(bench_subject *s, int64_t repeat, bool cold, bench_times *times, failure *f) {
    const int64_t room = repeat > 0 ? repeat : MOST_RUNS;
    double *ms = calloc(2 * (size_t)room, sizeof *ms), *host = ms + (ms ? room : 0);
    cl_mem flushed = NULL;
    uint64_t bytes = 0;
    bool done = ms ? (!cold || make_flush(s->session, &flushed, &bytes, f)) &&
                         run_all(s, repeat, flushed, bytes, ms, host, &times->runs, f)
                   : fail_with(f, "no memory for the times of %" PRId64 " runs", room);
    if (done) {
        qsort(ms, (size_t)times->runs, sizeof *ms, ascending);
        qsort(host, (size_t)times->runs, sizeof *host, ascending);
        times->median = quantile(ms, times->runs, 0.5);
        times->p10 = quantile(ms, times->runs, 0.1);
        times->p90 = quantile(ms, times->runs, 0.9);
        times->host = quantile(host, times->runs, 0.5);
    }
    if (flushed) {
        clReleaseMemObject(flushed);
    }
    free(ms);
    return done;
}
