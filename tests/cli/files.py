"""Small .npy and safetensors files, without packages."""
import ast
import json
import struct


def bf16(value):
    return struct.pack("<f", value)[2:]


PACK = {
    "f2": lambda v: struct.pack("<e", v), "f4": lambda v: struct.pack("<f", v), "f8": lambda v: struct.pack("<d", v),
    "i4": lambda v: struct.pack("<i", v), "i8": lambda v: struct.pack("<q", v),
    "F16": lambda v: struct.pack("<e", v), "F32": lambda v: struct.pack("<f", v), "F64": lambda v: struct.pack("<d", v),
    "BF16": bf16, "I64": lambda v: struct.pack("<q", v),
}


def count(shape):
    product = 1
    for size in shape:
        product *= size
    return product


def fortran_order(shape, values):
    """The values of a C-order array in Fortran order."""
    if len(shape) < 2:
        return values
    inner = count(shape[1:])
    rows = [fortran_order(shape[1:], values[i * inner:(i + 1) * inner]) for i in range(shape[0])]
    return [row[i] for i in range(inner) for row in rows]


def write_npy(path, shape, values, kind="f4", fortran=False):
    text = f"{{'descr': '<{kind}', 'fortran_order': {fortran}, 'shape': ({''.join(f'{n},' for n in shape)}), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    values = fortran_order(list(shape), values) if fortran else values
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        f.write(b"".join(map(PACK[kind], values)))


def read_npy(path, kind="f4"):
    """(shape, values) of a float32 or int32 file in C order."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + size].decode())
    assert header["descr"] == "<" + kind and not header["fortran_order"]
    n = count(header["shape"])
    return tuple(header["shape"]), list(struct.unpack(f"<{n}{'f' if kind == 'f4' else 'i'}", data[10 + size:]))


def write_safetensors(path, tensors, kind="F32"):
    """tensors: name -> (shape, values) or (shape, values, kind)."""
    header, data = {}, b""
    for name, (shape, values, *own) in tensors.items():
        dtype = own[0] if own else kind
        begin, data = len(data), data + b"".join(map(PACK[dtype], values))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """name -> (shape, values) of a file of F32 tensors."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        begin, end = (8 + size + offset for offset in t["data_offsets"])
        assert t["dtype"] == "F32" and end - begin == 4 * count(t["shape"]), name
        tensors[name] = (tuple(t["shape"]), list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])))
    return tensors
