#include "cli/select.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLATFORMS_MAX = 64, DEVICES_MAX = 64 };

/* ---- listing ---- */

/* A device that does not answer is left out, so that a broken driver does not hide the others. */
static bool add_device(device_list *list, int platform, int device, cl_device_id id, failure *f) {
    device_entry *items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items) {
        return fail_with(f, "no memory for a list of devices");
    }
    list->items = items;
    device_entry *entry = &items[list->count];
    *entry = (device_entry){.platform = platform, .device = device, .id = id};
    clattn_status status = clattn_device_query(id, &entry->info);
    if (status == CLATTN_UNKNOWN_NAME) {
        const char *caps = getenv("CLATTN_CAPS");
        return fail_with(f, "CLATTN_CAPS is %s: it names an unknown feature", quote(caps ? caps : "").text);
    }
    list->count += status == CLATTN_SUCCESS;
    return true;
}

static bool add_platform(device_list *list, int index, cl_platform_id platform, failure *f) {
    cl_device_id ids[DEVICES_MAX];
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, ids, &count) != CL_SUCCESS) {
        return true; /* no device here */
    }
    for (cl_uint i = 0; i < count && i < DEVICES_MAX; ++i) {
        if (!add_device(list, index, (int)i, ids[i], f)) {
            return false;
        }
    }
    return true;
}

bool device_list_make(device_list *list, failure *f) {
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint count = 0;
    memset(list, 0, sizeof *list);
    if (clGetPlatformIDs(PLATFORMS_MAX, platforms, &count) != CL_SUCCESS) {
        return true; /* no platform */
    }
    for (cl_uint i = 0; i < count && i < PLATFORMS_MAX; ++i) {
        if (!add_platform(list, (int)i, platforms[i], f)) {
            return false;
        }
    }
    return true;
}

void device_list_free(device_list *list) {
    free(list->items);
    memset(list, 0, sizeof *list);
}

/* ---- choosing ---- */

static bool begins(const char *text, const char *part) {
    for (; *part; ++text, ++part) {
        if (tolower((unsigned char)*text) != tolower((unsigned char)*part)) {
            return false;
        }
    }
    return true;
}

static bool contains(const char *text, const char *part) {
    for (; *text; ++text) {
        if (begins(text, part)) {
            return true;
        }
    }
    return false;
}

static bool parse_position(const char *text, int *platform, int *device) {
    int end = 0;
    return isdigit((unsigned char)text[0]) && sscanf(text, "%5d:%5d%n", platform, device, &end) == 2 &&
           end == (int)strlen(text);
}

static const device_entry *find(const device_list *list, const char *wanted) {
    int platform = 0, device = 0;
    bool position = parse_position(wanted, &platform, &device);
    for (size_t i = 0; i < list->count; ++i) {
        const device_entry *entry = &list->items[i];
        if (position ? entry->platform == platform && entry->device == device : contains(entry->info.name, wanted)) {
            return entry;
        }
    }
    return NULL;
}

static const device_entry *first_of_kind(const device_list *list, const char *kind) {
    for (size_t i = 0; i < list->count; ++i) {
        if (strcmp(list->items[i].info.kind, kind) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

static void describe(const device_list *list, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < list->count && used < size; ++i) {
        const device_entry *e = &list->items[i];
        used += (size_t)snprintf(text + used, size - used, "%s%d:%d %s", i > 0 ? ", " : "", e->platform, e->device,
                                 e->info.name);
    }
}

const device_entry *device_choose(const device_list *list, const char *wanted, failure *f) {
    const char *variable = getenv("CLATTN_DEVICE"), *source = wanted ? "--device" : "CLATTN_DEVICE";
    if (list->count == 0) {
        fail_with(f, "no OpenCL device found");
        return NULL;
    }
    wanted = wanted ? wanted : variable && *variable ? variable : NULL;
    if (wanted) {
        const device_entry *entry = find(list, wanted);
        char known[1024];
        describe(list, known, sizeof known);
        if (!entry) {
            fail_with(f, "%s: no device matches %s; there is %s", source, quote(wanted).text, known);
        }
        return entry;
    }
    const device_entry *gpu = first_of_kind(list, "gpu"), *cpu = first_of_kind(list, "cpu");
    return gpu ? gpu : cpu ? cpu : &list->items[0];
}
