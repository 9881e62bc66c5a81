/* The device that tests run on, and running a suite on it. */
#ifndef CLATTN_TESTS_DEVICE_H
#define CLATTN_TESTS_DEVICE_H

#include <check.h>
#include <clattn/device.h>

/* out_of_order  NULL where the device has no such queue
 * shift         elements by which every buffer made from now on is moved off alignment; a test that sets it sets
 *               it back to 0 */
typedef struct fixture {
    cl_device_id device;
    cl_context cl;
    cl_command_queue queue, out_of_order;
    clattn_context *context;
    size_t shift;
    char line[512]; /* last line that the library logged */
} fixture;

/* The device named by CLATTN_DEVICE (part of its name, or "P:D"), else the first GPU, else the first CPU; NULL when
 * there is none. */
cl_device_id device_pick(void);

/* The fixture while run_device_suite runs. */
fixture *device(void);

/* device() with an OpenCL context and a queue that nothing has used yet and that the test releases; its library's
 * context is still the shared one. */
fixture device_apart(void);

/* Run a suite in this process (OpenCL does not survive a fork) and return main's exit status. Without a device:
 * says that its tests are skipped and returns 77, which Meson counts as skipped.
 * Compiled kernels go to CLATTN_CACHE_DIR; without it nothing is kept on disk. */
int run_device_suite(Suite *suite);

/* The same for tests that need no device. */
int run_suite(Suite *suite);

/* Called by a test that returns early: the reason is printed, and the count at the end of the run. */
void test_skip(const char *reason);

/* Fail the test unless a call answered what it should, giving the context's sentence. */
void assert_ok(clattn_status status);
void assert_refused(clattn_status status, clattn_status wanted, const char *fragment);

/* The references that an OpenCL context and a queue count. */
typedef struct references {
    cl_uint context, queue;
} references;

references references_of(cl_context cl, cl_command_queue queue);

/* Fail the test unless the counts are the wanted ones. A runtime's own threads may hold a command's objects for a
 * moment after clFinish has returned, so counts that are too high are given 10 seconds to come down. */
void assert_references(cl_context cl, cl_command_queue queue, references wanted);

#endif
