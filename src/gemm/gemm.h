/* Linear layers, Y = act(X W^T + b), by one of two engines: CLBlast and an epilogue kernel, or the tile
 * kernel of cl/gemm.cl, which fuses bias, activation, head split and packing.
 *
 * One call may hold up to three *sections*: weight matrices of one shape applied to the same X (Q, K and
 * V), each with an output of its own.
 */
#ifndef CLATTN_GEMM_GEMM_H
#define CLATTN_GEMM_GEMM_H

#include "core/plan.h"
#include "core/target.h"

enum { CLATTN__MAX_SECTIONS = 3 };

/* in, out   columns and rows of each section's W [out, in]
 * sections  1..3
 * bias      every section has a bias [out] */
typedef struct clattn__linear {
    int64_t in, out;
    int sections;
    bool bias;
} clattn__linear;

/* Where one section's result goes. With head = column / head_size, c = column % head_size:
 *   ROWS    element (b, row, column) at b*batch_stride + head*head_stride + row*row_stride + c
 *   PANELS  at b*batch_stride + head*head_stride + (row/TN)*head_size*TN + c*TN + row%TN,
 *           TN = clattn__panel_width: a head's rows as columns of packed panels
 * A plain row-major matrix is ROWS with head_size = out. Padding of either form is left unwritten. */
typedef enum clattn__form { CLATTN__ROWS, CLATTN__PANELS } clattn__form;

typedef enum clattn__activation { CLATTN__IDENTITY, CLATTN__SIGMOID } clattn__activation;

typedef struct clattn__linear_out {
    clattn__form form;
    clattn__activation activation;
    clattn__operand to; /* f32 unless type says otherwise */
    clattn_type type;
    bool add; /* to what is there, after the activation */
    int64_t head_size, batch_stride, head_stride, row_stride;
} clattn__linear_out;

/* x [batch, rows, in], innermost stride 1. resident: what clattn__linear_load wrote; resident_batch_stride: 0, or floats
 * from one batch entry's weights of its own, whose biases are 0, to the next one's. */
typedef struct clattn__linear_call {
    clattn__linear linear;
    int64_t batch, rows;
    clattn__operand x;
    clattn_type x_type;
    int64_t x_batch_stride, x_row_stride;
    clattn__operand resident;
    int64_t resident_batch_stride;
    clattn__linear_out out[CLATTN__MAX_SECTIONS];
} clattn__linear_call;

/* Bytes of a linear's resident form. */
uint64_t clattn__linear_bytes(const clattn__linear *linear, const clattn__target *target);

/* Append the stages that pack weights [out, in] and biases [out] (of the target's weight_type, contiguous), one for each section. */
void clattn__linear_load(clattn__plan *plan, const clattn__target *target, const clattn__linear *linear,
                         const clattn__operand *weights, const clattn__operand *biases, clattn__operand resident);

/* Append the stages that apply a linear. */
void clattn__linear_apply(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call);

/* ---- backward ---- */

/* Gradients of one linear from those of its outputs.
 * x          as in the forward call
 * lengths    [batch] I32 or slot NONE: rows at and past are padding; what x holds there does not matter
 * dy         [batch * rows, sections * out]: dL/dY of all sections side by side; zero at padding where lengths hide it.
 *            dy_row_stride: elements from row to row; 0: contiguous
 * resident   what clattn__linear_load wrote
 * dx         [batch * rows, in], contiguous; slot NONE: not wanted. add_dx: added to what is there
 * dw, db     [out, in] and [out] for each section, contiguous, of grad_type; slot NONE in db where there is no bias
 * accumulate added to what dw and db hold */
typedef struct clattn__linear_grad {
    clattn__linear linear;
    int64_t batch, rows;
    clattn__operand x;
    clattn_type x_type;
    int64_t x_batch_stride, x_row_stride;
    clattn__operand lengths;
    clattn__operand dy;
    clattn_type dy_type;
    int64_t dy_row_stride;
    clattn__operand resident;
    clattn__operand dx;
    clattn_type dx_type;
    bool add_dx;
    clattn__operand dw[CLATTN__MAX_SECTIONS], db[CLATTN__MAX_SECTIONS];
    clattn_type grad_type;
    bool accumulate;
} clattn__linear_grad;

/* Append the stages: db by blocked column sums, dx = dY W, dW = dY^T X. Deterministic. */
void clattn__linear_backward(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *grad);

/* dx = dY W alone. */
void clattn__linear_backward_input(clattn__plan *plan, const clattn__target *target, const clattn__linear_grad *grad);

/* A plain row-major output of one section: [batch, rows, out] contiguous at to. */
clattn__linear_out clattn__out_rows(clattn__operand to, int64_t rows, int64_t out);

#endif
