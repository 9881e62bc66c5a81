/* A plan as pure data: stages, their defines, arguments and sizes. No OpenCL, no handles: it prints,
 * compares, and is tested without a device. src/api/run.c executes it.
 *
 * A stage is one kernel launch, or one matrix product by CLBlast. Its arguments name *operands*: a slot
 * (whose memory the caller gives at enqueue time) and an element offset inside it. The kernel receives
 * an operand as two arguments: the pointer, and a long element offset (slot's plus operand's).
 */
#ifndef CLATTN_CORE_PLAN_H
#define CLATTN_CORE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <clattn/plan.h>

#include "base/caps.h"
#include "base/define.h"
#include "base/error.h"
#include "base/text.h"

enum {
    CLATTN__MAX_STAGES = 64,
    CLATTN__MAX_ARGS = 48,
    CLATTN__MAX_DEFINES = 40,
    CLATTN__MAX_SLOTS = 40,
};

/* Slots 0.. are the call's tensors. These stand for memory that is not a tensor of the call. */
enum {
    CLATTN__SLOT_NONE = -1,      /* NULL pointer, offset 0 */
    CLATTN__SLOT_WORKSPACE = -2, /* offsets in elements of 4 bytes */
    CLATTN__SLOT_RESIDENT = 256, /* + i: the layer's resident buffer i */
};

typedef struct clattn__operand {
    int slot;
    int64_t offset; /* elements */
} clattn__operand;

/* An operand at the start of a slot, of a resident buffer, or of nothing: what a call leaves out. */
static inline clattn__operand clattn__slot(int slot) { return (clattn__operand){slot, 0}; }
static inline clattn__operand clattn__resident(int buffer) { return clattn__slot(CLATTN__SLOT_RESIDENT + buffer); }
static inline clattn__operand clattn__none(void) { return clattn__slot(CLATTN__SLOT_NONE); }
static inline clattn__operand clattn__slot_if(bool given, int slot) {
    return given ? clattn__slot(slot) : clattn__none();
}
/* The same for a tensor that a problem may leave out. */
clattn__operand clattn__slot_of(int slot, const clattn_tensor *tensor);
static inline bool clattn__given(clattn__operand operand) { return operand.slot != CLATTN__SLOT_NONE; }

typedef enum clattn__arg_kind {
    CLATTN__ARG_OPERAND,
    CLATTN__ARG_LONG,
    CLATTN__ARG_INT,
    CLATTN__ARG_FLOAT
} clattn__arg_kind;

typedef struct clattn__arg {
    clattn__arg_kind kind;
    clattn__operand operand;
    int64_t integer; /* LONG, INT */
    float real;      /* FLOAT, passed bit by bit */
} clattn__arg;

/* batch row-major products C[m, n] = A[m, k] B[n, k]^T in float32, by CLBlast; b_stride 0: B is the same for all. */
typedef struct clattn__product {
    int64_t batch, m, n, k, lda, ldb, ldc, a_stride, b_stride, c_stride;
    clattn__operand a, b, c;
} clattn__product;

typedef enum clattn__engine { CLATTN__ENGINE_KERNEL, CLATTN__ENGINE_CLBLAST } clattn__engine;

typedef struct clattn__stage {
    clattn__engine engine;
    const char *file;   /* "dense" is cl/dense.cl; static */
    const char *kernel; /* static */
    clattn__define defines[CLATTN__MAX_DEFINES];
    int define_count; /* sorted by name when the plan is finished */
    clattn__arg args[CLATTN__MAX_ARGS];
    int arg_count;
    size_t global[3];
    size_t local[3];
    size_t local_bytes; /* local memory that the kernel declares */
    clattn__product product;
} clattn__stage;

/* What a slot's tensor must look like at enqueue time. */
typedef struct clattn__binding {
    const char *name;     /* for error sentences: "q", "lengths"; NULL = the plan does not use this slot */
    bool optional;        /* may be absent at enqueue time */
    bool frozen;          /* a weight without a gradient */
    clattn_tensor layout; /* memory NULL */
} clattn__binding;

typedef struct clattn__plan {
    clattn__stage stages[CLATTN__MAX_STAGES];
    int stage_count;
    clattn__binding bindings[CLATTN__MAX_SLOTS];
    int slot_count;
    uint64_t workspace_bytes; /* highest mark */
    uint64_t workspace_used;  /* while building */
    int64_t saved_count;      /* floats that forward saves for backward */
    char note[512];           /* which candidate was taken, and why not those before it; "" where there was no choice */
    bool overflow;            /* a fixed array was too small: a defect, reported by clattn__plan_finish */
} clattn__plan;

/* ---- building ---- */

void clattn__plan_init(clattn__plan *plan, int slot_count);

/* Append a kernel stage. NULL never: when the array is full a scratch stage is returned and overflow set. */
clattn__stage *clattn__plan_kernel(clattn__plan *plan, const char *file, const char *kernel);
clattn__stage *clattn__plan_product(clattn__plan *plan, const clattn__product *product);

/* Reserve workspace for count floats, aligned; and return to an earlier mark (plan->workspace_used). */
clattn__operand clattn__plan_scratch(clattn__plan *plan, int64_t count);
void clattn__plan_release(clattn__plan *plan, uint64_t mark);

/* Reserve count floats of what forward saves for backward, in the tensor of `slot`, whose binding grows. Both
 * passes make the same reservations in the same order. */
clattn__operand clattn__plan_save(clattn__plan *plan, int slot, int64_t count);

/* Set the note, printf-style, cut to size. */
void clattn__plan_note(clattn__plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

void clattn__plan_bind(clattn__plan *plan, int slot, const char *name, const clattn_tensor *layout, bool optional);

void clattn__stage_define(clattn__plan *plan, clattn__stage *stage, const char *name, int64_t value);
void clattn__stage_operand(clattn__plan *plan, clattn__stage *stage, clattn__operand operand);
void clattn__stage_operands(clattn__plan *plan, clattn__stage *stage, const clattn__operand *list, size_t count);
void clattn__stage_long(clattn__plan *plan, clattn__stage *stage, int64_t value);
void clattn__stage_longs(clattn__plan *plan, clattn__stage *stage, const int64_t *list, size_t count);
void clattn__stage_int(clattn__plan *plan, clattn__stage *stage, int32_t value);
void clattn__stage_float(clattn__plan *plan, clattn__stage *stage, float value);

/* Work-groups along each axis times work-items in a group (the group is groups × 1 × 1 shaped). */
void clattn__stage_range(clattn__stage *stage, int64_t groups0, int64_t groups1, int64_t groups2, int64_t group_size);

/* Sort defines, drop stages without work-items, and check every limit of the device: work-group,
 * local memory, workspace against the largest allocation. Errors: UNSUPPORTED with both values. */
clattn_status clattn__plan_finish(clattn__plan *plan, const clattn__caps *caps, clattn__error *error);

/* ---- reading ---- */

/* One line a stage, then the workspace, then what is saved. */
void clattn__plan_append_text(const clattn__plan *plan, clattn__text *text);

/* The same into a buffer, as clattn_plan_describe. */
size_t clattn__plan_text(const clattn__plan *plan, char *text, size_t size);

#endif
