// A grid of tokens, rolled by -shift along both axes and cut into windows of SIDE x SIDE.
//
//   rolled grid     [ window 0 | window 1 | ... ]     token t of a window stands at row y0 + t / side, column
//                   [  across  |   ...    |     ]     x0 + t % side of the rolled grid, and at
//                                                     ((row + shift) % rows, (column + shift) % columns) of the grid
//
// The mask parts what the roll brought together: in the last windows along an axis, places before side - shift
// from those behind.
#ifndef CLATTN_WINDOW_H
#define CLATTN_WINDOW_H

#define WINDOW_PARAMETERS const int side, const int grid_rows, const int grid_columns, const int shift

typedef struct window {
    int side, rows, columns, y, x; // y, x: the first token's place in the grid
    int split_y, split_x;          // side - shift in the last windows of a shifted grid, else 0
} window;

inline int windows_of(const int side, const int grid_rows, const int grid_columns) {
    return grid_rows / side * (grid_columns / side);
}

inline window window_at(const int w, WINDOW_PARAMETERS) {
    const int across = grid_columns / side, y0 = w / across * side, x0 = w % across * side;
    const int split = shift > 0 ? side - shift : 0;
    return (window){side, grid_rows, grid_columns, y0 + shift, x0 + shift, y0 + side == grid_rows ? split : 0,
                    x0 + side == grid_columns ? split : 0};
}

// Where token t of the window stands in the sequence.
inline long window_token(const window w, const int t) {
    const int y = w.y + t / w.side, x = w.x + t % w.side;
    return (long)(y >= w.rows ? y - w.rows : y) * w.columns + (x >= w.columns ? x - w.columns : x);
}

#endif
