/* Causal masks of cores whose queries and keys differ in number. */
#ifndef CLATTN_CAUSAL_H
#define CLATTN_CAUSAL_H

/* Which keys j a query i sees, beside window and lengths. With lengths, M and N below are each sequence's own. */
typedef enum clattn_causal {
    CLATTN_CAUSAL_NONE = 0,
    CLATTN_CAUSAL_TOP_LEFT = 1,     /* j <= i */
    CLATTN_CAUSAL_BOTTOM_RIGHT = 2, /* j <= i + N - M */
} clattn_causal;

#endif
