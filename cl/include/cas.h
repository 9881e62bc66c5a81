// What all kernels of the cas family share.
#ifndef CLATTN_CAS_H
#define CLATTN_CAS_H

// Kernels without micro-tiles take of tile.h only its vectors and its shared memory.
#ifndef TM
#define TM 1
#define TNV 1
#define PW VW
#endif
#include "tile.h"

// Tokens of sequence b; without lengths all n.
inline long length_of(__global const int *lengths, const long at, const long b, const long n) {
    return lengths ? clamp((long)lengths[at + b], 0L, n) : n;
}

#endif
