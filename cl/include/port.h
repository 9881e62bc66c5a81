// What implementations of OpenCL C do differently, in one place. QUIRK_<NAME>=1 comes from the host's table.
#ifndef CLATTN_PORT_H
#define CLATTN_PORT_H

#define LOG2E 1.44269504088896341f
#define LN2 0.69314718055994531f

#if QUIRK_NO_NATIVE_EXP
#define EXP2(x) exp2(x)
#else
#define EXP2(x) native_exp2(x)
#endif

#endif
