#include "rig.h"

#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "folder.h"

enum { MAX_LINES = 256, LINE = 2048, COUNT = 64 };

static char lines[MAX_LINES][LINE];
static int line_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- log ---- */

static void record(void *user, int level, const char *line) {
    (void)user;
    pthread_mutex_lock(&lock);
    if (line_count < MAX_LINES)
        snprintf(lines[line_count++], LINE, "%d %s", level, line);
    pthread_mutex_unlock(&lock);
}

clattn__log rig_log(void) { return (clattn__log){.write = record, .level = CLATTN__LOG_DEBUG}; }

int rig_logged(const char *part) {
    int count = 0;
    for (int i = 0; i < line_count; i++)
        count += strstr(lines[i], part) != NULL;
    return count;
}

const char *rig_line(const char *part) {
    const char *found = "";
    for (int i = 0; i < line_count; i++)
        found = strstr(lines[i], part) ? lines[i] : found;
    return found;
}

void rig_forget(void) { line_count = 0; }

/* ---- files ---- */

static const char kernel_source[] = "#include \"step.h\"\n"
                                    "__kernel void fill(__global float *y, long offset, int count, float step) {\n"
                                    "    int i = get_global_id(0);\n"
                                    "    if (i < count)\n"
                                    "        y[offset + i] = VALUE + STEP(i);\n"
                                    "}\n";

void rig_write(const char *name, const char *text) {
    char *path = folder_path(name);
    clattn__error error = {0};
    ck_assert_msg(clattn__file_write(path, text, strlen(text), &error) == CLATTN_SUCCESS, "%s", error.text);
    free(path);
}

static void set_folder(const char *variable, const char *name) {
    char *path = folder_path(name);
    setenv(variable, path, 1);
    free(path);
}

void rig_setup(void) {
    char *headers;
    folder_setup();
    headers = folder_path("kernels/include");
    ck_assert_int_eq(clattn__folder_make(headers, NULL), CLATTN_SUCCESS);
    free(headers);
    rig_write("kernels/fill.cl", kernel_source);
    rig_write("kernels/include/step.h", "#define STEP(i) ((i) * step)\n");
    set_folder("CLATTN_KERNEL_PATH", "kernels");
    set_folder("CLATTN_CACHE_DIR", "cache");
    rig_forget();
}

void rig_teardown(void) { folder_teardown(); }

/* ---- device ---- */

rig rig_open(void) {
    rig r = {0};
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_int code = CL_SUCCESS;
    if (clGetPlatformIDs(16, platforms, &count))
        return r;
    for (cl_uint i = 0; i < count && i < 16 && !r.device; i++)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &r.device, NULL))
            r.device = NULL;
    ck_assert_msg(r.device != NULL, "no OpenCL device");
    r.context = clCreateContext(NULL, 1, &r.device, NULL, NULL, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    r.queue = clCreateCommandQueue(r.context, r.device, 0, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    return r;
}

void rig_close(rig *r) {
    clReleaseCommandQueue(r->queue);
    clReleaseContext(r->context);
}

clattn__runtime *rig_runtime(const rig *r) {
    clattn__runtime *runtime;
    clattn__error error = {0};
    clattn__log log = rig_log();
    clattn_status status = clattn__runtime_create(r->context, r->device, NULL, &log, &runtime, &error);
    ck_assert_msg(status == CLATTN_SUCCESS, "%s", error.text);
    return runtime;
}

clattn__kernel *rig_kernel(clattn__runtime *runtime, int64_t value) {
    clattn__define define = {"VALUE", value};
    clattn__kernel *kernel;
    clattn__error error = {0};
    clattn_status status = clattn__kernel_get(runtime, "fill", "fill", &define, 1, &kernel, &error);
    ck_assert_msg(status == CLATTN_SUCCESS, "%s", error.text);
    return kernel;
}

bool rig_run(const rig *r, clattn__kernel *kernel, int64_t value) {
    const size_t global[3] = {COUNT, 1, 1}, local[3] = {8, 1, 1};
    enum { OFFSET = 3, USED = COUNT - 1 };
    float y[COUNT + OFFSET];
    clattn__launch launch;
    clattn__error error = {0};
    cl_int code;
    bool right = true;
    for (int i = 0; i < COUNT + OFFSET; i++)
        y[i] = -1;
    cl_mem memory = clCreateBuffer(r->context, CL_MEM_COPY_HOST_PTR, sizeof y, y, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    clattn__launch_begin(&launch, kernel);
    clattn__launch_memory(&launch, memory);
    clattn__launch_long(&launch, OFFSET);
    clattn__launch_int(&launch, USED);
    clattn__launch_float(&launch, 0.5f);
    clattn_status status = clattn__launch_end(&launch, r->queue, global, local, 0, NULL, NULL, &error);
    ck_assert_msg(status == CLATTN_SUCCESS, "%s", error.text);
    ck_assert_int_eq(clEnqueueReadBuffer(r->queue, memory, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL), CL_SUCCESS);
    clReleaseMemObject(memory);
    for (int i = 0; i < COUNT + OFFSET; i++) {
        bool inside = i >= OFFSET && i < OFFSET + USED;
        right &= y[i] == (inside ? (float)value + 0.5f * (float)(i - OFFSET) : -1);
    }
    return right;
}

int rig_count_files(const char *name, const char *end) {
    char *path = folder_path(name);
    DIR *dir = opendir(path);
    int count = 0;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        size_t length = strlen(entry->d_name), tail = strlen(end);
        count += entry->d_name[0] != '.' && length >= tail && !strcmp(entry->d_name + length - tail, end);
    }
    if (dir)
        closedir(dir);
    free(path);
    return count;
}

bool rig_compiles(const rig *r, int64_t value) {
    rig_forget();
    clattn__runtime *runtime = rig_runtime(r);
    ck_assert(rig_run(r, rig_kernel(runtime, value), value));
    clattn__runtime_release(runtime);
    ck_assert_int_eq(rig_logged("compiled in") + rig_logged("loaded in"), 1);
    return rig_logged("compiled in") == 1;
}
