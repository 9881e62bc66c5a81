/* Running a plan: check everything, then bind and queue its stages one behind the other. */
#include <inttypes.h>
#include <stdio.h>

#include "api/object.h"
#include "core/layout.h"
#include "gemm/clblast.h"
#include "runtime/launch.h"

/* ---- checks ---- */

clattn_status clattn__check_memory(const clattn_context *context, const char *name, cl_mem memory, uint64_t bytes,
                                  clattn_status kind, clattn__error *error) {
    cl_context owner = NULL;
    size_t size = 0;
    cl_int code = clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof owner, &owner, NULL);
    if (code == CL_SUCCESS)
        code = clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof size, &size, NULL);
    if (code != CL_SUCCESS)
        return clattn__fail(error, code, "%s: its buffer is not a valid memory object (%s)", name,
                            clattn_status_string(code));
    if (owner != context->runtime->context)
        return clattn__fail(error, CLATTN_INVALID_BUFFER, "%s: its buffer belongs to another OpenCL context", name);
    if (size < bytes)
        return clattn__fail(error, kind, "%s: its buffer has %zu bytes, but %" PRIu64 " are needed", name, size, bytes);
    return CLATTN_SUCCESS;
}

static clattn_status layout_differs(const clattn__binding *binding, const clattn_tensor *tensor, clattn__error *error) {
    char got[256], want[256];
    clattn__layout_text(tensor, got, sizeof got);
    clattn__layout_text(&binding->layout, want, sizeof want);
    return clattn__fail(error, tensor->type != binding->layout.type ? CLATTN_INVALID_TYPE : CLATTN_INVALID_SHAPE,
                        "%s is %s, but the plan was made for %s", binding->name, got, want);
}

static clattn_status check_tensor(const clattn_context *context, const clattn__binding *binding, const clattn_tensor *tensor,
                                  clattn__error *error) {
    const size_t element = clattn_type_size(tensor->type);
    const uint64_t extent = clattn__layout_extent(&binding->layout);
    if (!tensor->memory && (extent == 0 || (binding->optional && clattn__layout_absent(tensor))))
        return CLATTN_SUCCESS;
    if (!tensor->memory)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "%s is missing: its memory is NULL", binding->name);
    if (!clattn__layout_equal(tensor, &binding->layout))
        return layout_differs(binding, tensor, error);
    if (tensor->offset > UINT64_MAX / 8 / element || extent > UINT64_MAX / 8 / element)
        return clattn__fail(error, CLATTN_INVALID_SHAPE, "%s: offset %" PRIu64 " plus extent %" PRIu64 " overflows",
                            binding->name, tensor->offset, extent);
    return clattn__check_memory(context, binding->name, tensor->memory, (tensor->offset + extent) * element, CLATTN_INVALID_BUFFER,
                        error);
}

static clattn_status check_tensors(const clattn_context *context, const clattn__plan *pure, const clattn_tensor *tensors, size_t count,
                                   clattn__error *error) {
    if (count != (size_t)pure->slot_count)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "count is %zu, but the plan takes %d tensors", count,
                            pure->slot_count);
    if (!tensors)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "tensors is NULL");
    for (size_t i = 0; i < count; i++) {
        if (!pure->bindings[i].name)
            continue;
        clattn_status status = check_tensor(context, &pure->bindings[i], &tensors[i], error);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    return CLATTN_SUCCESS;
}

static clattn_status check_workspace(const clattn_context *context, uint64_t bytes, const clattn_workspace *workspace,
                                     clattn__error *error) {
    if (bytes == 0)
        return CLATTN_SUCCESS;
    if (!workspace || !workspace->memory)
        return clattn__fail(error, CLATTN_INVALID_WORKSPACE, "workspace is NULL, but %" PRIu64 " bytes are needed", bytes);
    if (workspace->offset % CLATTN_WORKSPACE_ALIGNMENT != 0 || workspace->offset > UINT64_MAX / 2)
        return clattn__fail(error, CLATTN_INVALID_WORKSPACE,
                            "workspace offset is %" PRIu64 ", but must be a multiple of %d", workspace->offset,
                            CLATTN_WORKSPACE_ALIGNMENT);
    return clattn__check_memory(context, "workspace", workspace->memory, workspace->offset + bytes, CLATTN_INVALID_WORKSPACE, error);
}

