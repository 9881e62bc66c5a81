/* What the files of aft's layer share. */
#ifndef CLATTN_LAYER_AFT_H
#define CLATTN_LAYER_AFT_H

#include "core/variant.h"
#include "gemm/gemm.h"
#include "layer/self.h"
#include "variant/aft.h"

/* Resident buffers: projections of x in one product; one that stands alone (conv's keys; the gate, where K and V can be
 * left out); the output projection; what stands beside the keys; the right factor, or rows for aft_gram.cl. */
enum {
    RESIDENT_IN = CLATTN__RESIDENT_QKV,
    RESIDENT_OUT = CLATTN__RESIDENT_OUT,
    RESIDENT_ALONE = CLATTN__RESIDENT_OWN,
    RESIDENT_BIAS,
    RESIDENT_FACTOR,
    RESIDENTS
};

/* Which projections of x are made in one product; the one left out stands alone. */
typedef enum clattn__aft_split {
    CLATTN__AFT_TOGETHER,
    CLATTN__AFT_GATE_ALONE,
    CLATTN__AFT_KEY_ALONE
} clattn__aft_split;

clattn__aft_split clattn__aft_split_of(const clattn_aft_layer_desc *desc, const clattn__target *target);

/* The linear of RESIDENT_IN, and of RESIDENT_ALONE. */
clattn__linear clattn__aft_linear_in(const clattn_aft_layer_desc *desc, clattn__aft_split split);
clattn__linear clattn__aft_linear_alone(const clattn_aft_layer_desc *desc, clattn__aft_split split);

/* Mode gated, not causal, needs neither K nor V: possible on this device, and in which shape? */
bool clattn__aft_may_skip(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__aft_gram *gram);

/* How far LOCAL's packed band reaches. */
static inline int64_t clattn__aft_band(const clattn_aft_layer_desc *desc) {
    return clattn__aft_reach(desc->local, desc->max_length);
}

static inline bool clattn__aft_is_gated(int mode) {
    return mode == CLATTN_AFT_GATED || mode == CLATTN_AFT_GATED_MATRIX;
}

/* Bind a checked description's weights and plan their packing. */
void clattn__aft_load(const clattn_aft_layer_desc *desc, const clattn__target *target, clattn__load *load);

#endif
