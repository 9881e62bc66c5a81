/* A device's facts, asked of OpenCL once. */
#include "runtime/caps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static bool is_pocl(const clattn__caps *caps) { return has(caps->platform, "Portable Computing Language"); }

/* Intel's CPU runtime has one, whose error is 7e-5 of the result. */
static bool lacks_native_exp(const clattn__caps *caps) {
    const bool nvidia = has(caps->vendor, "NVIDIA") || has(caps->name, "NVIDIA");
    return caps->kind == CLATTN__GPU ? is_pocl(caps) && nvidia : has(caps->platform, "Intel");
}

/* The one place that knows vendors. */
static const struct quirk {
    uint32_t bit;
    const char *name;
    bool (*applies)(const clattn__caps *caps);
} quirks[] = {
    {CLATTN__QUIRK_NO_NATIVE_EXP, "NO_NATIVE_EXP", lacks_native_exp},
    {CLATTN__QUIRK_LATE_BINARY, "LATE_BINARY", is_pocl},
    {CLATTN__QUIRK_ALIGNED_HALF, "ALIGNED_HALF", is_pocl},
};

enum { QUIRK_COUNT = sizeof quirks / sizeof *quirks };

const char *clattn__quirk_at(uint32_t mask, int index) {
    for (int i = 0; i < QUIRK_COUNT; i++)
        if ((mask & quirks[i].bit) && index-- == 0)
            return quirks[i].name;
    return NULL;
}

void clattn__quirk_names(uint32_t mask, char *text, size_t size) {
    clattn__text out = {.data = text, .size = size};
    const char *name;
    clattn__text_add(&out, "%s", "");
    for (int i = 0; (name = clattn__quirk_at(mask, i)); i++)
        clattn__text_add(&out, "%s%s", i ? "," : "", name);
}

uint32_t clattn__quirks_of(const clattn__caps *caps) {
    uint32_t mask = 0;
    for (int i = 0; i < QUIRK_COUNT; i++)
        mask |= quirks[i].applies(caps) ? quirks[i].bit : 0;
    return mask;
}

/* ---- CLATTN_CAPS ---- */

static bool apply_feature(clattn__caps *caps, const char *item) {
    const struct {
        const char *name;
        bool *flag;
    } features[] = {{"-fp16", &caps->fp16}, {"-fp64", &caps->fp64}, {"-subgroups", &caps->subgroups}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (!strcmp(item, features[i].name)) {
            *features[i].flag = false;
            return true;
        }
    return false;
}

static bool apply_quirk(clattn__caps *caps, const char *item) {
    for (int i = 0; i < QUIRK_COUNT; i++)
        if ((*item == '-' || *item == '+') && !strcmp(item + 1, quirks[i].name)) {
            caps->quirks = *item == '+' ? caps->quirks | quirks[i].bit : caps->quirks & ~quirks[i].bit;
            return true;
        }
    return false;
}

clattn_status clattn__caps_apply(const char *list, clattn__caps *caps, clattn__error *error) {
    while (list && *list) {
        char item[64];
        size_t length = strcspn(list, ",");
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), list);
        if (length && !apply_feature(caps, item) && !apply_quirk(caps, item))
            return clattn__fail(error, CLATTN_UNKNOWN_NAME,
                                "CLATTN_CAPS: unknown '%s'; known are -fp16, -fp64, -subgroups, and + or - before a "
                                "quirk's name",
                                item);
        list += length + (list[length] == ',');
    }
    return CLATTN_SUCCESS;
}

/* ---- queries ---- */

/* One query's state: the first failure sticks. */
typedef struct query {
    cl_device_id device;
    cl_platform_id platform;
    cl_int code;
    cl_uint parameter; /* that failed */
} query;

static cl_int ask(const query *q, bool platform, cl_uint parameter, size_t size, void *value, size_t *need) {
    return platform ? clGetPlatformInfo(q->platform, parameter, size, value, need)
                    : clGetDeviceInfo(q->device, parameter, size, value, need);
}

static void note(query *q, cl_int code, cl_uint parameter) {
    if (!q->code && code) {
        q->code = code;
        q->parameter = parameter;
    }
}

/* A text of any length, malloc'ed; NULL after a failure. */
static char *ask_text(query *q, bool platform, cl_uint parameter) {
    size_t size = 0;
    cl_int code = ask(q, platform, parameter, 0, NULL, &size);
    char *text = code ? NULL : calloc(size + 1, 1);
    if (!code)
        code = text ? ask(q, platform, parameter, size, text, NULL) : CL_OUT_OF_HOST_MEMORY;
    note(q, code, parameter);
    if (code) {
        free(text);
        return NULL;
    }
    return text;
}

