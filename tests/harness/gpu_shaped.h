/* The test's device as a GPU's shapes see it: work-groups, local memory, barriers. */
#ifndef CLATTN_TESTS_GPU_SHAPED_H
#define CLATTN_TESTS_GPU_SHAPED_H

#include <clattn/clattn.h>

#include "harness/device.h"

/* Between make and free, Check's unchecked fixture. */
extern fixture gpu_shaped;

void make_gpu_shaped(void);
void free_gpu_shaped(void);

/* The device with another number of compute units, by which plans are chosen; its context is the caller's. */
void make_with_units(fixture *f, uint32_t units);

/* Ends a test of plans that need work-groups of one work-item where the device itself has larger ones (CLATTN_TUNING).
 */
bool in_groups(void);
#define SKIP_IN_GROUPS                                                                                                 \
    do {                                                                                                               \
        if (in_groups()) {                                                                                             \
            test_skip("work-groups of one work-item are needed");                                                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* The backward pass's note begins and ends so; numbers between depend on the width of the device's vectors. */
void assert_noted(const clattn_plan *plan, const char *begins, const char *ends);

#endif
