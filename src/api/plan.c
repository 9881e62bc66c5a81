/* Public plans: a pure plan with its compiled kernels. */
#include <stdlib.h>
#include <string.h>

#include "api/object.h"

static clattn_status compile(clattn_plan *plan, clattn__error *error) {
    for (int i = 0; i < plan->pure.stage_count; i++) {
        const clattn__stage *stage = &plan->pure.stages[i];
        if (stage->engine != CLATTN__ENGINE_KERNEL)
            continue;
        clattn_status status = clattn__kernel_get(plan->context->runtime, stage->file, stage->kernel, stage->defines,
                                                  stage->define_count, &plan->kernels[i], error);
        if (status == CLATTN_SUCCESS)
            status = clattn__kernel_fits(plan->kernels[i], stage->local, error);
        if (status != CLATTN_SUCCESS)
            return status;
    }
    return CLATTN_SUCCESS;
}

static void dump(const clattn_plan *plan, const char *name) {
    char text[8192];
    if (!plan->context->runtime->dump_dir)
        return;
    clattn__plan_text(&plan->pure, text, sizeof text);
    clattn__dump_text(plan->context->runtime, name, text);
}

clattn_status clattn__plan_create(clattn_context *context, const clattn__plan *pure, clattn_plan **plan,
                                  clattn__error *error) {
    clattn_plan *made = calloc(1, sizeof *made);
    if (!made)
        return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a plan");
    made->context = context;
    made->pure = *pure;
    clattn__context_retain(context);
    clattn_status status = compile(made, error);
    if (status != CLATTN_SUCCESS) {
        clattn_plan_destroy(made);
        return status;
    }
    dump(made, pure->stage_count > 0 && pure->stages[0].kernel ? pure->stages[0].kernel : "plan");
    *plan = made;
    return CLATTN_SUCCESS;
}

clattn_status clattn__core_plan(clattn_context *context, const clattn__variant *variant, const void *problem,
                                clattn_plan **plan) {
    clattn__error error = {0};
    if (!context || !plan)
        return CLATTN_INVALID_ARGUMENT;
    *plan = NULL;
    clattn__plan *pure = malloc(sizeof *pure);
    clattn_status status = CLATTN_SUCCESS;
    if (!pure)
        status = clattn__fail(&error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a plan");
    else if (!problem)
        status = clattn__fail(&error, CLATTN_INVALID_ARGUMENT, "%s: problem is NULL", variant->name);
    else if (!variant->core)
        status = clattn__fail(&error, CLATTN_UNSUPPORTED, "%s has no core of its own", variant->name);
    else
        status = variant->core(problem, &context->target, pure, &error);
    if (status == CLATTN_SUCCESS)
        status = clattn__plan_finish(pure, &context->target.caps, &error);
    if (status == CLATTN_SUCCESS)
        status = clattn__plan_create(context, pure, plan, &error);
    free(pure);
    return status == CLATTN_SUCCESS ? status : clattn__report(context, &error);
}

uint64_t clattn_plan_workspace_size(const clattn_plan *plan) { return plan ? plan->pure.workspace_bytes : 0; }

size_t clattn_plan_describe(const clattn_plan *plan, char *text, size_t size) {
    if (!plan) {
        if (text && size > 0)
            text[0] = 0;
        return 0;
    }
    return clattn__plan_text(&plan->pure, text, text ? size : 0);
}

void clattn_plan_destroy(clattn_plan *plan) {
    if (!plan)
        return;
    clattn_layer_destroy(plan->layer);
    clattn_context_destroy(plan->context);
    free(plan);
}
