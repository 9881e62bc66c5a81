/* What the two engines of a linear layer share; private to src/gemm. */
#ifndef CLATTN_GEMM_ENGINE_H
#define CLATTN_GEMM_ENGINE_H

#include "core/tile.h"
#include "gemm/gemm.h"

void clattn__linear_apply_clblast(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call);

/* Tile shape, KB and types as defines; the three outputs as arguments; where the packed bias lies. */
void clattn__linear_defines(clattn__plan *plan, clattn__stage *stage, const clattn__tile *tile,
                            const clattn__linear_call *call);
void clattn__linear_outputs(clattn__plan *plan, clattn__stage *stage, const clattn__linear_call *call);
clattn__operand clattn__linear_bias(const clattn__linear *linear, const clattn__target *target,
                                    clattn__operand resident);

#endif
