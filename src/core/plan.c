/* Building and checking plans. */
#include "core/plan.h"
#include "core/layout.h"
#include "core/target.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void clattn__plan_init(clattn__plan *plan, int slot_count) {
    memset(plan, 0, sizeof *plan);
    plan->slot_count = slot_count;
    plan->overflow = slot_count > CLATTN__MAX_SLOTS;
}

static clattn__stage *append(clattn__plan *plan, clattn__engine engine) {
    if (plan->stage_count == CLATTN__MAX_STAGES) {
        plan->overflow = true;
        plan->stage_count--; /* the plan is lost; keep writing inside it */
    }
    clattn__stage *stage = &plan->stages[plan->stage_count++];
    memset(stage, 0, sizeof *stage);
    stage->engine = engine;
    return stage;
}

clattn__stage *clattn__plan_kernel(clattn__plan *plan, const char *file, const char *kernel) {
    clattn__stage *stage = append(plan, CLATTN__ENGINE_KERNEL);
    stage->file = file;
    stage->kernel = kernel;
    return stage;
}

clattn__stage *clattn__plan_product(clattn__plan *plan, const clattn__product *product) {
    clattn__stage *stage = append(plan, CLATTN__ENGINE_CLBLAST);
    stage->product = *product;
    return stage;
}

clattn__operand clattn__slot_of(int slot, const clattn_tensor *tensor) {
    return clattn__slot_if(!clattn__layout_absent(tensor), slot);
}

clattn__operand clattn__plan_scratch(clattn__plan *plan, int64_t count) {
    const uint64_t align = CLATTN_WORKSPACE_ALIGNMENT;
    clattn__operand operand = {CLATTN__SLOT_WORKSPACE, (int64_t)(plan->workspace_used / sizeof(float))};
    plan->workspace_used += ((uint64_t)count * sizeof(float) + align - 1) / align * align;
    if (plan->workspace_used > plan->workspace_bytes)
        plan->workspace_bytes = plan->workspace_used;
    return operand;
}

void clattn__plan_release(clattn__plan *plan, uint64_t mark) { plan->workspace_used = mark; }

void clattn__plan_note(clattn__plan *plan, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(plan->note, sizeof plan->note, format, list);
    va_end(list);
}

void clattn__plan_bind(clattn__plan *plan, int slot, const char *name, const clattn_tensor *layout, bool optional) {
    if (slot < 0 || slot >= plan->slot_count) {
        plan->overflow = true;
        return;
    }
    clattn__binding *binding = &plan->bindings[slot];
    binding->name = name;
    binding->optional = optional;
    binding->layout = *layout;
    binding->layout.memory = NULL;
    binding->layout.offset = 0;
}

clattn__operand clattn__plan_save(clattn__plan *plan, int slot, int64_t count) {
    const int64_t align = CLATTN_WORKSPACE_ALIGNMENT / (int64_t)sizeof(float);
    const clattn__operand operand = {slot, plan->saved_count};
    plan->saved_count += clattn__ceil_div(count, align) * align;
    const clattn_tensor layout = clattn_tensor_make(NULL, CLATTN_F32, 1, &plan->saved_count);
    clattn__plan_bind(plan, slot, "saved", &layout, false);
    return operand;
}

void clattn__stage_define(clattn__plan *plan, clattn__stage *stage, const char *name, int64_t value) {
    if (stage->define_count == CLATTN__MAX_DEFINES) {
        plan->overflow = true;
        return;
    }
    stage->defines[stage->define_count++] = (clattn__define){name, value};
}

static void add(clattn__plan *plan, clattn__stage *stage, clattn__arg arg) {
    if (stage->arg_count == CLATTN__MAX_ARGS) {
        plan->overflow = true;
        return;
    }
    stage->args[stage->arg_count++] = arg;
}

void clattn__stage_operand(clattn__plan *plan, clattn__stage *stage, clattn__operand operand) {
    add(plan, stage, (clattn__arg){.kind = CLATTN__ARG_OPERAND, .operand = operand});
}

void clattn__stage_long(clattn__plan *plan, clattn__stage *stage, int64_t value) {
    add(plan, stage, (clattn__arg){.kind = CLATTN__ARG_LONG, .integer = value});
}

