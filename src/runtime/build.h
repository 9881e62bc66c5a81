/* From a program's texts to a cl_program, and back to a binary. Used by program.c alone. */
#ifndef CLATTN_RUNTIME_BUILD_H
#define CLATTN_RUNTIME_BUILD_H

#include "runtime/program.h"

/* Fill program->cl from the disk cache, else by the compiler; the caller holds program->lock.
 * kernel is for the error's sentence only.
 * Errors: BUILD_FAILED, OpenCL's codes. */
clattn_status clattn__program_build(clattn__runtime *runtime, clattn__program *program, const char *kernel,
                                    clattn__error *error);

/* Ask for the binary of a program compiled here and put it where it is wanted: disk cache and dump. A failure is
 * only logged, that of the cache once. */
void clattn__program_save(clattn__runtime *runtime, clattn__program *program);

/* Write <label>.<extension> into CLATTN_DUMP's folder, if there is one. A failure is only logged. */
void clattn__dump(const clattn__runtime *runtime, const char *label, const char *extension, const void *data,
                  size_t size);

#endif
