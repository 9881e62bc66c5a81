// What a window adds to a block of scores: relative position bias, and the mask of what a roll brought together.
//
// table: a head's, as assa_table wrote it: units of log2, lines backwards, so that neighbouring keys of a query have
// neighbouring entries.
// Defines: those of tile.h.
#ifndef CLATTN_ASSA_H
#define CLATTN_ASSA_H

#include "port.h"
#include "tile.h"
#include "window.h"

#define APART (-100.0f * LOG2E)

// Columns from..to of a row of scores, += x.
inline void add_number(SHARED float *s, const int from, const int to, const float x) {
    for (int j = from; j < to; j++)
        s[j] += x;
}

inline void add_line(SHARED float *s, __global const float *bias, const int from, const int to) {
    int j = from;
    for (; j + VW <= to; j += VW)
        RAW_STORE(RAW_LOAD(s + j) + RAW_LOAD(bias + j), s + j);
    for (; j < to; j++)
        s[j] += bias[j];
}

// Bias and mask of query t for keys first .. first+columns; the keys of one line of the window at a time.
inline void add_bias_row(SHARED float *s, __global const float *table, const window w, const int t, const int first,
                         const int columns) {
    const int y = t / w.side, x = t % w.side;
    for (int line = first / w.side; line * w.side < first + columns; line++) {
        const int start = line * w.side - first; // column of the line's first key
        const int from = max(start, 0), to = min(start + w.side, columns);
        add_line(s, table + (y - line + w.side - 1) * (2 * w.side - 1) + w.side - 1 - x - start, from, to);
        if (w.split_y > 0 && (y < w.split_y) != (line < w.split_y))
            add_number(s, from, to, APART);
        else if (w.split_x > 0 && x < w.split_x)
            add_number(s, max(start + w.split_x, from), to, APART);
        else if (w.split_x > 0)
            add_number(s, from, min(start + w.split_x, to), APART);
    }
}

#endif
