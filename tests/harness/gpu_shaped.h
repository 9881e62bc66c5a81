/* The test's device as a GPU's shapes see it: work-groups, local memory, barriers. */
#ifndef CLATTN_TESTS_GPU_SHAPED_H
#define CLATTN_TESTS_GPU_SHAPED_H

#include "harness/device.h"

/* Between make and free, Check's unchecked fixture. */
extern fixture gpu_shaped;

void make_gpu_shaped(void);
void free_gpu_shaped(void);

/* The device with another number of compute units, by which plans are chosen; its context is the caller's. */
void make_with_units(fixture *f, uint32_t units);

#endif
