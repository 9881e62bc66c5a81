/* The JSON header of a safetensors file. */
#ifndef CLATTN_CLI_SAFETENSORS_HEADER_H
#define CLATTN_CLI_SAFETENSORS_HEADER_H

#include <jansson.h>

#include "cli/safetensors.h"

typedef struct safetensors_header {
    json_t *json;            /* owns the texts of infos */
    safetensors_info *infos; /* by begin */
    size_t count;
} safetensors_header;

/* Parse and check a header against the bytes of data that follow it. On failure nothing is kept. */
bool safetensors_header_parse(const char *name, const char *text, size_t size, int64_t data_size,
                              safetensors_header *header, failure *f);

void safetensors_header_free(safetensors_header *header);

#endif
