/* Doubles to and from the storage types, rounded to nearest even. */
#ifndef CLATTN_TESTS_STORAGE_H
#define CLATTN_TESTS_STORAGE_H

#include <clattn/tensor.h>

/* count doubles into elements of a type, and back. I32 and I64 take whole numbers. */
void storage_pack(clattn_type type, const double *values, size_t count, void *bytes);
void storage_unpack(clattn_type type, const void *bytes, size_t count, double *values);

/* Round in place through a type, so that device and reference start from the same numbers. */
void storage_round(clattn_type type, double *values, size_t count);

/* Largest error over the largest magnitude that a forward result of this storage may have. */
double storage_tolerance(clattn_type type);

#endif
