/* Tuning files: JSON that overrides the table of tile shapes.
 *
 *     {"gemm": {"wg": 64, "vw": 4, "tm": 4, "tnv": 1, "pw": 32, "bm": 32, "bn": 64, "kb": 32},
 *      "attention": {"bm": 16, "bn": 32}}
 *
 * Both objects and all their numbers are optional; what is left out keeps the table's value for the device. */
#ifndef CLATTN_CORE_TUNING_H
#define CLATTN_CORE_TUNING_H

#include "base/error.h"
#include "core/target.h"

/* Apply text; name stands for it in sentences. Errors: INVALID_ARGUMENT (no JSON, an unknown key, a number outside its
 * range or breaking a rule of cl/include/tile.h), UNSUPPORTED (more than the device has); then the target is unchanged.
 */
clattn_status clattn__tuning_apply(const char *name, const char *text, size_t size, clattn__target *target,
                                   clattn__error *error);

/* The same for a file. NULL and "" are no file. Errors: also IO_FAILED. */
clattn_status clattn__tuning_load(const char *path, clattn__target *target, clattn__error *error);

#endif
