/* Visibility of public symbols, and C linkage for C++ callers. */
#ifndef CLATTN_EXPORT_H
#define CLATTN_EXPORT_H

#if defined(_WIN32)
#define CLATTN_EXPORT_SYMBOL
#else
#define CLATTN_EXPORT_SYMBOL __attribute__((visibility("default")))
#endif

#if defined(__cplusplus)
#define CLATTN_API extern "C" CLATTN_EXPORT_SYMBOL
#else
#define CLATTN_API extern CLATTN_EXPORT_SYMBOL
#endif

#endif
