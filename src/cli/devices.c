/* clattn devices: what OpenCL offers here, as the library sees it. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/select.h"

typedef struct arguments {
    bool json, help;
} arguments;

static const option_row rows[] = {
    {"json", OPTION_FLAG, offsetof(arguments, json), NULL},
    {"help", OPTION_FLAG, offsetof(arguments, help), NULL},
    {0},
};

static const char help[] = "usage: clattn devices [--json]\n\n"
                           "List every OpenCL device as P:D name, and mark the default with '*'.\n"
                           "  --json   an array of objects\n";

static void print_device(const device_entry *e, bool chosen) {
    const clattn_device_info *i = &e->info;
    printf("%c %d:%d  %s\n", chosen ? '*' : ' ', e->platform, e->device, i->name);
    printf("       %s, %s, driver %s, %s, %s\n", i->kind, i->vendor, i->driver_version, i->platform, i->device_version);
    printf("       %u compute units, %u floats a vector, work-groups up to %llu\n", i->compute_units,
           i->vector_width_f32, (unsigned long long)i->max_work_group);
    printf("       %.1f GiB, %.1f GiB in one buffer, %llu KiB local;%s%s%s%s%s\n", (double)i->global_bytes * 0x1p-30,
           (double)i->max_alloc_bytes * 0x1p-30, (unsigned long long)i->local_bytes >> 10, i->fp16 ? " fp16" : "",
           i->fp64 ? " fp64" : "", i->subgroups ? " subgroups" : "", i->quirks[0] ? " quirks " : "", i->quirks);
}

static json_t *describe(const device_entry *e, bool chosen) {
    const clattn_device_info *i = &e->info;
    return json_pack("{s:i, s:i, s:b, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, "
                     "s:s}",
                     "platform_index", e->platform, "device_index", e->device, "default", (int)chosen, "name", i->name,
                     "kind", i->kind, "vendor", i->vendor, "platform", i->platform, "platform_version",
                     i->platform_version, "driver_version", i->driver_version, "device_version", i->device_version,
                     "compute_units", (json_int_t)i->compute_units, "vector_width_f32", (json_int_t)i->vector_width_f32,
                     "global_bytes", (json_int_t)i->global_bytes, "max_alloc_bytes", (json_int_t)i->max_alloc_bytes,
                     "local_bytes", (json_int_t)i->local_bytes, "max_work_group", (json_int_t)i->max_work_group, "fp16",
                     (int)i->fp16, "fp64", (int)i->fp64, "subgroups", (int)i->subgroups, "quirks", i->quirks);
}

static bool print_json(const device_list *list, const device_entry *chosen, failure *f) {
    json_t *array = json_array();
    bool done = array != NULL;
    for (size_t i = 0; i < list->count && done; ++i) {
        done = json_array_append_new(array, describe(&list->items[i], &list->items[i] == chosen)) == 0;
    }
    done = done && json_dumpf(array, stdout, JSON_INDENT(2)) == 0 && puts("") >= 0;
    json_decref(array);
    return done || fail_with(f, "the devices could not be written as JSON: out of memory, or a name is no UTF-8");
}

static bool print_text(const device_list *list, const device_entry *chosen) {
    for (size_t i = 0; i < list->count; ++i) {
        print_device(&list->items[i], &list->items[i] == chosen);
    }
    return true;
}

/* The list is printed even when CLATTN_DEVICE names none of it. */
static bool list_all(const arguments *a, failure *f) {
    device_list list;
    failure unchosen = {0};
    bool done = device_list_make(&list, f);
    if (done) {
        const device_entry *chosen = device_choose(&list, NULL, &unchosen);
        done = a->json ? print_json(&list, chosen, f) : print_text(&list, chosen);
        done = done && (chosen || fail_with(f, "%s", unchosen.text));
    }
    device_list_free(&list);
    return done;
}

int command_devices(int argc, char **argv) {
    arguments a = {0};
    failure f = {0};
    if (!options_parse(argc, argv, &(option_set){.rows = rows, .to = &a}, &f)) {
        return command_misused("devices", &f);
    }
    if (a.help) {
        fputs(help, stdout);
        return EXIT_DONE;
    }
    return list_all(&a, &f) ? EXIT_DONE : command_failed(&f, EXIT_WRONG);
}
