#!/usr/bin/env python3
"""Seeded weights for the sample's assa, cas, cjar and aft layers. Standard library only.

  weights.py OUTDIR      write OUTDIR/{assa,cas,cjar,aft}.safetensors, float32

Numbers come from splitmix64: the upper 24 bits, centred, times a power of two. Every one is exact in float32, so
each machine writes the same files, and make.py computes the stored answers from the same weights.
"""
import array
import json
import os
import struct
import sys

D, HEADS, KERNEL, MEMORY = 384, 12, 3, 4
PROJECTION = 2.0**-4  # near 1/sqrt(384)
SHARP = 2.0**-2       # queries and keys: scores that differ from one another
CONVOLUTION = 2.0**-5  # near 1/sqrt(384 * 3)
SMALL = 2.0**-3
UNIT = 1.0
MASK = 2**64 - 1

# layer: (seed, {weight: (shape, largest magnitude)}); assa's seed leaves no two scores nearly equal at the top-k border
LAYERS = {
    "assa": (14, {
        "q_proj.weight": ((D, D), SHARP), "q_proj.bias": ((D,), SMALL),
        "k_proj.weight": ((D, D), SHARP), "k_proj.bias": ((D,), SMALL),
        "v_proj.weight": ((D, D), PROJECTION), "v_proj.bias": ((D,), SMALL),
        "out_proj.weight": ((D, D), PROJECTION), "out_proj.bias": ((D,), SMALL)}),
    "cas": (2, {
        "conv_q.weight": ((D, D, KERNEL), CONVOLUTION), "conv_q.bias": ((D,), SMALL),
        "conv_k.weight": ((D, D, KERNEL), CONVOLUTION), "conv_k.bias": ((D,), SMALL),
        "linear_v.weight": ((D, D), PROJECTION), "linear_v.bias": ((D,), SMALL),
        "proj.weight": ((D, D), PROJECTION), "proj.bias": ((D,), SMALL)}),
    "cjar": (3, {
        "to_qkv.weight": ((3 * D, D), SHARP), "to_qkv.bias": ((3 * D,), SMALL),
        "to_out.weight": ((D, D), PROJECTION), "to_out.bias": ((D,), SMALL),
        "global_mem": ((MEMORY, D), UNIT)}),
    "aft": (4, {
        "position_weights": ((HEADS, 1, 1), UNIT),
        "Wq.weight": ((D, D), PROJECTION), "Wq.bias": ((D,), SMALL),
        "Wk.weight": ((D, D), PROJECTION), "Wk.bias": ((D,), SMALL),
        "Wv.weight": ((D, D), PROJECTION), "Wv.bias": ((D,), SMALL),
        "Wo.weight": ((D, D), PROJECTION), "Wo.bias": ((D,), SMALL)}),
}


def numbers(seed, count):
    """count floats in [-1, 1), multiples of 2**-23."""
    out = array.array("f", bytes(4 * count))
    state = seed * 0x9E3779B97F4A7C15 & MASK
    for i in range(count):
        state = state + 0x9E3779B97F4A7C15 & MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out[i] = ((z ^ z >> 31) >> 40) * 2.0**-23 - 1.0
    return out


def size(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def make(layer):
    """{name: (shape, array of floats)}, the layer's weights in the order in which they are drawn."""
    seed, table = LAYERS[layer]
    drawn = numbers(seed, sum(size(shape) for shape, _ in table.values()))
    out, at = {}, 0
    for name, (shape, bound) in table.items():
        count = size(shape)
        out[name] = (shape, array.array("f", (bound * value for value in drawn[at:at + count])))
        at += count
    return out


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            if sys.byteorder == "big":
                values = array.array("f", values)
                values.byteswap()
            values.tofile(f)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    os.makedirs(sys.argv[1], exist_ok=True)
    for layer in LAYERS:
        write_safetensors(os.path.join(sys.argv[1], layer + ".safetensors"), make(layer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