void clattn__stage_operands(clattn__plan *plan, clattn__stage *stage, const clattn__operand *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        clattn__stage_operand(plan, stage, list[i]);
}

void clattn__stage_longs(clattn__plan *plan, clattn__stage *stage, const int64_t *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        clattn__stage_long(plan, stage, list[i]);
}

void clattn__stage_int(clattn__plan *plan, clattn__stage *stage, int32_t value) {
    add(plan, stage, (clattn__arg){.kind = CLATTN__ARG_INT, .integer = value});
}

void clattn__stage_float(clattn__plan *plan, clattn__stage *stage, float value) {
    add(plan, stage, (clattn__arg){.kind = CLATTN__ARG_FLOAT, .real = value});
}

void clattn__stage_range(clattn__stage *stage, int64_t groups0, int64_t groups1, int64_t groups2, int64_t group_size) {
    stage->global[0] = (size_t)(groups0 * group_size);
    stage->global[1] = (size_t)groups1;
    stage->global[2] = (size_t)groups2;
    stage->local[0] = (size_t)group_size;
    stage->local[1] = stage->local[2] = 1;
}

/* ---- finishing ---- */

static void sort_defines(clattn__stage *stage) {
    for (int i = 1; i < stage->define_count; i++) {
        clattn__define moving = stage->defines[i];
        int j = i;
        for (; j > 0 && strcmp(stage->defines[j - 1].name, moving.name) > 0; j--)
            stage->defines[j] = stage->defines[j - 1];
        stage->defines[j] = moving;
    }
}

static bool has_work(const clattn__stage *stage) {
    if (stage->engine == CLATTN__ENGINE_CLBLAST)
        return stage->product.batch > 0 && stage->product.m > 0 && stage->product.n > 0;
    return stage->global[0] > 0 && stage->global[1] > 0 && stage->global[2] > 0;
}

static void drop_empty_stages(clattn__plan *plan) {
    int kept = 0;
    for (int i = 0; i < plan->stage_count; i++)
        if (has_work(&plan->stages[i])) {
            if (kept != i)
                plan->stages[kept] = plan->stages[i];
            kept++;
        }
    plan->stage_count = kept;
}

static clattn_status check_stage(const clattn__stage *stage, const clattn__caps *caps, clattn__error *error) {
    if (stage->engine == CLATTN__ENGINE_CLBLAST)
        return CLATTN_SUCCESS;
    if (stage->local[0] > caps->max_work_group || stage->local[0] > caps->max_work_item[0])
        return clattn__fail(error, CLATTN_UNSUPPORTED, "%s: needs work-groups of %zu, the device allows %zu",
                            stage->kernel, stage->local[0],
                            caps->max_work_group < caps->max_work_item[0] ? caps->max_work_group
                                                                          : caps->max_work_item[0]);
    if (stage->local_bytes > caps->local_bytes)
        return clattn__fail(error, CLATTN_UNSUPPORTED, "%s: needs %zu bytes of local memory, the device has %" PRIu64,
                            stage->kernel, stage->local_bytes, caps->local_bytes);
    return CLATTN_SUCCESS;
}

clattn_status clattn__plan_finish(clattn__plan *plan, const clattn__caps *caps, clattn__error *error) {
    if (plan->overflow)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "the plan needs more stages, arguments, defines or slots than %d, %d, %d, %d",
                            CLATTN__MAX_STAGES, CLATTN__MAX_ARGS, CLATTN__MAX_DEFINES, CLATTN__MAX_SLOTS);
    drop_empty_stages(plan);
    for (int i = 0; i < plan->stage_count; i++) {
        sort_defines(&plan->stages[i]);
        clattn_status status = check_stage(&plan->stages[i], caps, error);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    if ((uint64_t)plan->saved_count * sizeof(float) > caps->max_alloc_bytes)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "needs to save %" PRIu64 " bytes for backward, the device allocates at most %" PRIu64,
                            (uint64_t)plan->saved_count * sizeof(float), caps->max_alloc_bytes);
    if (plan->workspace_bytes > caps->max_alloc_bytes)
        return clattn__fail(error, CLATTN_UNSUPPORTED,
                            "needs a workspace of %" PRIu64 " bytes, the device allocates at most %" PRIu64,
                            plan->workspace_bytes, caps->max_alloc_bytes);
    return CLATTN_SUCCESS;
}
