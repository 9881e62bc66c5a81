/* Any bytes: a file whose every tensor is listed and read whole, or one sentence and nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/safetensors.h"
#include "fuzz.h"
#include "golden_safetensors.h"

#define SEED(golden)                                                                                                   \
    { golden, sizeof golden - 1 }

static const char odd[] =
    "\x8a\0\0\0\0\0\0\0"
    "{\"f\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]},"
    "\"g\":{\"dtype\":\"?\",\"shape\":[],\"data_offsets\":[3,3]},\"__metadata__\":{\"\\u00e4\":\"b\"}}   "
    "123";

const fuzz_seed fuzz_seeds[] = {SEED(safetensors_mixed), SEED(safetensors_plain), SEED(odd), {NULL, 0}};

const char *const fuzz_words[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  "[[[[[[[[",
                                  ",",
                                  ":",
                                  "\"",
                                  "\\u0000",
                                  "\\ud800",
                                  "null",
                                  "true",
                                  "1.5",
                                  "4294967296",
                                  "-1",
                                  "0",
                                  "4",
                                  "8",
                                  "F16",
                                  "BF16",
                                  "\"F64\"",
                                  "[0,0]",
                                  "[]",
                                  "9223372036854775807",
                                  "9223372036854775808",
                                  "\"shape\"",
                                  "\"dtype\"",
                                  "\"data_offsets\"",
                                  "__metadata__",
                                  NULL};

static void demand(int holds) {
    if (!holds) {
        abort();
    }
}

static void check_tensor(const safetensors *file, const safetensors_info *info) {
    float *values;
    failure f = {0};
    demand(safetensors_find(file, info->name) == info);
    if (safetensors_read(file, info, &values, &f)) {
        double sum = 0;
        for (int64_t i = 0; i < info->count; ++i) { /* a sanitizer watches */
            sum += values[i];
        }
        demand(!f.text[0] && (sum == sum || info->count > 0));
    } else {
        demand(f.text[0] && !values);
    }
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    safetensors *file;
    failure f = {0};
    FILE *stream = tmpfile();
    demand(stream && fwrite(data, 1, size, stream) == size && fflush(stream) == 0);
    if (safetensors_open_descriptor(dup(fileno(stream)), "fuzz", &file, &f)) {
        for (size_t i = 0; i < safetensors_count(file); ++i) {
            check_tensor(file, safetensors_at(file, i));
        }
        demand(!f.text[0]);
    } else {
        demand(f.text[0] && !strchr(f.text, '\n') && !file);
    }
    safetensors_close(file);
    fclose(stream);
    return 0;
}
