/* clattn: attention layers for every OpenCL device. Include this one header.
 *
 * device.h  the context on the caller's OpenCL context      plan.h   plans and the call that runs them
 * layer.h   layers with resident weights                    tensor.h tensors over cl_mem
 * status.h  what calls answer                               scaler.h loss scaling for 16-bit training
 * <variant>.h  descriptions and maths of a family
 */
#ifndef CLATTN_CLATTN_H
#define CLATTN_CLATTN_H

#include <clattn/device.h>
#include <clattn/layer.h>
#include <clattn/plan.h>
#include <clattn/scaler.h>
#include <clattn/status.h>
#include <clattn/tensor.h>
#include <clattn/variants.h>
#include <clattn/version.h>

#endif
