/* The reference's answer for a layer named and set by text, as the library is. */
#ifndef CLATTN_TESTS_EXPECT_H
#define CLATTN_TESTS_EXPECT_H

#include <clattn/layer.h>

#include "reference/reference.h"

enum { MAX_SETTINGS = 16 };

/* Settings cut out of a text: "mode=topk k=8 causal". */
typedef struct settings {
    char text[256];
    clattn_setting items[MAX_SETTINGS];
    size_t count;
} settings;

/* Fills s in place: its items point into its text, so it must not be copied. NULL is "". */
void settings_parse(const char *text, settings *s);

/* The value of a setting, fallback when absent, "" for a flag. */
const char *settings_get(const settings *s, const char *name, const char *fallback);
int settings_int(const settings *s, const char *name, int fallback); /* "none" is −1 */

/* The mode of a variant's settings, or its default; "" where it has none. */
const char *settings_mode(const settings *s, const char *variant);

/* y = the layer of x. layer->causal is read off the settings. links may be NULL. */
void expect_layer(const char *variant, const settings *s, const ref_layer *layer, const ref_links *links,
                  const double *x, double *y);

#endif
