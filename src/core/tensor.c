#include <clattn/tensor.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [CLATTN_F32] = {"f32", 4}, [CLATTN_F16] = {"f16", 2}, [CLATTN_BF16] = {"bf16", 2},
    [CLATTN_I32] = {"i32", 4}, [CLATTN_I64] = {"i64", 8},
};

static size_t type_index(clattn_type type) {
    return (size_t)type < sizeof types / sizeof *types ? (size_t)type : SIZE_MAX;
}

size_t clattn_type_size(clattn_type type) {
    size_t i = type_index(type);
    return i != SIZE_MAX ? types[i].size : 0;
}

const char *clattn_type_name(clattn_type type) {
    size_t i = type_index(type);
    return i != SIZE_MAX ? types[i].name : "?";
}

clattn_tensor clattn_tensor_make(cl_mem memory, clattn_type type, int32_t rank, const int64_t *shape) {
    clattn_tensor tensor = {.memory = memory, .type = type};
    if (rank < 0 || rank > CLATTN_MAX_RANK) {
        return tensor;
    }
    tensor.rank = rank;
    /* Unsigned: a shape that no memory can hold is refused where it is used, and must not trap here. */
    uint64_t stride = 1;
    for (int32_t i = rank - 1; i >= 0; --i) {
        tensor.shape[i] = shape[i];
        tensor.stride[i] = (int64_t)stride;
        stride *= shape[i] > 0 ? (uint64_t)shape[i] : 1; /* a stride of 0 would mean broadcast */
    }
    return tensor;
}
