#include "core/fill.h"
#include "core/target.h"

enum { EACH = 4096 }; /* elements of a work-item */

void clattn__fill_append(clattn__plan *plan, clattn__operand to, int64_t count, clattn_type type, float value) {
    clattn__stage *stage = clattn__plan_kernel(plan, "fill", "fill_constant");
    clattn__stage_define(plan, stage, "VW", 1);
    clattn__stage_define(plan, stage, "EACH", EACH);
    clattn__stage_define(plan, stage, "TYPE_Y", type);
    clattn__stage_operand(plan, stage, to);
    clattn__stage_long(plan, stage, count);
    clattn__stage_float(plan, stage, value);
    clattn__stage_range(stage, clattn__ceil_div(count, EACH), 1, 1, 1);
}
