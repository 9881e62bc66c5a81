/* Plans: what will run for one problem on one device, and the one call that runs it.
 *
 * A plan comes from a core (clattn_dense_plan, …) or from a layer (clattn_layer_plan). It holds
 * compiled kernels and no memory. Its tensors are numbered by the enum of the variant's header
 * (CLATTN_DENSE_Q, …) or by clattn_layer_slot.
 */
#ifndef CLATTN_PLAN_H
#define CLATTN_PLAN_H

#include <clattn/device.h>

/* A plan. Immutable: any number of threads may enqueue one plan at once, each call with tensors and
 * a workspace of its own. */
typedef struct clattn_plan clattn_plan;

/* Scratch memory of one call in flight. Borrowed until the call's event completes; contents are
 * undefined before and after.
 * memory  a buffer of the plan's context; may be NULL where the plan needs 0 bytes
 * offset  bytes; a multiple of CLATTN_WORKSPACE_ALIGNMENT */
typedef struct clattn_workspace {
    cl_mem memory;
    uint64_t offset;
} clattn_workspace;

enum { CLATTN_WORKSPACE_ALIGNMENT = 256 };

/* Bytes of workspace that each call in flight needs. 0 for NULL. */
CLATTN_API uint64_t clattn_plan_workspace_size(const clattn_plan *plan);

/* One line on the choice of the plan where there was one, and why what comes before it was refused; one line a stage: kernel,
 * defines, work sizes, local bytes; then the workspace; the backward pass's after a line "backward". Copied into text
 * (cut to size, always ended by 0). Returns the whole length. */
CLATTN_API size_t clattn_plan_describe(const clattn_plan *plan, char *text, size_t size);

/* Elements of the F32 tensor that carries what forward saves for backward; 0 for a plan without a backward pass. */
CLATTN_API uint64_t clattn_plan_saved_count(const clattn_plan *plan);

/* Release; NULL is accepted. Work already queued completes. */
CLATTN_API void clattn_plan_destroy(clattn_plan *plan);

/* Queue a plan's stages on an in-order or out-of-order queue behind a wait list.
 * tensors    count tensors, indexed by the slot enum; absent optional ones are all zero
 * workspace  may be NULL where clattn_plan_workspace_size is 0
 * event      NULL, or receives an event of the last stage, released by the caller
 * Everything is checked before anything is queued; on failure nothing was queued, no output was touched
 * and *event is NULL; only when the driver refuses a later stage may earlier ones have written the
 * workspace or outputs. Nothing is allocated, compiled or waited for. A problem without elements (a batch, length or head count of 0)
 * queues only a marker and succeeds.
 * Errors: INVALID_ARGUMENT (NULL; a missing tensor, by name), INVALID_SHAPE, INVALID_TYPE (not what was
 * planned, both values), INVALID_BUFFER (too small, or not of the context), INVALID_WORKSPACE,
 * INVALID_CONTEXT (queue, or an awaited event, of another context or device), OpenCL's and CLBlast's codes. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_enqueue(const clattn_plan *plan, cl_command_queue queue,
                                                          const clattn_tensor *tensors, size_t count,
                                                          const clattn_workspace *workspace, cl_uint wait_count,
                                                          const cl_event *wait_list, cl_event *event);

/* Queue a plan's backward pass: gradients from the outputs' gradients and what the forward call of the same plan
 * saved. Takes the same inputs and SAVED as that call; outputs of the forward pass may be absent. Same
 * inputs, same device, same bits: no atomics. Arguments, checks and errors as clattn_enqueue; INVALID_STATE for a
 * plan without a backward pass. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_enqueue_backward(
    const clattn_plan *plan, cl_command_queue queue, const clattn_tensor *tensors, size_t count,
    const clattn_workspace *workspace, cl_uint wait_count, const cl_event *wait_list, cl_event *event);

#endif
