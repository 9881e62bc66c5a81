/* A device's facts, asked of OpenCL once, and the named quirks that follow from them. */
#ifndef CLATTN_RUNTIME_CAPS_H
#define CLATTN_RUNTIME_CAPS_H

#include <CL/cl.h>

#include "base/caps.h"
#include "base/error.h"

/* Fill caps. The environment's CLATTN_CAPS, a comma-separated list, then hides features (-fp16, -fp64,
 * -subgroups) and hides or adds quirks (-LATE_BINARY, +NO_NATIVE_EXP).
 * Errors: UNKNOWN_NAME (CLATTN_CAPS names no feature or quirk, or its sign is missing), OpenCL's codes. */
clattn_status clattn__caps_query(cl_device_id device, clattn__caps *caps, clattn__error *error);

/* Apply a CLATTN_CAPS list; NULL and "" change nothing. */
clattn_status clattn__caps_apply(const char *list, clattn__caps *caps, clattn__error *error);

/* The quirks that follow from kind, platform, vendor and name. */
uint32_t clattn__quirks_of(const clattn__caps *caps);

/* Quirks of a mask by index; NULL past the last: for (i = 0; (name = clattn__quirk_at(mask, i)); i++). */
const char *clattn__quirk_at(uint32_t quirks, int index);

/* Their names, comma-separated, cut to size. */
void clattn__quirk_names(uint32_t quirks, char *text, size_t size);

#endif
