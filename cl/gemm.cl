// Linear layers: Y = act(X W^T + b) for up to three weight matrices of one shape (sections) at once.
//
//   gemm_pack      packs one section's W [out, in] into panels of PW output columns, its bias behind all panels
//   gemm_keep      the same for an engine that wants W as it is: sections * [out, in], then the same biases
//   gemm_linear    a work-group owns BM rows of one batch entry and columns_each <= BN columns, section after section
//   gemm_widen     X as float32 without gaps, for an engine that reads no other: a work-group owns a row
//   gemm_epilogue  the same end for a product that another engine has computed: a work-group owns BM rows, BN columns
//
// Packed form: sections * ceil(out / PW) panels of in * PW floats, then as many times PW floats of bias; what
// lies past `out` is 0. Local memory (WG > 1): BM * KB floats.
// Defines: those of tile.h; BM a multiple of TM; BN a multiple of PW; KB 16..512; TYPE_X (of X; of W and bias where they are
// packed), TYPE_Y.
#include "epilogue.h"

#if !defined(BM) || !defined(BN) || !defined(KB) || !defined(TYPE_X)
#error "BM, BN, KB, TYPE_X: see the head of gemm.cl"
#endif

#define ROW_TILES (BM / TM)
#define COLUMN_TILES (BN / TN)
#define TILES (ROW_TILES * COLUMN_TILES)
#define TILES_EACH CEIL_DIV(TILES, WG)