/* Cut to the field's size; some drivers pad their names with blanks. */
static void copy_text(query *q, bool platform, cl_uint parameter, char *field, size_t size) {
    char *text = ask_text(q, platform, parameter);
    if (!text)
        return;
    const char *start = text + strspn(text, " ");
    snprintf(field, size, "%.*s", (int)size - 1, start);
    for (size_t n = strlen(field); n && field[n - 1] == ' '; n--)
        field[n - 1] = 0;
    free(text);
}

static void value(query *q, cl_uint parameter, void *to, size_t size) {
    note(q, clGetDeviceInfo(q->device, parameter, size, to, NULL), parameter);
}

/* True if a blank-separated list holds the word. */
static bool lists(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static void query_texts(query *q, clattn__caps *caps) {
    copy_text(q, false, CL_DEVICE_NAME, caps->name, sizeof caps->name);
    copy_text(q, false, CL_DEVICE_VENDOR, caps->vendor, sizeof caps->vendor);
    copy_text(q, false, CL_DRIVER_VERSION, caps->driver_version, sizeof caps->driver_version);
    copy_text(q, false, CL_DEVICE_VERSION, caps->device_version, sizeof caps->device_version);
    copy_text(q, true, CL_PLATFORM_NAME, caps->platform, sizeof caps->platform);
    copy_text(q, true, CL_PLATFORM_VERSION, caps->platform_version, sizeof caps->platform_version);
    char *extensions = ask_text(q, false, CL_DEVICE_EXTENSIONS);
    if (extensions) {
        caps->fp16 = lists(extensions, "cl_khr_fp16");
        caps->fp64 = lists(extensions, "cl_khr_fp64");
        caps->subgroups = lists(extensions, "cl_khr_subgroups") || lists(extensions, "cl_intel_subgroups");
    }
    free(extensions);
}

static void query_numbers(query *q, clattn__caps *caps) {
    cl_device_type type = 0;
    cl_uint units = 0, width = 0, vendor = 0;
    cl_ulong global = 0, alloc = 0, local = 0;
    cl_bool compiler = CL_FALSE;
    value(q, CL_DEVICE_TYPE, &type, sizeof type);
    value(q, CL_DEVICE_VENDOR_ID, &vendor, sizeof vendor);
    value(q, CL_DEVICE_MAX_COMPUTE_UNITS, &units, sizeof units);
    value(q, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, &width, sizeof width);
    value(q, CL_DEVICE_GLOBAL_MEM_SIZE, &global, sizeof global);
    value(q, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &alloc, sizeof alloc);
    value(q, CL_DEVICE_LOCAL_MEM_SIZE, &local, sizeof local);
    value(q, CL_DEVICE_MAX_WORK_GROUP_SIZE, &caps->max_work_group, sizeof caps->max_work_group);
    value(q, CL_DEVICE_COMPILER_AVAILABLE, &compiler, sizeof compiler);
    caps->kind = type & CL_DEVICE_TYPE_GPU   ? CLATTN__GPU
                 : type & CL_DEVICE_TYPE_CPU ? CLATTN__CPU
                                             : CLATTN__OTHER_DEVICE;
    caps->vendor_id = vendor;
    caps->compute_units = units;
    caps->vector_width_f32 = width ? width : 1;
    caps->global_bytes = global;
    caps->max_alloc_bytes = alloc;
    caps->local_bytes = local;
    caps->compiler = compiler == CL_TRUE;
}

/* A device may have more dimensions than the three that kernels use. */
static void query_work_items(query *q, clattn__caps *caps) {
    size_t sizes[16] = {0}, size = 0;
    cl_int code = clGetDeviceInfo(q->device, CL_DEVICE_MAX_WORK_ITEM_SIZES, 0, NULL, &size);
    if (!code)
        code = size > sizeof sizes
                   ? CL_INVALID_VALUE
                   : clGetDeviceInfo(q->device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL);
    note(q, code, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    memcpy(caps->max_work_item, sizes, sizeof caps->max_work_item);
}

clattn_status clattn__caps_query(cl_device_id device, clattn__caps *caps, clattn__error *error) {
    query q = {.device = device};
    memset(caps, 0, sizeof *caps);
    value(&q, CL_DEVICE_PLATFORM, &q.platform, sizeof q.platform);
    if (!q.code) {
        query_texts(&q, caps);
        query_numbers(&q, caps);
        query_work_items(&q, caps);
    }
    if (q.code)
        return clattn__fail(error, q.code, "device query 0x%x failed: %s", q.parameter, clattn_status_string(q.code));
    caps->quirks = clattn__quirks_of(caps);
    return clattn__caps_apply(getenv("CLATTN_CAPS"), caps, error);
}
