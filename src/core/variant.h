/* The variant table: what each family offers to the rest of the library. One object
 * clattn__variant_<name> a family, in src/layer/<name>.c; Meson generates the list (variants.inc). */
#ifndef CLATTN_CORE_VARIANT_H
#define CLATTN_CORE_VARIANT_H

#include <clattn/layer.h>

#include "core/plan.h"
#include "core/target.h"

/* How a text setting fills a field of a layer's description. */
typedef enum clattn__option_kind {
    CLATTN__OPTION_FLAG,    /* bool */
    CLATTN__OPTION_INT,     /* int64_t, at least minimum */
    CLATTN__OPTION_LIMIT,   /* int64_t, at least minimum, or "none" = -1 */
    CLATTN__OPTION_FLOAT,   /* float */
    CLATTN__OPTION_CHOICE,  /* int: index of the word in choices */
    CLATTN__OPTION_PAIR,    /* int64_t[2], "HxW", each at least minimum */
} clattn__option_kind;

typedef struct clattn__option {
    const char *name; /* "window-left" */
    clattn__option_kind kind;
    size_t field; /* offsetof in the description */
    int64_t minimum;
    const char *const *choices; /* ended by NULL */
} clattn__option;

enum { CLATTN__MAX_RESIDENT = 24 };

/* What clattn_layer_load runs: bindings are the weights (slot i = weight i, with name and shape), stages
 * pack them into resident buffers. */
typedef struct clattn__load {
    clattn__plan plan;
    uint64_t resident_bytes[CLATTN__MAX_RESIDENT];
    int resident_count;
} clattn__load;

/* Every function is pure: it reads a description, and fills a plan or an error. Descriptions begin with
 * int64_t model_size, heads; a zeroed description after `defaults` is the variant's default. */
typedef struct clattn__variant {
    const char *name;
    size_t desc_size;
    const clattn__option *options; /* ended by name NULL */
    bool links;                    /* its layers take links */
    void (*defaults)(void *desc);
    /* Read off a checkpoint what only it tells (memory rows, kernel sizes). May be NULL. */
    void (*infer)(void *desc, const clattn_weight_info *checkpoint, size_t count);
    /* Validate the description and plan the packing of its weights, stored as target->weight_type; inits load->plan with
     * one slot a weight. What is resident does not depend on the type. */
    clattn_status (*load)(const void *desc, const clattn__target *target, clattn__load *load, clattn__error *error);
    /* Append the forward pass to a plan that is initialised and bound to clattn_layer_slot's tensors. Batch and
     * length are at least 1 and the type is valid. */
    clattn_status (*forward)(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                             clattn__plan *plan, clattn__error *error);
    /* Append the backward pass: reads X, GRAD_Y and what forward saved, writes GRAD_X and every trainable weight's
     * gradient. NULL: none yet. */
    clattn_status (*backward)(const void *desc, const clattn_layer_shape *shape, const clattn__target *target,
                              clattn__plan *plan, clattn__error *error);
    /* Validate a problem (the struct of <name>.h), init and bind the plan, append the core on the caller's own
     * tensors. NULL: no core of its own. */
    clattn_status (*core)(const void *problem, const clattn__target *target, clattn__plan *plan,
                          clattn__error *error);
    /* The same for the backward pass of a problem that trains: NULL: none yet. trains tells. */
    bool (*core_trains)(const void *problem);
    clattn_status (*core_backward)(const void *problem, const clattn__target *target, clattn__plan *plan,
                                   clattn__error *error);
} clattn__variant;

/* NULL-ended, in the order of meson.build. */
extern const clattn__variant *const clattn__variants[];

const clattn__variant *clattn__variant_find(const char *name);

/* Apply text settings to a description. Errors: UNKNOWN_NAME, INVALID_ARGUMENT with name and value. */
clattn_status clattn__options_apply(const clattn__variant *variant, void *desc, const clattn_setting *settings,
                                    size_t count, clattn__error *error);

#endif
