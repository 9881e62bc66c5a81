/* Milliseconds that only grow. */
#ifndef CLATTN_CLI_CLOCK_H
#define CLATTN_CLI_CLOCK_H

double clock_ms(void);

#endif
