/* The table of families, and text settings. */
#include "core/variant.h"

#include <string.h>

#define CLATTN__VARIANT(name) extern const clattn__variant clattn__variant_##name;
#include "variants.inc"
#undef CLATTN__VARIANT

const clattn__variant *const clattn__variants[] = {
#define CLATTN__VARIANT(name) &clattn__variant_##name,
#include "variants.inc"
#undef CLATTN__VARIANT
    NULL};

const clattn__variant *clattn__variant_find(const char *name) {
    for (size_t i = 0; clattn__variants[i]; i++)
        if (strcmp(clattn__variants[i]->name, name) == 0)
            return clattn__variants[i];
    return NULL;
}
