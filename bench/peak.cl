// What a device does at best: multiply-adds that never wait for memory, and a copy that never waits for arithmetic.
//
// fma   each work-item owns CHAINS vectors of VW floats, each a chain of its own, and writes their sum:
// 2*CHAINS*VW*rounds
//       operations a work-item. No local memory.
// copy  a work-group owns BLOCK vectors and moves them side by side. 2*sizeof(float)*VW*BLOCK bytes a work-group.
//
// VW 1, 2, 4, 8, 16: floats of a vector; WG >= 1: work-group size; BLOCK: a multiple of WG; FAST_FMA 0, 1: fma is quick
// here
#if !defined VW || !defined WG || !defined BLOCK || !defined FAST_FMA
#error "VW, WG, BLOCK and FAST_FMA must be defined"
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#if VW == 1
typedef float V;
#else
typedef JOIN(float, VW) V;
#endif

#if FAST_FMA
#define MAD(a, b, c) fma(a, b, c)
#else
#define MAD(a, b, c) mad(a, b, c)
#endif

#define EACH_CHAIN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)
#define BEGIN(i) V x##i = (V)(start + i);
#define STEP(i) x##i = MAD(x##i, factor, offset);
#define ADD(i) sum += x##i;

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void peak_fma(__global V *out, float scale, int rounds) {
    const float start = (float)get_global_id(0);
    const V factor = (V)(scale), offset = (V)(1.0f - scale);
    EACH_CHAIN(BEGIN)
    for (int round = 0; round < rounds; ++round) {
        EACH_CHAIN(STEP)
    }
    V sum = (V)(0.0f);
    EACH_CHAIN(ADD)
    out[get_global_id(0)] = sum;
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void peak_copy(__global const V *in, __global V *out) {
    const ulong first = (ulong)get_group_id(0) * BLOCK;
    for (uint i = (uint)get_local_id(0); i < BLOCK; i += WG) {
        out[first + i] = in[first + i];
    }
}
