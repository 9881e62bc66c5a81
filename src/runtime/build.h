/* Programs, shared by the files that find them (kernels.c), list them (program.c) and build them (build.c). */
#ifndef CLATTN_RUNTIME_BUILD_H
#define CLATTN_RUNTIME_BUILD_H

#include "runtime/program.h"

/* A program of the family that holds a kernel of this name; NULL: none. */
clattn__program *clattn__program_find(clattn__runtime *runtime, const clattn__hash *family, const char *name);

/* The program of this source, found or added; takes source and options over. names as in clattn__program. NULL when out
 * of memory. */
clattn__program *clattn__program_add(clattn__runtime *runtime, const clattn__hash *family, const char *file,
                                     const char *names, char *source, char *options);

/* A kernel of a program, which is built first where it is not yet. */
clattn_status clattn__program_kernel(clattn__runtime *runtime, clattn__program *program, const char *name,
                                     clattn__kernel **out, clattn__error *error);

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
