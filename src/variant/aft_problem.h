/* aft's public problem: validation, and the plan of the core. */
#ifndef CLATTN_VARIANT_AFT_PROBLEM_H
#define CLATTN_VARIANT_AFT_PROBLEM_H

#include "variant/aft.h"

clattn_status clattn__aft_problem_plan(const void *problem, const clattn__target *target, clattn__plan *plan,
                                       clattn__error *error);

#endif