/* Not every driver looks: PoCL takes NULL, and events of another context, in silence. */
clattn_status clattn__check_waits(const clattn_context *context, cl_uint count, const cl_event *list,
                                 clattn__error *error) {
    if ((count > 0) != (list != NULL))
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "wait_count is %u, but wait_list is %s", count,
                            list ? "not NULL" : "NULL");
    for (cl_uint i = 0; i < count; i++) {
        cl_context owner = NULL;
        if (!list[i])
            return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "wait_list[%u] is NULL", i);
        const cl_int code = clGetEventInfo(list[i], CL_EVENT_CONTEXT, sizeof owner, &owner, NULL);
        if (code != CL_SUCCESS)
            return clattn__fail(error, code, "wait_list[%u] is not a valid event (%s)", i, clattn_status_string(code));
        if (owner != context->runtime->context)
            return clattn__fail(error, CLATTN_INVALID_CONTEXT, "wait_list[%u] belongs to another OpenCL context", i);
    }
    return CLATTN_SUCCESS;
}

clattn_status clattn__check_queue(const clattn_context *context, cl_command_queue queue, clattn__error *error) {
    cl_context owner = NULL;
    cl_device_id device = NULL;
    if (!queue)
        return clattn__fail(error, CLATTN_INVALID_ARGUMENT, "queue is NULL");
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL);
    if (code == CL_SUCCESS)
        code = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
    if (code != CL_SUCCESS)
        return clattn__fail(error, code, "queue is not a valid command queue (%s)", clattn_status_string(code));
    if (owner != context->runtime->context)
        return clattn__fail(error, CLATTN_INVALID_CONTEXT, "queue belongs to another OpenCL context than the plan");
    if (device != context->runtime->device)
        return clattn__fail(error, CLATTN_INVALID_CONTEXT, "queue belongs to another device than the plan");
    return CLATTN_SUCCESS;
}

/* ---- queueing ---- */

typedef struct bound {
    cl_mem memory;
    uint64_t offset; /* elements */
} bound;

typedef struct call {
    const clattn_tensor *tensors;
    const cl_mem *resident;
    const clattn_workspace *workspace;
} call;

static bound resolve(const call *c, clattn__operand operand) {
    bound b = {NULL, (uint64_t)operand.offset};
    if (operand.slot == CLATTN__SLOT_WORKSPACE) {
        b.memory = c->workspace->memory;
        b.offset += c->workspace->offset / sizeof(float);
    } else if (operand.slot >= CLATTN__SLOT_RESIDENT) {
        b.memory = c->resident[operand.slot - CLATTN__SLOT_RESIDENT];
    } else if (operand.slot >= 0) {
        b.memory = c->tensors[operand.slot].memory;
        b.offset += c->tensors[operand.slot].offset;
    }
    return b;
}

static clattn_status queue_kernel(const call *c, const clattn__stage *stage, clattn__kernel *kernel,
                                  cl_command_queue queue, cl_uint wait_count, const cl_event *wait_list, cl_event *event,
                                  clattn__error *error) {
    clattn__launch launch;
    clattn__launch_begin(&launch, kernel);
    for (int i = 0; i < stage->arg_count; i++) {
        const clattn__arg *arg = &stage->args[i];
        if (arg->kind == CLATTN__ARG_LONG) {
            clattn__launch_long(&launch, arg->integer);
        } else if (arg->kind == CLATTN__ARG_INT) {
            clattn__launch_int(&launch, (int32_t)arg->integer);
        } else if (arg->kind == CLATTN__ARG_FLOAT) {
            clattn__launch_float(&launch, arg->real);
        } else {
            const bound b = resolve(c, arg->operand);
            clattn__launch_memory(&launch, b.memory);
            clattn__launch_long(&launch, (int64_t)b.offset);
        }
    }
    return clattn__launch_end(&launch, queue, stage->global, stage->local, wait_count, wait_list, event, error);
}

/* CLBlast takes no wait list: a barrier carries it. */
static clattn_status queue_product(const call *c, const clattn__product *p, cl_command_queue queue, cl_uint wait_count,
                                   const cl_event *wait_list, cl_event *event, clattn__error *error) {
    const bound x = resolve(c, p->a), w = resolve(c, p->b), y = resolve(c, p->c);
    clattn_status status = CLATTN_SUCCESS;
    if (wait_count > 0)
        status = clEnqueueBarrierWithWaitList(queue, wait_count, wait_list, NULL);
    if (status == CLATTN_SUCCESS)
        status = clattn__clblast_run(p, x.memory, x.offset, w.memory, w.offset, y.memory, y.offset, queue, event);
    if (status != CLATTN_SUCCESS)
        return clattn__fail(error, status, "CLBlast's product failed (%s)", clattn_status_string(status));
    return CLATTN_SUCCESS;
}

