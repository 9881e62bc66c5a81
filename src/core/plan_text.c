/* Plans as text: the note where there is one, one line a stage, then the workspace. */
#include <inttypes.h>

#include "core/plan.h"

static void product_text(clattn__text *text, const clattn__product *p) {
    clattn__text_add(text, "clblast batch=%" PRId64 " m=%" PRId64 " n=%" PRId64 " k=%" PRId64 "\n", p->batch, p->m, p->n, p->k);
}

static void kernel_text(clattn__text *text, const clattn__stage *stage) {
    clattn__text_add(text, "%s", stage->kernel);
    for (int i = 0; i < stage->define_count; i++)
        clattn__text_add(text, " %s=%" PRId64, stage->defines[i].name, stage->defines[i].value);
    clattn__text_add(text, " global=%zux%zux%zu local=%zu local_bytes=%zu\n", stage->global[0], stage->global[1],
                     stage->global[2], stage->local[0], stage->local_bytes);
}

void clattn__plan_append_text(const clattn__plan *plan, clattn__text *text) {
    for (int i = 0; i < plan->stage_count; i++) {
        if (plan->stages[i].engine == CLATTN__ENGINE_CLBLAST)
            product_text(text, &plan->stages[i].product);
        else
            kernel_text(text, &plan->stages[i]);
    }
    clattn__text_add(text, "workspace=%" PRIu64 "\n", plan->workspace_bytes);
    if (plan->saved_count > 0)
        clattn__text_add(text, "saved=%" PRIu64 "\n", (uint64_t)plan->saved_count * sizeof(float));
}

size_t clattn__plan_text(const clattn__plan *plan, char *data, size_t size) {
    clattn__text text = {data, size, 0};
    if (size > 0)
        data[0] = 0;
    if (plan->note[0])
        clattn__text_add(&text, "%s\n", plan->note);
    clattn__plan_append_text(plan, &text);
    return text.length;
}
