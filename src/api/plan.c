/* Public plans: pure plans with their compiled kernels. */
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "base/text.h"

/* All kernels at once: those of one file under the same defines become one program. */
static clattn_status compile(clattn_context *context, clattn__pass *pass, clattn__error *error) {
    clattn__want wants[CLATTN__MAX_STAGES];
    int stages[CLATTN__MAX_STAGES], count = 0;
    for (int i = 0; i < pass->pure.stage_count; i++) {
        const clattn__stage *stage = &pass->pure.stages[i];
        if (stage->engine != CLATTN__ENGINE_KERNEL)
            continue;
        wants[count] = (clattn__want){stage->file, stage->kernel, stage->defines, stage->define_count, NULL};
        stages[count++] = i;
    }
    clattn_status status = clattn__kernels_get(context->runtime, wants, count, error);
    for (int i = 0; i < count && status == CLATTN_SUCCESS; i++) {
        pass->kernels[stages[i]] = wants[i].out;
        status = clattn__kernel_fits(wants[i].out, pass->pure.stages[stages[i]].local, error);
    }
    return status;
}

static void dump(const clattn_context *context, const clattn__plan *pure) {
    static const char none[] = "plan";
    char text[16384];
    if (!context->runtime->dump_dir)
        return;
    clattn__plan_text(pure, text, sizeof text);
    const bool named = pure->stage_count > 0 && pure->stages[0].kernel;
    clattn__dump_text(context->runtime, named ? pure->stages[0].kernel : none, text);
}

clattn_status clattn__pass_finish(clattn_context *context, clattn__pass *pass, clattn__error *error) {
    clattn_status status = clattn__plan_finish(&pass->pure, &context->target.caps, error);
    if (status == CLATTN_SUCCESS)
        status = compile(context, pass, error);
    if (status == CLATTN_SUCCESS)
        dump(context, &pass->pure);
    return status;
}

clattn_plan *clattn__plan_make(clattn_context *context, bool trains, clattn__error *error) {
    clattn_plan *plan = calloc(1, sizeof *plan);
    clattn__pass *backward = trains ? calloc(1, sizeof *backward) : NULL;
    if (!plan || (trains && !backward)) {
        free(plan);
        free(backward);
        clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "no memory for a plan");
        return NULL;
    }
    plan->context = context;
    plan->backward = backward;
    clattn__context_retain(context);
    return plan;
}

clattn_status clattn__plan_finish_passes(clattn_plan *plan, clattn__error *error) {
    clattn_status status = clattn__pass_finish(plan->context, &plan->forward, error);
    if (status == CLATTN_SUCCESS && plan->backward)
        status = clattn__pass_finish(plan->context, plan->backward, error);
    return status;
}

/* ---- cores ---- */

static clattn_status fill_core(clattn_plan *plan, const clattn__variant *variant, const void *problem,
                               clattn__error *error) {
    clattn_status status = variant->core(problem, &plan->context->target, &plan->forward.pure, error);
    if (status == CLATTN_SUCCESS && plan->backward)
        status = variant->core_backward(problem, &plan->context->target, &plan->backward->pure, error);
    return status == CLATTN_SUCCESS ? clattn__plan_finish_passes(plan, error) : status;
}

clattn_status clattn__core_plan(clattn_context *context, const clattn__variant *variant, const void *problem,
                                clattn_plan **plan) {
    clattn__error error = {0};
    if (!context || !plan)
        return CLATTN_INVALID_ARGUMENT;
    *plan = NULL;
    if (!problem) {
        clattn__fail(&error, CLATTN_INVALID_ARGUMENT, "%s: problem is NULL", variant->name);
        return clattn__report(context, &error);
    }
    const bool trains = variant->core_trains && variant->core_trains(problem);
    clattn_plan *made = clattn__plan_make(context, trains, &error);
    if (!made || fill_core(made, variant, problem, &error) != CLATTN_SUCCESS) {
        clattn_plan_destroy(made);
        return clattn__report(context, &error);
    }
    *plan = made;
    return CLATTN_SUCCESS;
}

/* ---- reading ---- */

uint64_t clattn_plan_workspace_size(const clattn_plan *plan) {
    if (!plan)
        return 0;
    const uint64_t forward = plan->forward.pure.workspace_bytes;
    const uint64_t backward = plan->backward ? plan->backward->pure.workspace_bytes : 0;
    return forward > backward ? forward : backward;
}

uint64_t clattn_plan_saved_count(const clattn_plan *plan) {
    return plan && plan->backward ? (uint64_t)plan->forward.pure.saved_count : 0;
}

size_t clattn_plan_describe(const clattn_plan *plan, char *data, size_t size) {
    clattn__text text = {data, data ? size : 0, 0};
    if (text.size > 0)
        data[0] = 0;
    if (!plan)
        return 0;
    clattn__plan_append_text(&plan->forward.pure, &text);
    if (plan->backward) {
        clattn__text_add(&text, "backward\n");
        clattn__plan_append_text(&plan->backward->pure, &text);
    }
    return text.length;
}

void clattn_plan_destroy(clattn_plan *plan) {
    if (!plan)
        return;
    clattn_layer_destroy(plan->layer);
    clattn_context_destroy(plan->context);
    free(plan->backward);
    free(plan);
}
