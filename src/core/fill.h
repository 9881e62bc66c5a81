/* A stage that fills memory. */
#ifndef CLATTN_CORE_FILL_H
#define CLATTN_CORE_FILL_H

#include "core/plan.h"

/* Append: count elements of a type at `to` become value. */
void clattn__fill_append(clattn__plan *plan, clattn__operand to, int64_t count, clattn_type type, float value);

#endif
