// Storage types and explicit vectors. TYPE_* values: 0 = float32, 1 = float16, 2 = bfloat16.
// Arithmetic is float32. A pointer is `__global STORAGE(TYPE_X) *x`; element i is LOAD(TYPE_X, x, i)
// and STORE(TYPE_X, x, i, value); VLOAD and VSTORE move VW neighbours. 16-bit storage needs no device
// extension: vload_half is core OpenCL, bfloat16 is the upper half of a float.
#ifndef CLATTN_TYPES_H
#define CLATTN_TYPES_H

#ifndef VW
#error "VW: floats in a vector, 1, 4, 8 or 16"
#endif

// C's inline alone leaves a function that a compiler does not inline without a definition: clang's for NVIDIA. Not everywhere:
// PoCL 3.1 drops loops of work-groups whose functions are static (layers-gpu: cjar, assa adaptive).
#if defined(__NVPTX__)
#define inline static inline
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define STORAGE_0 float
#define STORAGE_1 half
#define STORAGE_2 ushort
#define STORAGE(type) CAT(STORAGE_, type)

#define LOAD(type, p, i) CAT(load_, type)(p, i)
#define STORE(type, p, i, x) CAT(store_, type)(p, i, x)
#define VLOAD(type, p, i) CAT(vload_, type)(p, i)
#define VSTORE(type, p, i, x) CAT(vstore_, type)(p, i, x)

#if VW == 1
typedef float V;
typedef int VI;
typedef ushort VS;
typedef uint VU;
#define AS_V as_float
#define AS_VU as_uint
#define CONVERT_VU convert_uint
#define CONVERT_VS convert_ushort
#define RAW_LOAD(p) (*(p))
#define RAW_STORE(x, p) (*(p) = (x))
#define HALF_LOAD(i, p) vload_half(0, (p) + (i))
#define HALF_STORE(x, i, p) vstore_half_rte(x, 0, (p) + (i))
#else
typedef CAT(float, VW) V;
typedef CAT(int, VW) VI;
typedef CAT(ushort, VW) VS;
typedef CAT(uint, VW) VU;
#define AS_V CAT(as_float, VW)
#define AS_VU CAT(as_uint, VW)
#define CONVERT_VU CAT(convert_uint, VW)
#define CONVERT_VS CAT(convert_ushort, VW)
#define RAW_LOAD(p) CAT(vload, VW)(0, p)
#define RAW_STORE(x, p) CAT(vstore, VW)(x, 0, p)
#if defined(QUIRK_ALIGNED_HALF)
#define HALF_LOAD(i, p) half_widen(RAW_LOAD((__global const ushort *)(p) + (i)))
#define HALF_STORE(x, i, p) RAW_STORE(half_narrow(x), (__global ushort *)(p) + (i))
#else
#define HALF_LOAD(i, p) CAT(vload_half, VW)(0, (p) + (i))
#define HALF_STORE(x, i, p) CAT(CAT(vstore_half, VW), _rte)(x, 0, (p) + (i))
#endif
#endif

#if defined(QUIRK_ALIGNED_HALF) && VW > 1
// Halves are moved as integers, and converted where they lie aligned.
inline V half_widen(const VS h) { return CAT(vload_half, VW)(0, (const __private half *)&h); }

inline VS half_narrow(const V x) {
    VS h;
    CAT(CAT(vstore_half, VW), _rte)(x, 0, (__private half *)&h);
    return h;
}
#endif

inline float load_0(__global const float *p, long i) { return p[i]; }
inline void store_0(__global float *p, long i, float x) { p[i] = x; }
inline V vload_0(__global const float *p, long i) { return RAW_LOAD(p + i); }
inline void vstore_0(__global float *p, long i, V x) { RAW_STORE(x, p + i); }

inline float load_1(__global const half *p, long i) { return vload_half(0, p + i); }
inline void store_1(__global half *p, long i, float x) { vstore_half_rte(x, 0, p + i); }
inline V vload_1(__global const half *p, long i) { return HALF_LOAD(i, p); }
inline void vstore_1(__global half *p, long i, V x) { HALF_STORE(x, i, p); }

// bfloat16 rounds to nearest even; a NaN keeps its sign and stays a NaN.
inline float load_2(__global const ushort *p, long i) { return as_float((uint)p[i] << 16); }
inline void store_2(__global ushort *p, long i, float x) {
    const uint u = as_uint(x);
    p[i] = isnan(x) ? (ushort)((u >> 16) | 0x40) : (ushort)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline V vload_2(__global const ushort *p, long i) { return AS_V(CONVERT_VU(RAW_LOAD(p + i)) << 16); }
inline void vstore_2(__global ushort *p, long i, V x) {
    const VU u = AS_VU(x);
    const VU rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    const VU nan = (u >> 16) | 0x40;
    RAW_STORE(CONVERT_VS(isnan(x) ? nan : rounded), p + i);
}

#endif
