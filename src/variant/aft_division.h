/* How aft's kernels divide channels and tokens, and the arguments that many of them share: cl/include/aft.h. */
#ifndef CLATTN_VARIANT_AFT_DIVISION_H
#define CLATTN_VARIANT_AFT_DIVISION_H

#include "variant/aft.h"

/* width    channels of a group; groups run of them     strips  of a group
 * count    strips of all groups                        pitch   channels of a padded row
 * blocks   blocks of tb tokens */
typedef struct clattn__aft_division {
    int wg, vw, nv;
    int64_t tb, groups, width, strips, count, pitch, blocks;
} clattn__aft_division;

/* States of blocks of tokens, [batch][blocks]: before, those of earlier blocks, after, of a block and later ones. */
typedef struct clattn__aft_scans {
    clattn__operand before, after;
} clattn__aft_scans;

/* One group a head, or one of all channels where they lie side by side. vectors: NV where a CPU's group is wide
 * enough. A GPU takes one channel a work-item. */
clattn__aft_division clattn__aft_divide(const clattn__aft *aft, const clattn__target *target, bool by_head, int vectors,
                                        int64_t tb);

/* Does the mode, or the layout, need a group for each head? */
bool clattn__aft_by_head(const clattn__aft *aft);

/* A stage with the defines of aft.h, and GATE. */
clattn__stage *clattn__aft_start(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                                 const char *file, const char *kernel);

/* at, batch, row, head. */
void clattn__aft_view_args(clattn__plan *plan, clattn__stage *stage, const clattn__aft_view *v);

/* What forward leaves of each query. */
clattn__aft_view clattn__aft_traces(const clattn__aft *aft);

/* FULL, LOCAL: the largest visible w of each query, [batch, length], behind the traces. */
clattn__operand clattn__aft_peaks(const clattn__aft *aft);

/* lengths, n, width, strips, strip count, pitch. */
void clattn__aft_extents(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft,
                         const clattn__aft_division *d);

/* FULL_BIAS_PARAMETERS of cl/include/aft_full.h: FULL, LOCAL. */
void clattn__aft_bias_args(clattn__plan *plan, clattn__stage *stage, const clattn__aft *aft);

/* A work-item for each strip, block and sequence. */
void clattn__aft_range(clattn__stage *stage, const clattn__aft_division *d, int64_t blocks, int64_t batch);

/* Append aft_total of cl/aft.cl: sums [batch][blocks][rows of pitch] become prefixes where causal, else totals. */
void clattn__aft_total_rows(clattn__plan *plan, const clattn__aft *aft, const clattn__aft_division *d,
                            clattn__operand sums, int64_t rows);

#endif
