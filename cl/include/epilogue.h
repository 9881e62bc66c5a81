// The end of a linear layer: bias, activation, and the form in which a section's result is stored.
//
// Column c of a section belongs to head c / head_size. Row r of batch b goes to
//   form 0 (rows)    b*batch_stride + head*head_stride + r*row_stride + c % head_size
//   form 1 (panels)  b*batch_stride + head*head_stride + ((r / PW)*head_size + c % head_size)*PW + r % PW
// replacing what is there, or added to it. Padding of either form is left unwritten. Defines: those of tile.h, TYPE_Y 0|1|2.
#ifndef CLATTN_EPILOGUE_H
#define CLATTN_EPILOGUE_H

#include "tile.h"

#ifndef TYPE_Y
#error "TYPE_Y: see types.h"
#endif

typedef struct output {
    __global STORAGE(TYPE_Y) *y;
    int form, activation, add;
    long head_size, batch_stride, head_stride, row_stride;
} output;

// The three outputs of a product as kernel parameters, and their choice by section (uniform in a tile).
#define OUTPUT_PARAMETERS(s)                                                                                           \
    __global STORAGE(TYPE_Y) *y##s, const long y##s##_offset, const int form##s, const int activation##s,              \
        const int add##s, const long head_size##s, const long batch_stride##s, const long head_stride##s, const long row_stride##s
#define OUTPUT(s)                                                                                                      \
    (output) {                                                                                                         \
        y##s + y##s##_offset, form##s, activation##s, add##s, head_size##s, batch_stride##s, head_stride##s, row_stride##s     \
    }
#define OUTPUT_OF(section) ((section) == 0 ? OUTPUT(0) : (section) == 1 ? OUTPUT(1) : OUTPUT(2))

inline V activate(const V x, const int activation) { return activation == 1 ? 1.0f / (1.0f + exp(-x)) : x; }

// `count` lanes of x at column c of a head, whose part of the output begins at `at`; what runs past the head's columns
// goes on in the next head.
inline void store_vector(const output o, long at, const long row, long c, const int count, const V x) {
    const long step = o.form == 0 ? 1 : PW;
    const long start = o.form == 0 ? row * o.row_stride : row / PW * o.head_size * PW + row % PW;
    if (o.form == 0 && count >= VW && c + VW <= o.head_size) {
        const long to = at + start + c;
        VSTORE(TYPE_Y, o.y, to, o.add ? x + VLOAD(TYPE_Y, o.y, to) : x);
        return;
    }
    float lane[VW];
    RAW_STORE(x, lane);
    for (int e = 0; e < VW && e < count; e++) {
        const long to = at + start + c * step;
        STORE(TYPE_Y, o.y, to, o.add ? lane[e] + LOAD(TYPE_Y, o.y, to) : lane[e]);
        if (++c == o.head_size) {
            c = 0;
            at += o.head_stride;
        }
    }
}

// A micro-tile whose first element is (row, column) of the section; rows below `rows` exist.
inline void store_tile(V tile[TM][TNV], const output o, const long b, const long row, const long rows,
                       const long column, const long columns, __global const float *bias) {
    UNROLL_GPU for (int j = 0; j < TNV; j++) {
        const long cj = column + j * VW;
        if (cj >= columns)
            continue;
        const long head = cj / o.head_size, c = cj - head * o.head_size;
        const long at = b * o.batch_stride + head * o.head_stride;
        const V bj = bias ? RAW_LOAD(bias + j * VW) : (V)(0.0f);
        UNROLL_GPU for (int i = 0; i < TM; i++) {
            if (row + i < rows)
                store_vector(o, at, row + i, c, min((long)VW, columns - cj), activate(tile[i][j] + bj, o.activation));
        }
    }
}

#endif
