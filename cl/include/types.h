// Storage types: TYPE_* defines are 0 = float32, 1 = float16, 2 = bfloat16. Arithmetic is float32.
#ifndef CLATTN_TYPES_H
#define CLATTN_TYPES_H

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

// Storage element for a TYPE_* value: STORAGE(TYPE_X).
#define STORAGE_0 float
#define STORAGE_1 half
#define STORAGE_2 ushort
#define STORAGE(type) CAT(STORAGE_, type)

inline float load_0(__global const float *p, long i) { return p[i]; }
inline void store_0(__global float *p, long i, float x) { p[i] = x; }

// Reads and writes by type: LOAD(TYPE_X, x, i), STORE(TYPE_Y, y, i, value).
#define LOAD(type, p, i) CAT(load_, type)(p, i)
#define STORE(type, p, i, x) CAT(store_, type)(p, i, x)

#endif
