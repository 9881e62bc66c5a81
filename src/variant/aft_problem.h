/* aft's public problem: validation, and the plan of the core. */
#ifndef CLATTN_VARIANT_AFT_PROBLEM_H
#define CLATTN_VARIANT_AFT_PROBLEM_H

#include "variant/aft.h"

clattn_status clattn__aft_problem_plan(const void *problem, const clattn__target *target, clattn__plan *plan,
                                       clattn__error *error);

/* clattn__variant.core_trains, core_backward */
bool clattn__aft_problem_trains(const void *problem);
clattn_status clattn__aft_problem_backward(const void *problem, const clattn__target *target, clattn__plan *plan,
                                           clattn__error *error);

/* Layouts of the gradients of a problem that trains. Errors: INVALID_ARGUMENT, INVALID_SHAPE, INVALID_TYPE. */
clattn_status clattn__aft_gradients_check(const clattn_aft_problem *problem, clattn__error *error);

/* Init and bind the plan, and describe a checked problem's core. */
clattn__aft clattn__aft_problem_core(const clattn_aft_problem *problem, const clattn__target *target,
                                     clattn__plan *plan);

#endif
