/* The header of a .npy file: a Python dictionary with exactly the keys descr, fortran_order and shape. */
#ifndef CLATTN_CLI_NPY_HEADER_H
#define CLATTN_CLI_NPY_HEADER_H

#include "cli/convert.h"
#include "cli/npy.h"

typedef struct npy_header {
    number type;
    bool big; /* most significant byte first */
    bool fortran;
    int rank;
    int64_t shape[NPY_MAX_RANK];
} npy_header;

bool npy_header_parse(const char *name, const unsigned char *text, size_t size, npy_header *header, failure *f);

#endif
