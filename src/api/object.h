/* The public objects, and what the files of this folder share. */
#ifndef CLATTN_API_OBJECT_H
#define CLATTN_API_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include <clattn/layer.h>

#include "core/plan.h"
#include "core/target.h"
#include "core/variant.h"
#include "runtime/program.h"
#include "runtime/runtime.h"

enum { CLATTN__MAX_WEIGHTS = CLATTN_LAYER_SLOTS - CLATTN_LAYER_GRAD_WEIGHTS };

/* Reference-counted: plans and layers keep their context, plans keep their layer. */
struct clattn_context {
    atomic_int references;
    clattn__runtime *runtime;
    clattn__target target; /* constant */
    clattn_log_fn log;
    void *log_user;
    pthread_mutex_t lock; /* of text */
    char text[4096];      /* the last failure */
};

/* One direction of a plan, compiled. */
typedef struct clattn__pass {
    clattn__plan pure;
    clattn__kernel *kernels[CLATTN__MAX_STAGES]; /* owned by the runtime */
} clattn__pass;

struct clattn_layer {
    atomic_int references;
    clattn_context *context;
    const clattn__variant *variant;
    void *desc;
    clattn__load load;
    cl_mem resident[CLATTN__MAX_RESIDENT];
    clattn__pass *loader;    /* load.plan, compiled for weights of loader_type; NULL: not yet */
    clattn_type loader_type;
    char gradient_names[CLATTN__MAX_WEIGHTS][80];
    atomic_bool loaded;
};

struct clattn_plan {
    clattn_context *context;
    clattn_layer *layer; /* NULL: a core's plan */
    clattn__pass forward;
    clattn__pass *backward; /* NULL: none */
};

void clattn__context_retain(clattn_context *context);
void clattn__layer_retain(clattn_layer *layer);

/* Keep the sentence on the context, log it, return the status. */
clattn_status clattn__report(clattn_context *context, const clattn__error *error);

/* A plan whose passes the caller fills, then finishes. The layer is not set here. */
clattn_plan *clattn__plan_make(clattn_context *context, bool trains, clattn__error *error);

/* Check a filled pass against the device and compile it. */
clattn_status clattn__pass_finish(clattn_context *context, clattn__pass *pass, clattn__error *error);

/* Both passes of a plan. */
clattn_status clattn__plan_finish_passes(clattn_plan *plan, clattn__error *error);

/* clattn_enqueue of one pass with the sentence left in error. */
clattn_status clattn__pass_run(const clattn_context *context, const clattn__pass *pass, cl_command_queue queue, const clattn_tensor *tensors,
                               size_t count, const cl_mem *resident, const clattn_workspace *workspace,
                               cl_uint wait_count, const cl_event *wait_list, cl_event *event, clattn__error *error);

/* What every queueing call checks; kind: the status of a buffer that is too small. */
clattn_status clattn__check_queue(const clattn_context *context, cl_command_queue queue, clattn__error *error);
clattn_status clattn__check_waits(const clattn_context *context, cl_uint count, const cl_event *list,
                                  clattn__error *error);
clattn_status clattn__check_memory(const clattn_context *context, const char *name, cl_mem memory, uint64_t bytes,
                                   clattn_status kind, clattn__error *error);

/* The entry points behind clattn_<variant>_plan and clattn_<variant>_layer. */
clattn_status clattn__core_plan(clattn_context *context, const clattn__variant *variant, const void *problem,
                                clattn_plan **plan);
clattn_status clattn__layer_create(clattn_context *context, const clattn__variant *variant, const void *desc,
                                   clattn_layer **layer);

#endif
