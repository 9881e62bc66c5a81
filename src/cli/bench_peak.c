/* The device's peaks, measured: multiply-adds, and a copy between two buffers that no cache holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/clock.h"

extern const char bench_peak_text[];

enum { CHAINS = 10, BLOCK = 4096, RUNS = 5, ITEMS_A_UNIT = 64 };
static const double least_ms = 20;
static const uint64_t copy_bytes = UINT64_C(96) << 20;

typedef struct bench_kernels {
    cl_program program;
    cl_kernel fma, copy;
    cl_mem from, to;
    cl_uint width;
    size_t group, items, copy_items;
} bench_kernels;

static bool failed(const char *what, cl_int code, failure *f) {
    return fail_with(f, "the device's peak was not measured: %s: %s", what, clattn_status_string(code));
}

static bool build(session *s, bench_kernels *k, failure *f) {
    cl_device_fp_config config = 0;
    char options[128];
    cl_int code;
    const char *text = bench_peak_text;
    clGetDeviceInfo(s->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config, NULL);
    snprintf(options, sizeof options, "-cl-std=CL1.2 -DVW=%u -DWG=%u -DBLOCK=%u -DFAST_FMA=%d", k->width,
             (unsigned)k->group, (unsigned)BLOCK, (config & CL_FP_FMA) != 0);
    k->program = clCreateProgramWithSource(s->cl, 1, &text, NULL, &code);
    if (!k->program || (code = clBuildProgram(k->program, 1, &s->device, options, NULL, NULL)) != CL_SUCCESS) {
        return failed("building its kernels", code, f);
    }
    k->fma = clCreateKernel(k->program, "peak_fma", &code);
    k->copy = k->fma ? clCreateKernel(k->program, "peak_copy", &code) : NULL;
    return k->copy || failed("making its kernels", code, f);
}

static bool choose(session *s, bench_kernels *k, failure *f) {
    const cl_uint native = s->info.vector_width_f32;
    const bool cpu = strcmp(s->info.kind, "cpu") == 0;
    k->width = native >= 16 ? 16 : native >= 8 ? 8 : 4;
    k->group = cpu || s->info.max_work_group < 64 ? 1 : 64;
    k->items = k->group * ITEMS_A_UNIT * s->info.compute_units;
    uint64_t bytes = copy_bytes < s->info.max_alloc_bytes ? copy_bytes : s->info.max_alloc_bytes;
    const uint64_t block = (uint64_t)BLOCK * k->width * sizeof(float);
    k->copy_items = (size_t)(bytes / block) * k->group;
    const uint64_t out = (uint64_t)k->items * k->width * sizeof(float);
    bytes = bytes / block * block;
    return session_buffer(s, "the peak's input", bytes, NULL, &k->from, f) &&
           session_buffer(s, "the peak's output", bytes > out ? bytes : out, NULL, &k->to, f);
}

static bool launch(session *s, cl_kernel kernel, size_t items, size_t group, double *ms, failure *f) {
    cl_event done;
    double start = clock_ms();
    cl_int code = clEnqueueNDRangeKernel(s->queue, kernel, 1, NULL, &items, &group, 0, NULL, &done);
    if (code != CL_SUCCESS) {
        return failed("running its kernels", code, f);
    }
    bool waited = session_wait(s, "measuring the peak", done, f);
    *ms = clock_ms() - start;
    return waited;
}

/* The best of a few runs, each long enough for the clock. */
static bool measure_fma(session *s, bench_kernels *k, double *gflops, failure *f) {
    const cl_float scale = 0.5F;
    cl_int rounds = 1024;
    double ms = 0, best = 0;
    clSetKernelArg(k->fma, 0, sizeof k->to, &k->to);
    clSetKernelArg(k->fma, 1, sizeof scale, &scale);
    for (int run = 0; run <= RUNS;) {
        clSetKernelArg(k->fma, 2, sizeof rounds, &rounds);
        if (!launch(s, k->fma, k->items, k->group, &ms, f)) {
            return false;
        }
        if (ms < least_ms && rounds < 1 << 28) {
            rounds *= 2;
            continue;
        }
        best = fmax(best, 2.0 * CHAINS * k->width * rounds * (double)k->items / ms * 1e-6);
        run++;
    }
    *gflops = best;
    return true;
}

static bool measure_copy(session *s, bench_kernels *k, double *gbps, failure *f) {
    const double bytes = 2.0 * (double)(k->copy_items / k->group) * BLOCK * k->width * sizeof(float);
    double ms = 0, best = 0;
    clSetKernelArg(k->copy, 0, sizeof k->from, &k->from);
    clSetKernelArg(k->copy, 1, sizeof k->to, &k->to);
    for (int run = 0; run <= RUNS; ++run) {
        if (!launch(s, k->copy, k->copy_items, k->group, &ms, f)) {
            return false;
        }
        best = run > 0 ? fmax(best, bytes / ms * 1e-6) : 0; /* the first run touches the memory */
    }
    *gbps = best;
    return true;
}

static void release(bench_kernels *k) {
    if (k->from) {
        clReleaseMemObject(k->from);
    }
    if (k->to) {
        clReleaseMemObject(k->to);
    }
    if (k->fma) {
        clReleaseKernel(k->fma);
    }
    if (k->copy) {
        clReleaseKernel(k->copy);
    }
    if (k->program) {
        clReleaseProgram(k->program);
    }
}

bool bench_peak_measure(session *s, bench_peak *peak, failure *f) {
    bench_kernels k = {0};
    bool done = choose(s, &k, f) && build(s, &k, f) && measure_fma(s, &k, &peak->gflops, f) &&
                measure_copy(s, &k, &peak->gbps, f);
    release(&k);
    return done;
}
