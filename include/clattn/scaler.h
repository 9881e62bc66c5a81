/* Loss scaling for training with 16-bit gradients, as torch.amp.GradScaler does it.
 *
 * Gradients stored in float16 vanish below 6e-8. So the loss, which for a layer means GRAD_Y, is multiplied by a scale;
 * by linearity every gradient then carries that factor. Before the optimiser's step the gradients are divided by it,
 * and a step whose gradients overflowed is skipped, with a smaller scale the next time:
 *
 *     clattn_scaler_create(context, NULL, &scaler);
 *     each step:
 *         scale = clattn_scaler_scale(scaler);              multiply the loss, or GRAD_Y, by it
 *         clattn_enqueue, clattn_enqueue_backward           of every layer, from the scaled gradients
 *         clattn_scaler_unscale(scaler, queue, gradients, count, 1, &backward, &unscaled);
 *         clattn_scaler_update(scaler, queue, 1, &unscaled, &skip);
 *         if (!skip) the optimiser's step
 *
 * unscale    g <- g * (1 / scale), computed in float32 and rounded to g's storage, for each element of each tensor; a
 *            flag on the device is set if any g was infinite or NaN before
 * update     flag set:  skip; scale <- scale * backoff_factor; tracker <- 0
 *            else:      tracker <- tracker + 1, and where that reaches growth_interval
 *                       scale <- scale * growth_factor, if that is finite; tracker <- 0
 * Unlike torch's, the scale never falls below 2^-126, so 1 / scale stays finite.
 * With gradient accumulation, unscale once, after the last backward pass of a step.
 * Source: Micikevicius et al., Mixed Precision Training, 2018; torch.amp.GradScaler of PyTorch 2. */
#ifndef CLATTN_SCALER_H
#define CLATTN_SCALER_H

#include <clattn/device.h>

/* A scale and the flag of the current step. Thread-safety: one thread at a time; distinct scalers are independent. */
typedef struct clattn_scaler clattn_scaler;

/* All of a scaler but the step in progress; save it with a checkpoint.
 * scale            above 0 and finite
 * growth_factor    above 1 and finite
 * backoff_factor   above 0 and below 1
 * growth_interval  steps without overflow before the scale grows, at least 1
 * growth_tracker   such steps since the scale last changed, 0..growth_interval - 1 */
typedef struct clattn_scaler_state {
    float scale;
    float growth_factor;
    float backoff_factor;
    int32_t growth_interval;
    int32_t growth_tracker;
} clattn_scaler_state;

/* Torch's defaults. */
#define CLATTN_SCALER_DEFAULTS                                                                                         \
    { 65536.0f, 2.0f, 0.5f, 2000, 0 }

/* Create a scaler with a flag on the context's device. state NULL: the defaults. The context is kept alive.
 * Errors: INVALID_ARGUMENT (naming the field), OUT_OF_HOST_MEMORY, OpenCL's codes. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_scaler_create(clattn_context *context,
                                                                const clattn_scaler_state *state,
                                                                clattn_scaler **scaler);

/* Release; NULL is accepted. Work already queued completes. */
CLATTN_API void clattn_scaler_destroy(clattn_scaler *scaler);

/* The factor for the loss of the current step. It changes only in update and restore. 0 for NULL. */
CLATTN_API float clattn_scaler_scale(const clattn_scaler *scaler);

/* Save the state, or replace it, at a step's start. Errors: INVALID_ARGUMENT (NULL; a value, naming the field: then
 * nothing has changed). */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_scaler_save(const clattn_scaler *scaler, clattn_scaler_state *state);
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_scaler_restore(clattn_scaler *scaler,
                                                                 const clattn_scaler_state *state);

/* Queue the division of gradients by the scale, in place, behind a wait list; may be called several times in a step,
 * each time for other tensors. One kernel a tensor, nothing is waited for; the first call with a storage type compiles
 * its kernel. Deterministic. gradients  count contiguous tensors (strides as clattn_tensor_make gives) of f32, f16 or
 * bf16, any rank and shape; one that is all zero is passed over, so a layer's slots from CLATTN_LAYER_GRAD_WEIGHTS on
 * serve as they are event      NULL, or receives an event of the last kernel, released by the caller Everything is
 * checked before anything is queued. Errors: INVALID_ARGUMENT (NULL), INVALID_TYPE, INVALID_SHAPE (naming the tensor by
 * its number), INVALID_BUFFER, INVALID_CONTEXT, BUILD_FAILED, OpenCL's codes. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_scaler_unscale(clattn_scaler *scaler, cl_command_queue queue,
                                                                 const clattn_tensor *gradients, size_t count,
                                                                 cl_uint wait_count, const cl_event *wait_list,
                                                                 cl_event *event);

/* End a step: wait for the wait list, read the flag (the one place where the host waits for the device) and clear it,
 * and update the scale. *skip: some gradient was infinite or NaN; leave the weights as they are.
 * The wait list holds the events of this step's unscale calls; an in-order queue that ran them needs none.
 * Errors: INVALID_ARGUMENT (NULL), INVALID_CONTEXT, OpenCL's codes; then scale and tracker have not changed and *skip
 * is true. */
CLATTN_API CLATTN_MUST_CHECK clattn_status clattn_scaler_update(clattn_scaler *scaler, cl_command_queue queue,
                                                                cl_uint wait_count, const cl_event *wait_list,
                                                                bool *skip);

#endif
