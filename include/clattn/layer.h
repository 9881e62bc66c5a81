/* Layers: projections round a core, with resident weights; x [B, n, d] -> y [B, n, d].
 *
 * A layer is created from its variant's description (clattn_dense_layer, …) or from text settings, then
 * loaded with weights once, then planned for each batch and length, and run with clattn_enqueue:
 *
 *     clattn_dense_layer(context, &desc, &layer);
 *     clattn_layer_load(layer, queue, weights, count, 0, NULL, NULL);
 *     clattn_layer_plan(layer, &shape, &plan);
 *     clattn_enqueue(plan, queue, tensors, CLATTN_LAYER_SLOTS, &workspace, 0, NULL, &done);
 */
#ifndef CLATTN_LAYER_H
#define CLATTN_LAYER_H

#include <clattn/plan.h>

/* A layer: its description and its weights, packed for the device.
 * Thread-safety: creating, planning, reading: any thread. clattn_layer_load must not run beside another
 * call on the same layer, nor beside queued work that reads its weights. */
typedef struct clattn_layer clattn_layer;

/* Tensors of a layer's plan. */
typedef enum clattn_layer_slot {
    CLATTN_LAYER_X,           /* [B, n, d], in */
    CLATTN_LAYER_Y,           /* [B, n, d], out */
    CLATTN_LAYER_LENGTHS,     /* [B], I32, in, where shape.has_lengths; values are clamped to 0..n */
    CLATTN_LAYER_LINK_ROWS,   /* [n + 1], I64, in, where shape.links > 0: see cjar.h */
    CLATTN_LAYER_LINK_KEYS,   /* [links], I32, in, where shape.links > 0 */
    CLATTN_LAYER_SAVED,       /* [clattn_plan_saved_count], F32, where shape.train: written by forward, read by backward */
    CLATTN_LAYER_GRAD_Y,      /* [B, n, d], in, backward only */
    CLATTN_LAYER_GRAD_X,      /* [B, n, d], out, backward only; zero at padding */
    CLATTN_LAYER_GRAD_WEIGHTS, /* + i: gradient of trainable weight i, its shape, shape.grad_type, out, backward only */
    CLATTN_LAYER_SLOTS = CLATTN_LAYER_GRAD_WEIGHTS + 24 /* length of a layer's array of tensors */
} clattn_layer_slot;

/* One weight that a layer takes, under the name and shape of the PyTorch module's state_dict.
 * name       static, or owned by the layer
 * trainable  backward computes its gradient; false for batch-norm statistics */
typedef struct clattn_weight_info {
    const char *name;
    int32_t rank;
    int64_t shape[CLATTN_MAX_RANK];
    bool trainable;
} clattn_weight_info;

/* An option as text, spelt as the command line spells it without the dashes: {"window-left", "none"},
 * {"causal", NULL}. */
typedef struct clattn_setting {
    const char *name;
    const char *value; /* NULL for a flag */
} clattn_setting;

/* Create a layer by name and text settings. checkpoint lists what the caller's file holds: numbers that only
 * the weights tell (memory rows, kernel sizes) are read off its shapes; extra entries are ignored.
 * Errors: UNKNOWN_NAME (variant, setting, mode), INVALID_ARGUMENT (a value), and those of the variant's own
 * create function. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_layer_from_settings(
    clattn_context *context, const char *variant, int64_t model_size, int64_t heads, const clattn_setting *settings,
    size_t setting_count, const clattn_weight_info *checkpoint, size_t checkpoint_count, clattn_layer **layer);

/* Release; NULL is accepted. Plans of the layer keep its weights alive. */
CLATTN_API void clattn_layer_destroy(clattn_layer *layer);

/* The weights that clattn_layer_load expects, in its order. weight must be below the count. */
CLATTN_API size_t clattn_layer_weight_count(const clattn_layer *layer);
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_layer_weight(const clattn_layer *layer, size_t weight,
                                                               clattn_weight_info *info);

/* Queue the packing of weights into the layer's own device memory (allocated at create time; the caller's
 * tensors are borrowed until *event completes). weights: one contiguous tensor for each weight, in the order of
 * clattn_layer_weight, all of F32, all of F16 or all of BF16: every layer takes each. They are kept as float32, NaN and
 * infinities among them. Afterwards a forward call uploads nothing. The first load, and one of another type than the
 * last, compiles. The type of weights has no bearing on those of x and of gradients.
 * Errors: as clattn_enqueue, naming the weight; INVALID_TYPE for one whose type is not the first one's. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_layer_load(clattn_layer *layer, cl_command_queue queue,
                                                             const clattn_tensor *weights, size_t count,
                                                             cl_uint wait_count, const cl_event *wait_list,
                                                             cl_event *event);

/* What a layer's plan is made for. Zero-initialise for the defaults.
 * batch, length  B and n, ≥ 0
 * type           storage of x and y
 * has_lengths    a LENGTHS tensor will be given
 * links          number of links (cjar), 0 = none
 * train          plan a backward pass too (clattn_enqueue_backward); forward then writes SAVED
 * accumulate     backward adds to the weights' gradients instead of overwriting them; GRAD_X is always overwritten
 * grad_type      storage of the weights' gradients */
typedef struct clattn_layer_shape {
    int64_t batch;
    int64_t length;
    clattn_type type;
    bool has_lengths;
    int64_t links;
    bool train;
    bool accumulate;
    clattn_type grad_type;
} clattn_layer_shape;

/* Plan a layer for a shape. May be called before the weights are loaded; compiles what is not yet cached.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (with the reason), BUILD_FAILED (with the log), OpenCL's codes. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_layer_plan(clattn_layer *layer, const clattn_layer_shape *shape,
                                                             clattn_plan **plan);

#endif
