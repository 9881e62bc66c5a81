/* Linear layers by CLBlast: one product into the workspace, then the epilogue kernel. */
#include "gemm/clblast.h"
#include "gemm/engine.h"

#include <clblast_c.h>

clattn_status clattn__clblast_tune(cl_device_id device, clattn__error *error) {
    static const char *names[] = {"GEMMK", "KREG", "KWG", "KWI", "MDIMA", "MDIMC", "MWG", "NDIMB",
                                  "NDIMC", "NWG",  "SA",  "SB",  "STRM",  "STRN",  "VWM", "VWN"};
    static const size_t values[] = {0, 1, 32, 2, 8, 8, 64, 8, 8, 64, 1, 1, 0, 0, 4, 4};
    enum { COUNT = sizeof values / sizeof *values };
    const clattn_status status =
        (clattn_status)CLBlastOverrideParameters(device, "Xgemm", CLBlastPrecisionSingle, COUNT, names, values);
    if (status != CLATTN_SUCCESS)
        return clattn__fail(error, status, "CLBlast took no parameters for the device (%s)",
                            clattn_status_string(status));
    return CLATTN_SUCCESS;
}

static void epilogue(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call,
                     clattn__operand product) {
    const clattn__tile *tile = &target->gemm;
    const int64_t width = clattn__panel_width(target);
    const int64_t columns = call->linear.sections * clattn__ceil_div(call->linear.out, width) * width;
    clattn__stage *stage = clattn__plan_kernel(plan, "gemm", "gemm_epilogue");
    clattn__linear_defines(plan, stage, tile, call);
    clattn__stage_operand(plan, stage, product);
    clattn__stage_operand(plan, stage, clattn__linear_bias(&call->linear, target, call->resident));
    clattn__stage_long(plan, stage, call->rows);
    clattn__stage_long(plan, stage, call->linear.out);
    clattn__stage_long(plan, stage, call->linear.sections);
    clattn__linear_outputs(plan, stage, call);
    clattn__stage_range(stage, clattn__ceil_div(call->rows, tile->bm), clattn__ceil_div(columns, tile->bn), call->batch,
                        tile->wg);
}

/* CLBlast's float32 product reads float32: 16-bit x goes through the workspace. */
static void widen_x(clattn__plan *plan, const clattn__target *target, clattn__linear_call *call) {
    const int64_t in = call->linear.in;
    const clattn__operand to = clattn__plan_scratch(plan, call->batch * call->rows * in);
    clattn__stage *stage = clattn__plan_kernel(plan, "gemm", "gemm_widen");
    clattn__linear_defines(plan, stage, &target->gemm, call);
    clattn__stage_operand(plan, stage, call->x);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, call->rows);
    clattn__stage_long(plan, stage, in);
    clattn__stage_long(plan, stage, call->x_batch_stride);
    clattn__stage_long(plan, stage, call->x_row_stride);
    clattn__stage_range(stage, call->rows, 1, call->batch, target->gemm.wg);
    call->x = to;
    call->x_type = CLATTN_F32;
    call->x_batch_stride = call->rows * in;
    call->x_row_stride = in;
}

void clattn__linear_apply_clblast(clattn__plan *plan, const clattn__target *target, const clattn__linear_call *call) {
    const uint64_t mark = plan->workspace_used;
    const int64_t out = call->linear.sections * call->linear.out;
    clattn__linear_call wide = *call;
    if (call->x_type != CLATTN_F32)
        widen_x(plan, target, &wide);
    const clattn__operand c = clattn__plan_scratch(plan, wide.batch * wide.rows * out);
    clattn__plan_product(plan, &(clattn__product){.batch = wide.batch,
                                                  .m = wide.rows,
                                                  .n = out,
                                                  .k = wide.linear.in,
                                                  .lda = wide.x_row_stride,
                                                  .ldb = wide.linear.in,
                                                  .ldc = out,
                                                  .a_stride = wide.x_batch_stride,
                                                  .b_stride = wide.resident_batch_stride,
                                                  .c_stride = wide.rows * out,
                                                  .a = wide.x,
                                                  .b = wide.resident,
                                                  .c = c});
    epilogue(plan, target, &wide, c);
    clattn__plan_release(plan, mark);
}

clattn_status clattn__clblast_run(const clattn__product *p, cl_mem a, uint64_t a_offset, cl_mem b, uint64_t b_offset,
                                  cl_mem c, uint64_t c_offset, cl_command_queue queue, cl_event *event) {
    const size_t m = (size_t)p->m, n = (size_t)p->n, k = (size_t)p->k; /* never 0: plans drop such stages */
    const CLBlastTranspose of_a = CLBlastTransposeNo, of_b = CLBlastTransposeYes;
    if (p->batch == 1)
        return (clattn_status)CLBlastSgemm(CLBlastLayoutRowMajor, of_a, of_b, m, n, k, 1.0f, a, a_offset,
                                           (size_t)p->lda, b, b_offset, (size_t)p->ldb, 0.0f, c, c_offset,
                                           (size_t)p->ldc, &queue, event);
    return (clattn_status)CLBlastSgemmStridedBatched(
        CLBlastLayoutRowMajor, of_a, of_b, m, n, k, 1.0f, a, a_offset, (size_t)p->lda, (size_t)p->a_stride, b, b_offset,
        (size_t)p->ldb, (size_t)p->b_stride, 0.0f, c, c_offset, (size_t)p->ldc, (size_t)p->c_stride, (size_t)p->batch, &queue, event);
}
