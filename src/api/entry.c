/* clattn_<variant>_plan and clattn_<variant>_layer of every family that is built. */
#include <clattn/clattn.h>

#include "api/object.h"

#define CLATTN__VARIANT(name)                                                                                          \
    extern const clattn__variant clattn__variant_##name;                                                               \
    clattn_status clattn_##name##_plan(clattn_context *context, const clattn_##name##_problem *problem,                \
                                       clattn_plan **plan) {                                                           \
        return clattn__core_plan(context, &clattn__variant_##name, problem, plan);                                     \
    }                                                                                                                  \
    clattn_status clattn_##name##_layer(clattn_context *context, const clattn_##name##_layer_desc *desc,               \
                                        clattn_layer **layer) {                                                        \
        return clattn__layer_create(context, &clattn__variant_##name, desc, layer);                                    \
    }
#include "variants.inc"
