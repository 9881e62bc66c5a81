/* The kernels of a layer for a made-up GPU, as files; no device is needed. For scripts/inspect-kernels.
 *
 *   dump_kernels FOLDER VARIANT "SETTINGS" LENGTH MODEL_SIZE HEADS [LINKS]
 *
 * Forward and backward in float32, the tile engine, the rows of CLATTN_TUNING or the table's first that fits. Each
 * kernel goes to FOLDER/<number>-<kernel>.cl, its options to .options. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tuning.h"
#include "core/variant.h"
#include "harness/run.h"
#include "runtime/program.h"
#include "runtime/source.h"

static int refuse(const char *what, const char *why) {
    fprintf(stderr, "dump_kernels: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* What GPUs have today, at least: 64 KiB of local memory is AMD's, Intel's and, since Volta, NVIDIA's. */
static clattn_status make_target(clattn__target *target, clattn__error *error) {
    const clattn__caps caps = {.kind = CLATTN__GPU,
                               .compute_units = 64,
                               .vector_width_f32 = 1,
                               .local_bytes = 65536,
                               .max_alloc_bytes = UINT64_C(1) << 34,
                               .max_work_group = 1024,
                               .max_work_item = {1024, 1024, 64}};
    memset(target, 0, sizeof *target);
    clattn__target_choose(&caps, CLATTN_GEMM_TILE, target);
    return clattn__tuning_load(getenv("CLATTN_TUNING"), target, error);
}

static bool write_text(const char *folder, int number, const char *kernel, const char *extension, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%02d-%s.%s", folder, number, kernel, extension);
    FILE *file = fopen(path, "w");
    const bool written = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && written;
}

static bool same(const clattn__stage *a, const clattn__stage *b) {
    bool equal = !strcmp(a->kernel, b->kernel) && a->define_count == b->define_count;
    for (int i = 0; equal && i < a->define_count; i++)
        equal = !strcmp(a->defines[i].name, b->defines[i].name) && a->defines[i].value == b->defines[i].value;
    return equal;
}

static bool write_kernel(const char *folder, int number, const clattn__stage *stage, clattn__error *error) {
    char names[160], *source = NULL, *options = clattn__program_options(0, stage->defines, stage->define_count);
    bool written = false;
    snprintf(names, sizeof names, " %s ", stage->kernel);
    if (options && !clattn__source_expand(stage->file, &source, error)) {
        clattn__source_keep(source, names);
        written = write_text(folder, number, stage->kernel, "cl", source) &&
                  write_text(folder, number, stage->kernel, "options", options);
    }
    free(options);
    free(source);
    return written;
}

static int write_kernels(const char *folder, const clattn__plan *plan) {
    clattn__error error = {0};
    for (int i = 0; i < plan->stage_count; i++) {
        bool known = plan->stages[i].engine != CLATTN__ENGINE_KERNEL;
        for (int j = 0; j < i && !known; j++)
            known = plan->stages[j].engine == CLATTN__ENGINE_KERNEL && same(&plan->stages[i], &plan->stages[j]);
        if (!known && !write_kernel(folder, i, &plan->stages[i], &error))
            return refuse(folder, error.text[0] ? error.text : "cannot be written");
    }
    return EXIT_SUCCESS;
}

static clattn_status plan_layer(const clattn__variant *variant, const char *text, const int64_t numbers[4],
                                clattn__plan *plan, clattn__error *error) {
    const clattn_layer_shape shape = {.batch = 1, .length = numbers[0], .links = numbers[3], .train = true};
    settings s;
    clattn__target target;
    int64_t *desc = calloc(1, variant->desc_size);
    if (!desc)
        return clattn__fail(error, CLATTN_OUT_OF_HOST_MEMORY, "out of host memory");
    settings_parse(text, &s);
    variant->defaults(desc);
    desc[0] = numbers[1];
    desc[1] = numbers[2];
    clattn__plan_init(plan, CLATTN_LAYER_SLOTS);
    clattn_status status = make_target(&target, error);
    if (!status)
        status = clattn__options_apply(variant, desc, s.items, s.count, error);
    if (!status)
        status = variant->forward(desc, &shape, &target, plan, error);
    if (!status)
        status = variant->backward(desc, &shape, &target, plan, error);
    if (!status)
        status = clattn__plan_finish(plan, &target.caps, error);
    free(desc);
    return status;
}

int main(int count, char **words) {
    if (count != 7 && count != 8)
        return refuse("usage", "dump_kernels FOLDER VARIANT SETTINGS LENGTH MODEL_SIZE HEADS [LINKS]");
    int64_t numbers[4] = {0};
    for (int i = 4; i < count; i++)
        numbers[i - 4] = strtoll(words[i], NULL, 10);
    const clattn__variant *variant = clattn__variant_find(words[2]);
    clattn__plan *plan = malloc(sizeof *plan);
    clattn__error error = {0};
    if (!variant || !plan)
        return refuse(words[2], "no such family");
    const int status = plan_layer(variant, words[3], numbers, plan, &error) ? refuse(words[2], error.text)
                                                                            : write_kernels(words[1], plan);
    free(plan);
    return status;
}
