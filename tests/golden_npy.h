/* Files as NumPy 2.4 writes them. */
#ifndef CLATTN_TESTS_GOLDEN_NPY_H
#define CLATTN_TESTS_GOLDEN_NPY_H

/* [[0, 1.5, -2], [3, 65504, 2^-24]]: <f4, C order, version 1.0 */
static const char npy_f4[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }                   "
    "                                       \012\000\000\000\000\000\000\300\077\000\000\000\300\000\000@"
    "@\000\340\177G\000\000\2003";

/* the same: <f2, Fortran order, version 2.0 */
static const char npy_f2_fortran[] =
    "\223NUMPY\002\000t\000\000\000{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3), }            "
    "                                             \012\000\000\000B\000>\377{\000\300\001\000";

/* the same: >f8, C order, version 3.0 */
static const char npy_f8_big[] =
    "\223NUMPY\003\000t\000\000\000{'descr': '>f8', 'fortran_order': False, 'shape': (2, 3), }           "
    "                                             \012\000\000\000\000\000\000\000\000\077\370\000\000"
    "\000\000\000\000\300\000\000\000\000\000\000\000@\010\000\000\000\000\000\000@\357\374\000\000\000"
    "\000\000>p\000\000\000\000\000\000";

/* -1000003 times 0..23, shape [2, 3, 2, 2]: >i4, Fortran order */
static const char npy_i4_rank4_fortran[] =
    "\223NUMPY\001\000v\000{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3, 2, 2), }              "
    "                                       \012\000\000\000\000\377H\344\334\377\302\366\364\377\013\333"
    "\320\377\205\355\350\376\316\322\304\377\341{z\377*`V\377\244rn\376\355WJ\377gib\376\260N>\377\360"
    "\275\275\3779\242\231\377\263\264\261\376\374\231\215\377v\253\245\376\277\220\201\377\32297\377\033"
    "\036\023\377\2250+\376\336\025\007\377X'\037\376\241\013\373";

/* -2^40, rank 0: <i8 */
static const char npy_i8_scalar[] =
    "\223NUMPY\001\000v\000{'descr': '<i8', 'fortran_order': False, 'shape': (), }                       "
    "                                       \012\000\000\000\000\000\377\377\377";

/* shape [3, 0]: <f4 */
static const char npy_empty[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0), }                   "
    "                                       \012";

/* [7, 8, 9]: <f4 */
static const char npy_vector[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }                     "
    "                                       \012\000\000\340@\000\000\000A\000\000\020A";

/* [[1, -2], [3, 4]]: <i4 */
static const char npy_i4_pairs[] =
    "\223NUMPY\001\000v\000{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }                   "
    "                                       \012\001\000\000\000\376\377\377\377\003\000\000\000\004\000"
    "\000\000";

#endif
