"""What the demo and the golden tests share: run clattn, read .npy files, compare. Standard library only."""
import array
import ast
import json
import math
import subprocess
import sys

SKIPPED = 77  # exit status that Meson counts as skipped
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


def relative(error, magnitude):
    return error / max(magnitude, SMALLEST_MAGNITUDE)


def device_present(clattn):
    """Does the program see an OpenCL device?"""
    done = subprocess.run([clattn, "devices", "--json"], capture_output=True, text=True, check=False)
    try:
        return bool(json.loads(done.stdout))
    except ValueError:
        return True  # a program that cannot tell is broken: let the tests show it