/* Every stage waits for the one before it, so that out-of-order queues run them in order too. */
static clattn_status queue_stages(const clattn__pass *pass, const call *c, cl_command_queue queue, cl_uint wait_count,
                                  const cl_event *wait_list, cl_event *event, clattn__error *error) {
    cl_event before = NULL;
    clattn_status status = CLATTN_SUCCESS;
    for (int i = 0; i < pass->pure.stage_count && status == CLATTN_SUCCESS; i++) {
        const clattn__stage *stage = &pass->pure.stages[i];
        const cl_uint waits = before ? 1 : wait_count;
        const cl_event *list = before ? &before : wait_list;
        cl_event after = NULL;
        if (stage->engine == CLATTN__ENGINE_CLBLAST)
            status = queue_product(c, &stage->product, queue, waits, list, &after, error);
        else
            status = queue_kernel(c, stage, pass->kernels[i], queue, waits, list, &after, error);
        if (before)
            clReleaseEvent(before);
        before = after;
    }
    if (status == CLATTN_SUCCESS && event)
        *event = before;
    else if (before)
        clReleaseEvent(before);
    return status;
}

static clattn_status queue_nothing(cl_command_queue queue, cl_uint wait_count, const cl_event *wait_list, cl_event *event,
                                   clattn__error *error) {
    if (!event && wait_count == 0)
        return CLATTN_SUCCESS;
    const cl_int code = clEnqueueMarkerWithWaitList(queue, wait_count, wait_list, event);
    if (code != CL_SUCCESS)
        return clattn__fail(error, code, "a marker could not be queued (%s)", clattn_status_string(code));
    return CLATTN_SUCCESS;
}

clattn_status clattn__pass_run(const clattn_context *context, const clattn__pass *pass, cl_command_queue queue,
                               const clattn_tensor *tensors, size_t count, const cl_mem *resident,
                               const clattn_workspace *workspace, cl_uint wait_count, const cl_event *wait_list,
                               cl_event *event, clattn__error *error) {
    clattn_status status = clattn__check_queue(context, queue, error);
    if (status == CLATTN_SUCCESS)
        status = clattn__check_waits(context, wait_count, wait_list, error);
    if (status == CLATTN_SUCCESS)
        status = check_tensors(context, &pass->pure, tensors, count, error);
    if (status == CLATTN_SUCCESS)
        status = check_workspace(context, pass->pure.workspace_bytes, workspace, error);
    if (status != CLATTN_SUCCESS)
        return status;
    if (pass->pure.stage_count == 0)
        return queue_nothing(queue, wait_count, wait_list, event, error);
    const call c = {tensors, resident, workspace};
    return queue_stages(pass, &c, queue, wait_count, wait_list, event, error);
}

static clattn_status check_ready(const clattn_plan *plan, const clattn__pass *pass, clattn__error *error) {
    if (!pass)
        return clattn__fail(error, CLATTN_INVALID_STATE, "the plan has no backward pass: it was not made to train");
    if (plan->layer && !atomic_load(&plan->layer->loaded))
        return clattn__fail(error, CLATTN_INVALID_STATE, "the layer has no weights yet: call clattn_layer_load first");
    return CLATTN_SUCCESS;
}

static clattn_status enqueue(const clattn_plan *plan, const clattn__pass *pass, cl_command_queue queue,
                             const clattn_tensor *tensors, size_t count, const clattn_workspace *workspace,
                             cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    clattn__error error;
    error.status = CLATTN_SUCCESS;
    error.text[0] = 0;
    clattn_status status = check_ready(plan, pass, &error);
    if (status == CLATTN_SUCCESS)
        status = clattn__pass_run(plan->context, pass, queue, tensors, count, plan->layer ? plan->layer->resident : NULL,
                                  workspace, wait_count, wait_list, event, &error);
    return status == CLATTN_SUCCESS ? status : clattn__report(plan->context, &error);
}

clattn_status clattn_enqueue(const clattn_plan *plan, cl_command_queue queue, const clattn_tensor *tensors, size_t count,
                             const clattn_workspace *workspace, cl_uint wait_count, const cl_event *wait_list,
                             cl_event *event) {
    if (event)
        *event = NULL;
    if (!plan)
        return CLATTN_INVALID_ARGUMENT;
    return enqueue(plan, &plan->forward, queue, tensors, count, workspace, wait_count, wait_list, event);
}

clattn_status clattn_enqueue_backward(const clattn_plan *plan, cl_command_queue queue, const clattn_tensor *tensors,
                                      size_t count, const clattn_workspace *workspace, cl_uint wait_count,
                                      const cl_event *wait_list, cl_event *event) {
    if (event)
        *event = NULL;
    if (!plan)
        return CLATTN_INVALID_ARGUMENT;
    return enqueue(plan, plan->backward, queue, tensors, count, workspace, wait_count, wait_list, event);
}
