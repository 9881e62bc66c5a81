#!/usr/bin/env python3
"""Read and compare .npy files of floats with the standard library alone.

  npy.py [--absolute|--relative] GOT WANT [LIMIT]    print the largest error; exit status 1 above LIMIT

Relative, the default, is to WANT's largest magnitude.
"""
import array
import ast
import math
import sys

SMALLEST_MAGNITUDE = 1e-3  # an answer that is all but zero is judged absolutely
CODES = {"<f4": "f", "<f8": "d"}


def read(path):
    """(shape, array of floats) of a C-ordered little-endian float file."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:6] != b"\x93NUMPY":
        raise ValueError(f"{path}: not a .npy file")
    start, width = (10, 2) if data[6] == 1 else (12, 4)
    body = start + int.from_bytes(data[8:8 + width], "little")
    header = ast.literal_eval(data[start:body].decode("latin1"))
    shape, kind = header["shape"], header["descr"]
    if kind not in CODES or (header["fortran_order"] and sum(n > 1 for n in shape) > 1):
        raise ValueError(f"{path}: {kind} in this order is not read here")
    values = array.array(CODES[kind], data[body:])
    if sys.byteorder == "big":
        values.byteswap()
    if len(values) != math.prod(shape):
        raise ValueError(f"{path}: {len(values)} values for shape {shape}")
    return shape, values


def compare(got_path, want_path):
    """(largest absolute error, largest magnitude wanted); a wrong shape or a NaN is an infinite error."""
    (got_shape, got), (want_shape, want) = read(got_path), read(want_path)
    magnitude = max(map(abs, want), default=0.0)
    if got_shape != want_shape or not all(map(math.isfinite, got)):
        return math.inf, magnitude
    return max((abs(a - b) for a, b in zip(got, want)), default=0.0), magnitude


def main():
    args = sys.argv[1:]
    absolute = args[:1] == ["--absolute"]
    if args and args[0] in ("--absolute", "--relative"):
        args = args[1:]
    if len(args) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    error, magnitude = compare(*args[:2])
    relative = error / max(magnitude, SMALLEST_MAGNITUDE)
    print(f"error: {error:.1e} absolute, {relative:.1e} relative")
    return len(args) == 3 and (error if absolute else relative) > float(args[2])


if __name__ == "__main__":
    sys.exit(main())