inline void pack_bias(__global float *to, __global const STORAGE(TYPE_X) *bias, const long bias_offset,
                      const long first, const long out) {
    for (int j = 0; j < PW; j++)
        to[j] = bias && first + j < out ? LOAD(TYPE_X, bias, bias_offset + first + j) : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_pack(__global const STORAGE(TYPE_X) *w, const long w_offset, __global const STORAGE(TYPE_X) *bias,
          const long bias_offset, __global float *packed, const long packed_offset, const long in, const long out,
          const long section, const long sections) {
    const long panels = CEIL_DIV(out, PW), panel = section * panels + get_global_id(0);
    const long first = get_global_id(0) * PW;
    __global float *to = packed + packed_offset;
    for (long k = 0; k < in; k++)
        for (int j = 0; j < PW; j++)
            to[(panel * in + k) * PW + j] = first + j < out ? LOAD(TYPE_X, w, w_offset + (first + j) * in + k) : 0.0f;
    pack_bias(to + (sections * panels * in + panel) * PW, bias, bias_offset, first, out);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
gemm_keep(__global const STORAGE(TYPE_X) *w, const long w_offset, __global const STORAGE(TYPE_X) *bias,
          const long bias_offset, __global float *packed, const long packed_offset, const long in, const long out,
          const long section, const long sections) {
    const long panels = CEIL_DIV(out, PW), panel = section * panels + get_global_id(0);
    const long first = get_global_id(0) * PW, last = min(first + PW, out);
    __global float *to = packed + packed_offset;
    for (long i = first * in; i < last * in; i++)
        to[section * out * in + i] = LOAD(TYPE_X, w, w_offset + i);
    pack_bias(to + sections * out * in + panel * PW, bias, bias_offset, first, out);
}

// BM rows of X from column k0, KB columns, zero past the matrix, so that the product needs no edges.
inline void stage_rows(SHARED float *to, __global const STORAGE(TYPE_X) *x, const long row_stride, const long rows,
                       const long k0, const long in, const int lid) {
    const int columns = min((long)KB, in - k0);
    for (int i = 0; i < BM; i++)
        for (int k = lid; k < columns; k += WG)
            to[i * KB + k] = i < rows ? LOAD(TYPE_X, x, i * row_stride + k0 + k) : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
gemm_linear(__global const STORAGE(TYPE_X) *x, const long x_offset, __global const float *packed,
            const long packed_offset, const long rows, const long in, const long out, const long sections,
            const int columns_each, const long x_batch_stride, const long x_row_stride, const long packed_batch_stride,
            OUTPUT_PARAMETERS(0), OUTPUT_PARAMETERS(1), OUTPUT_PARAMETERS(2)) {
    SHARED float xs[BM * KB] ALIGNED;
    V acc[TILES_EACH][TM][TNV];
    const int lid = get_local_id(0);
    const long b = get_group_id(2), row0 = (long)get_group_id(0) * BM, column0 = (long)get_group_id(1) * columns_each;
    const long panels = CEIL_DIV(out, PW), all = sections * panels;
    const int columns = min((long)columns_each, all * PW - column0);
    __global const float *w = packed + packed_offset + b * packed_batch_stride, *bias = w + all * in * PW;
    x += x_offset + b * x_batch_stride + row0 * x_row_stride;

    UNROLL_GPU for (int n = 0; n < TILES_EACH; n++) tile_zero(acc[n]);
    for (long k0 = 0; k0 < in; k0 += KB) {
        const int count = min((long)KB, in - k0);
        SYNC;
        stage_rows(xs, x, x_row_stride, rows - row0, k0, in, lid);
        SYNC;
        UNROLL_GPU for (int n = 0; n < TILES_EACH; n++) {
            const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, COLUMN_TILES) * TM;
            const long column = column0 + TILE_COLUMN(t, ROW_TILES, COLUMN_TILES) * TN;
            if (column < column0 + columns && row0 + mi < rows)
                tile_fma(acc[n], xs + mi * KB, KB, w + (column / PW * in + k0) * PW + column % PW, PW, count);
        }
    }
    UNROLL_GPU for (int n = 0; n < TILES_EACH; n++) {
        const int t = n * WG + lid, mi = TILE_ROW(t, ROW_TILES, COLUMN_TILES) * TM;
        const long column = column0 + TILE_COLUMN(t, ROW_TILES, COLUMN_TILES) * TN, section = column / (panels * PW);
        if (column < column0 + columns && row0 + mi < rows)
            store_tile(acc[n], OUTPUT_OF(section), b, row0 + mi, rows, column - section * panels * PW, out,
                       bias + column);
    }
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
gemm_widen(__global const STORAGE(TYPE_X) *x, const long x_offset, __global float *to, const long to_offset,
           const long rows, const long in, const long x_batch_stride, const long x_row_stride) {
    const long row = get_group_id(0), b = get_group_id(2);
    x += x_offset + b * x_batch_stride + row * x_row_stride;
    to += to_offset + (b * rows + row) * in;
    for (long k = get_local_id(0); k < in; k += WG)
        to[k] = LOAD(TYPE_X, x, k);
}

// product [batch * rows, sections * out]; bias [sections * ceil(out / PW) * PW].
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
gemm_epilogue(__global const float *product, const long product_offset, __global const float *bias,
              const long bias_offset, const long rows, const long out, const long sections, OUTPUT_PARAMETERS(0),
              OUTPUT_PARAMETERS(1), OUTPUT_PARAMETERS(2)) {
    const int lid = get_local_id(0);
    const long b = get_group_id(2), row0 = (long)get_group_id(0) * BM, column0 = (long)get_group_id(1) * BN;
    const long panels = CEIL_DIV(out, PW);
    for (int t = lid; t < TILES; t += WG) {
        const long row = row0 + TILE_ROW(t, ROW_TILES, COLUMN_TILES) * TM;
        const long column = column0 + TILE_COLUMN(t, ROW_TILES, COLUMN_TILES) * TN;
        const long section = column / (panels * PW), c = column - section * panels * PW;
        if (section >= sections || row >= rows)
            continue;
        __global const float *p = product + product_offset + (b * rows + row) * sections * out + section * out + c;
        V tile[TM][TNV];
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TNV; j++) {
                float lane[VW];
                for (int e = 0; e < VW; e++)
                    lane[e] = row + i < rows && c + j * VW + e < out ? p[i * sections * out + j * VW + e] : 0.0f;
                tile[i][j] = RAW_LOAD(lane);
            }
        store_tile(tile, OUTPUT_OF(section), b, row, rows, c, out, bias ? bias + bias_offset + column : bias);
    }
}
