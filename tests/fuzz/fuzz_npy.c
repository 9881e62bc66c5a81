/* Any bytes: an array that is what its header says, or one sentence and nothing else. */
#include <stdlib.h>
#include <string.h>

#include "cli/npy.h"
#include "fuzz.h"
#include "golden_npy.h"

#define SEED(golden)                                                                                                   \
    { golden, sizeof golden - 1 }

const fuzz_seed fuzz_seeds[] = {
    SEED(npy_f4),        SEED(npy_f2_fortran), SEED(npy_f8_big), SEED(npy_i4_rank4_fortran),
    SEED(npy_i8_scalar), SEED(npy_empty),      SEED(npy_vector), SEED(npy_i4_pairs),
    {NULL, 0},
};

const char *const fuzz_words[] = {"'descr'",
                                  "'shape'",
                                  "'fortran_order'",
                                  "True",
                                  "False",
                                  "(",
                                  ")",
                                  "{",
                                  "}",
                                  ",",
                                  ":",
                                  "'",
                                  "\"",
                                  "-1",
                                  "0",
                                  "1",
                                  "2",
                                  "6",
                                  "L",
                                  "'<f8'",
                                  "'>i8'",
                                  "4294967296",
                                  "9223372036854775807",
                                  NULL};

static void demand(int holds) {
    if (!holds) {
        abort();
    }
}

static void check_array(const npy_array *array) {
    int64_t count = 1;
    double sum = 0;
    demand(array->rank >= 0 && array->rank <= NPY_MAX_RANK && !array->values != !array->integers);
    for (int i = 0; i < array->rank; ++i) {
        demand(array->shape[i] >= 0);
        count *= array->shape[i];
    }
    demand(count == array->count);
    for (int64_t i = 0; i < count; ++i) { /* a sanitizer watches */
        sum += array->values ? array->values[i] : (double)array->integers[i];
    }
    demand(sum == sum || array->values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    npy_array array;
    failure f = {0};
    if (npy_parse("fuzz", data, size, &array, &f)) {
        check_array(&array);
        demand(!f.text[0]);
    } else {
        demand(f.text[0] && !strchr(f.text, '\n') && !array.values && !array.integers);
    }
    npy_free(&array);
    return 0;
}
