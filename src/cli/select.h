/* The OpenCL devices of this system, and the choice of one. */
#ifndef CLATTN_CLI_SELECT_H
#define CLATTN_CLI_SELECT_H

#include <clattn/device.h>

#include "cli/fail.h"

typedef struct device_entry {
    int platform, device; /* P:D, in OpenCL's order */
    cl_device_id id;
    clattn_device_info info;
} device_entry;

typedef struct device_list {
    device_entry *items;
    size_t count;
} device_list;

/* List every device that answers; none is no failure. Free the list in either case. */
bool device_list_make(device_list *list, failure *f);
void device_list_free(device_list *list);

/* By wanted (part of a name, or P:D), else by CLATTN_DEVICE, else the first GPU, else the first CPU, else any.
 * NULL: there is none; the sentence lists what exists. */
const device_entry *device_choose(const device_list *list, const char *wanted, failure *f);

#endif
