#!/usr/bin/env python3
"""The command line from outside: exit statuses, sentences, files. Usage: test_cli.py CLATTN

Needs the standard library alone. Exit status 77 where there is no OpenCL device.
"""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

from files import count, read_npy, read_safetensors, write_npy, write_safetensors

B, N, D, H = 2, 5, 8, 2
CLATTN = sys.argv[1] if len(sys.argv) > 1 else "build/clattn"


def call(*args, **environment):
    return subprocess.run([CLATTN, *args], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


def numbers(shape, seed):
    """Exact in bfloat16 and float16, so that every storage gives the same layer."""
    draw = random.Random(seed)
    return [draw.randrange(-16, 17) / 16 for _ in range(count(shape))]


def weights():
    shapes = {"in_proj_weight": (3 * D, D), "in_proj_bias": (3 * D,), "out_proj.weight": (D, D), "out_proj.bias": (D,)}
    return {name: (shape, numbers(shape, i)) for i, (name, shape) in enumerate(shapes.items())}


def product(x, w, bias):
    return [sum(a * b for a, b in zip(x, w[o * len(x):(o + 1) * len(x)])) + bias[o] for o in range(len(bias))]


def attend(q, keys, values):
    scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in keys]
    top = max(scores)
    p = [math.exp(s - top) for s in scores]
    return [sum(a * v[c] for a, v in zip(p, values)) / sum(p) for c in range(len(q))]


def dense(x, n, w, causal=False):
    """The layer on one sequence of n tokens, by its definition."""
    rows = [product(x[i * D:(i + 1) * D], w["in_proj_weight"][1], w["in_proj_bias"][1]) for i in range(n)]
    y, dh = [], D // H
    for i, row in enumerate(rows):
        seen, o = rows[:i + 1] if causal else rows, []
        for h in range(H):
            cut = lambda r, part: r[part * D + h * dh:part * D + (h + 1) * dh]
            o += attend(cut(row, 0), [cut(r, 1) for r in seen], [cut(r, 2) for r in seen])
        y += product(o, w["out_proj.weight"][1], w["out_proj.bias"][1])
    return y


class Folder:
    """Files of one run, and the run itself."""

    def __init__(self, path):
        self.path, self.w, self.x = path, weights(), numbers((B, N, D), 99)
        write_safetensors(self("w.safetensors"), self.w)
        write_npy(self("x.npy"), (B, N, D), self.x)

    def __call__(self, name):
        return os.path.join(self.path, name)

    def args(self, *more, x="x.npy", w="w.safetensors", y="y.npy", heads=H, variant="dense"):
        return ["run", variant, "--heads", str(heads), "--weights", self(w), "--input", self(x), "--output", self(y),
                *more]

    def run(self, *more, environment={}, **files):
        """Run with success, and return (shape, values)."""
        r = call(*self.args(*more, **files), **environment)
        assert r.returncode == 0, f"exit status {r.returncode}: {r.stderr}"
        assert r.stdout == "", "nothing belongs on stdout"
        return read_npy(self(files.get("y", "y.npy")))

    def fails(self, status, *words, more=(), environment={}, **files):
        """Run, and expect one sentence with these words, and no new file."""
        before = sorted(os.listdir(self.path))
        r = call(*self.args(*more, **files), **environment)
        assert r.returncode == status, f"exit status {r.returncode}, not {status}: {r.stderr}"
        lines = r.stderr.strip().split("\n")
        assert len(lines) == (1 if status == 1 else 2), r.stderr
        for word in words:
            assert word in lines[0], f"'{word}' is not in: {lines[0]}"
        assert sorted(os.listdir(self.path)) == before, "a failed run left a file"


def near(got, want):
    assert len(got) == len(want), f"{len(got)} values, not {len(want)}"
    assert all(abs(a - b) <= 1e-5 * max(1.0, *map(abs, want)) for a, b in zip(got, want)), "wrong values"


# ---- usage ----

def test_usage(f):
    assert call("--help").returncode == 0 and "usage" in call("--help").stdout
    assert call("run", "--help").returncode == 0 and "--lengths" in call("run", "--help").stdout
    assert call("devices", "--help").returncode == 0
    assert call("--version").stdout.startswith("clattn ")
    for args in [(), ("fly",), ("--fly",), ("devices", "extra"), ("devices", "--fly"), ("run",), ("run", "nosuch")]:
        r = call(*args)
        assert r.returncode == 2 and "usage" in r.stderr and r.stdout == "", args


def test_bad_options(f):
    f.fails(2, "'--fly'", more=["--fly"])
    f.fails(2, "--lengths needs a value", more=["--lengths"])
    f.fails(2, "--quiet takes no value", more=["--quiet=1"])
    f.fails(2, "'-q'", more=["-q"])
    f.fails(2, "'aft'", more=["aft"])
    f.fails(2, "--heads", heads="two")
    f.fails(2, "--heads", heads=0)
    f.fails(2, "--heads", heads=-1)
    f.fails(2, "--dtype", "f32, f16, bf16", more=["--dtype", "f64"])
    f.fails(2, "--gemm", more=["--gemm", "fast"])
    f.fails(2, "--repeat", more=["--repeat", "0"])
    f.fails(2, "--links", "dense", more=["--links", f("x.npy")])  # of another family, as the next two
    f.fails(2, "--random", "dense", more=["--random", "0"])
    f.fails(2, "'k'", more=["--k", "3"])
    f.fails(2, "scale", "abc", more=["--scale", "abc"])
    f.fails(2, "3", str(D), heads=3)


def test_missing_options(f):
    for name in ("--heads", "--weights", "--input", "--output"):
        args = f.args()
        at = args.index(name)
        r = call(*args[:at], *args[at + 2:])
        assert r.returncode == 2 and name in r.stderr, r.stderr


# ---- devices ----

def test_devices(f):
    r = call("devices")
    assert r.returncode == 0 and r.stdout.count("* ") == 1
    listed = json.loads(call("devices", "--json").stdout)
    assert sum(d["default"] for d in listed) == 1 and all(d["name"] and d["max_alloc_bytes"] > 0 for d in listed)


def test_no_device(f):
    os.mkdir(f("empty"))
    none = {"OCL_ICD_VENDORS": f("empty"), "OCL_ICD_FILENAMES": ""}
    r = call("devices", "--json", **none)
    assert r.returncode == 1 and json.loads(r.stdout) == [] and "no OpenCL device found" in r.stderr
    f.fails(1, "no OpenCL device found", environment=none)


def test_choice(f):
    device = json.loads(call("devices", "--json").stdout)[0]
    name = device["name"]
    first = f.run()
    assert first == f.run("--device", name[2:].upper()) == f.run("--device", "0:0")
    assert first == f.run(environment={"CLATTN_DEVICE": name}) == f.run(environment={"CLATTN_DEVICE": ""})
    f.fails(1, "--device", "'nosuch'", name, more=["--device", "nosuch"])
    f.fails(1, "'9:9'", name, more=["--device", "9:9"])
    f.fails(1, "CLATTN_DEVICE", "'nosuch'", environment={"CLATTN_DEVICE": "nosuch"})
    f.fails(1, "CLATTN_CAPS", environment={"CLATTN_CAPS": "-wings"})


# ---- values ----

def test_values(f):
    shape, y = f.run()
    assert shape == (B, N, D)
    near(y, dense(f.x[:N * D], N, f.w) + dense(f.x[N * D:], N, f.w))
    near(f.run("--causal")[1], dense(f.x[:N * D], N, f.w, True) + dense(f.x[N * D:], N, f.w, True))


def test_lengths(f):
    padded = [math.nan if i >= 2 * D and i < N * D else v for i, v in enumerate(f.x)]
    write_npy(f("p.npy"), (B, N, D), padded)
    want = dense(f.x, 2, f.w) + f.w["out_proj.bias"][1] * (N - 2) + dense(f.x[N * D:], N, f.w)
    for kind in ("i4", "i8", "f4", "f8"):
        write_npy(f("l.npy"), (B,), [2, N], kind)
        near(f.run("--lengths", f("l.npy"), x="p.npy")[1], want)


def test_storages(f):
    first = f.run()
    for kind in ("F16", "BF16", "F64"):
        write_safetensors(f("v.safetensors"), f.w, kind)
        assert f.run(w="v.safetensors") == first, kind
    for kind in ("f2", "f4", "f8"):
        for fortran in (False, True):
            write_npy(f("v.npy"), (B, N, D), f.x, kind, fortran)
            assert f.run(x="v.npy") == first, (kind, fortran)


def test_extra_tensors(f):
    extra = {"steps": ((), [7], "I64"), "deep": ((1, 1, 1, 1, 2), [0, 0]), "none": ((0, 3), [])}
    write_safetensors(f("e.safetensors"), {**extra, **f.w})
    assert f.run(w="e.safetensors") == f.run()


def test_empty(f):
    for shape in [(0, N, D), (B, 0, D), (0, 0, D)]:
        write_npy(f("x0.npy"), shape, [])
        assert f.run(x="x0.npy") == (shape, [])
        write_npy(f("l0.npy"), shape[:1], [0] * shape[0], "i4")
        assert f.run("--lengths", f("l0.npy"), x="x0.npy") == (shape, [])


def test_report(f):
    assert call(*f.args("--quiet")).stderr == ""
    err = call(*f.args("--repeat", "3", "--profile")).stderr
    assert all(word in err for word in ("device: ", "plan:", "time: setup", "median", "of 3", "profile: ")), err
    assert f.run("--gemm", "tile", environment={"POSIXLY_CORRECT": "1"})[0] == (B, N, D)


# ---- gradients ----

STEP = 1 / 1024


def slope(total, values, i):
    """The derivative of total() by values[i]."""
    before, sides = values[i], []
    for step in (STEP, -STEP):
        values[i] = before + step
        sides.append(total())
    values[i] = before
    return (sides[0] - sides[1]) / (2 * STEP)


def gradient_args(f):
    return ["--grad-output", f("dy.npy"), "--grad-input", f("dx.npy"), "--grad-weights", f("dw.safetensors")]


def test_gradients(f):
    dy = numbers((B, N, D), 77)
    write_npy(f("dy.npy"), (B, N, D), dy)
    assert f.run(*gradient_args(f)) == f.run(), "the backward pass changed y"
    total = lambda: sum(a * b for a, b in zip(dense(f.x[:N * D], N, f.w) + dense(f.x[N * D:], N, f.w), dy))
    close = lambda got, values: all(
        abs(got[i] - slope(total, values, i)) < 1e-3 for i in range(0, len(values), 7))
    (shape, dx), dw = read_npy(f("dx.npy")), read_safetensors(f("dw.safetensors"))
    assert shape == (B, N, D) and close(dx, f.x)
    assert list(dw) == list(f.w)
    for name, (shape, values) in f.w.items():
        assert dw[name][0] == shape and close(dw[name][1], values), name


def test_gradient_choice(f):
    """Any one of the outputs alone, other storages, and the same numbers on every run."""
    write_npy(f("dy.npy"), (B, N, D), numbers((B, N, D), 77))
    f.run(*gradient_args(f))
    dx, dw = read_npy(f("dx.npy")), read_safetensors(f("dw.safetensors"))
    write_npy(f("dy.npy"), (B, N, D), numbers((B, N, D), 77), "f8", True)
    for name, read, want in [("dx", read_npy, dx), ("dw", read_safetensors, dw)]:
        option = "--grad-input" if name == "dx" else "--grad-weights"
        f.run("--grad-output", f("dy.npy"), option, f(name + ".one"), "--repeat", "2")
        assert read(f(name + ".one")) == want, name
    f.run(*gradient_args(f), "--dtype", "bf16")
    assert all(abs(a - b) <= 0.05 * max(map(abs, dx[1])) for a, b in zip(read_npy(f("dx.npy"))[1], dx[1]))


def test_gradient_padding(f):
    padded = lambda values: [math.nan if 2 * D <= i < N * D else v for i, v in enumerate(values)]
    write_npy(f("x.npy"), (B, N, D), padded(f.x))
    write_npy(f("dy.npy"), (B, N, D), padded(numbers((B, N, D), 77)))
    write_npy(f("l.npy"), (B,), [2, N], "i4")
    f.run(*gradient_args(f), "--lengths", f("l.npy"))
    dx = read_npy(f("dx.npy"))[1]
    assert dx[2 * D:N * D] == [0] * (N - 2) * D and all(map(math.isfinite, dx))


def test_no_tokens(f):
    for shape in [(0, N, D), (B, 0, D)]:
        write_npy(f("x.npy"), shape, [])
        write_npy(f("dy.npy"), shape, [])
        f.run(*gradient_args(f))
        assert read_npy(f("dx.npy")) == (shape, [])
        assert all(values == [0] * count(shape) for shape, values in read_safetensors(f("dw.safetensors")).values())


def test_gradient_errors(f):
    write_npy(f("dy.npy"), (B, N, D), f.x)
    write_npy(f("short.npy"), (B, N - 1, D), f.x[:B * (N - 1) * D])
    write_npy(f("whole.npy"), (B, N, D), [1] * (B * N * D), "i4")
    f.fails(2, "--grad-output", more=["--grad-input", f("dx.npy")])
    f.fails(2, "--grad-output", more=["--grad-weights", f("dw.safetensors")])
    f.fails(2, "--grad-input", "--grad-weights", more=["--grad-output", f("dy.npy")])
    for name, words in [("short.npy", (f"[{B}, {N - 1}, {D}]", f"[{B}, {N}, {D}]")), ("whole.npy", ("integers",)),
                        ("absent.npy", ())]:
        f.fails(1, name, *words, more=["--grad-output", f(name), "--grad-input", f("dx.npy")])
    f.fails(1, "nowhere", more=["--grad-output", f("dy.npy"), "--grad-input", "nowhere/dx.npy"])
    f.fails(1, "two outputs", more=["--grad-output", f("dy.npy"), "--grad-input", f("y.npy")])


# ---- broken files ----

def test_input_errors(f):
    write_npy(f("flat.npy"), (N, D), f.x[:N * D])
    f.fails(1, "flat.npy", f"[{N}, {D}]", "3 axes", x="flat.npy")
    write_npy(f("whole.npy"), (1, 1, D), [1] * D, "i4")
    f.fails(1, "whole.npy", "integers", x="whole.npy")
    f.fails(1, "absent.npy", x="absent.npy")
    f.fails(1, "w.safetensors", x="w.safetensors")
    with open(f("x.npy"), "rb") as whole, open(f("cut.npy"), "wb") as cut:
        cut.write(whole.read()[:-3])
    f.fails(1, "cut.npy", x="cut.npy")


def test_length_errors(f):
    for value, kind, word in [(math.nan, "f4", "NaN"), (-1, "i4", "-1"), (N + 1, "i8", str(N + 1)), (2.5, "f8", "2.5"),
                              (2**40, "i8", str(2**40)), (math.inf, "f4", "inf")]:
        write_npy(f("l.npy"), (B,), [1, value], kind)
        f.fails(1, "l.npy", "[1]", word, str(N), more=["--lengths", f("l.npy")])
    write_npy(f("l.npy"), (B + 1,), [1] * (B + 1), "i4")
    f.fails(1, "l.npy", f"[{B + 1}]", f"[{B}]", more=["--lengths", f("l.npy")])


def test_weight_errors(f):
    for name in f.w:
        write_safetensors(f("m.safetensors"), {k: v for k, v in f.w.items() if k != name})
        f.fails(1, "m.safetensors", f"'{name}'", "missing", w="m.safetensors")
    write_safetensors(f("m.safetensors"), {**f.w, "out_proj.weight": ((D * D,), numbers((D * D,), 5))})
    f.fails(1, "m.safetensors", "'out_proj.weight'", f"[{D * D}]", f"[{D}, {D}]", w="m.safetensors")
    write_safetensors(f("m.safetensors"), {**f.w, "out_proj.bias": ((D,), [0] * D, "I64")})
    f.fails(1, "m.safetensors", "'out_proj.bias'", "'I64'", w="m.safetensors")
    with open(f("w.safetensors"), "rb") as whole:
        data = whole.read()
    for size in (0, 4, 8, 60, len(data) - 1):
        with open(f("cut.safetensors"), "wb") as cut:
            cut.write(data[:size])
        f.fails(1, "cut.safetensors", w="cut.safetensors")
    with open(f("cut.safetensors"), "wb") as cut:
        cut.write(b"\xff" * 7 + b"\x7f" + data[8:])
    f.fails(1, "cut.safetensors", w="cut.safetensors")


def test_output_errors(f):
    f.fails(1, "nowhere", y="nowhere/y.npy")
    f.fails(1, "folder", y=".")
    with open(f("y.npy"), "w") as old:
        old.write("old")
    f.fails(1, "absent", w="absent.safetensors")
    with open(f("y.npy")) as old:
        assert old.read() == "old", "a failed run changed its output"
    assert f.run()[0] == (B, N, D)


# ---- links ----

def test_links(f):
    if "cjar" not in call("run", "--help").stdout.split("Variants:")[1].split(".")[0]:
        return
    shapes = {"to_qkv.weight": (3 * D, D), "to_qkv.bias": (3 * D,), "to_out.weight": (D, D), "to_out.bias": (D,)}
    write_safetensors(f("c.safetensors"), {name: (s, numbers(s, i)) for i, (name, s) in enumerate(shapes.items())})
    files, narrow = {"w": "c.safetensors", "variant": "cjar"}, ["--window-left", "0", "--window-right", "0"]
    run = lambda *more: f.run(*narrow, *more, **files)[1]
    alone, every = run(), f.run("--window-left", "none", "--window-right", "none", **files)[1]
    pairs = [v for i in range(N) for j in range(N) for v in (i, j)]
    for kind in ("i4", "i8"):
        write_npy(f("l.npy"), (N * N, 2), pairs, kind)
        near(run("--links", f("l.npy")), every)
    write_npy(f("l.npy"), (0, 2), [], "i4")
    assert run("--links", f("l.npy")) == alone == run("--random", "0")
    near(run("--random", "1"), every)
    drawn = run("--random", "0.5", "--seed", "7")
    assert drawn == run("--random", "0.5", "--seed", "7") != run("--random", "0.5", "--seed", "8")
    for shape, values, kind, words in [((3, 2), [0, 1, 1, 0, 2, N], "i4", ["[2]", f"(2, {N})"]),
                                       ((1, 2), [-1, 0], "i8", ["[0]", "(-1, 0)"]),
                                       ((2,), [0, 1], "i4", ["[2]", "[m, 2]"]), ((1, 2), [0, 1], "f4", ["floats"])]:
        write_npy(f("l.npy"), shape, values, kind)
        f.fails(1, "l.npy", *words, more=["--links", f("l.npy")], **files)
    f.fails(2, "--links", "--random", more=["--links", f("l.npy"), "--random", "0.1"], **files)
    for value in ("nan", "-0.1", "1.5", "some"):
        f.fails(2, "--random", more=["--random", value], **files)
    f.fails(2, "--seed", more=["--random", "0.1", "--seed", "-1"], **files)
    f.fails(2, "window-left", "few", more=["--random", "0.1", "--window-left", "few"], **files)


def test_drawn_links(f):
    draw = lambda *more: call("links", "--n", "40", "--random", "0.1", "--output", f("l.npy"), *more)
    narrow = ["--window-left", "2", "--window-right", "1"]
    assert draw(*narrow, "--seed", "5").returncode == 0
    (m, two), flat = read_npy(f("l.npy"), "i4")
    pairs = list(zip(flat[::2], flat[1::2]))
    assert two == 2 and m == len(pairs) > 50 and pairs == sorted(set(pairs))
    assert all(0 <= i < 40 and 0 <= j < 40 and not i - 2 <= j <= i + 1 for i, j in pairs)
    for args, words in [(["--window-left", "few"], ["window-left", "none"]), (["--random", "2"], ["random"]),
                        (["--n", "-1"], ["--n"]), (["--n", str(2**31)], ["--n"]), (["extra"], ["extra"])]:
        r = draw(*args)
        assert r.returncode == 2 and all(w in r.stderr for w in words), r.stderr
    for n in ("0", "1"):
        assert draw("--n", n).returncode == 0 and read_npy(f("l.npy"), "i4") == ((0, 2), [])
    assert draw("--window-left", "none", "--window-right", "none").returncode == 0
    assert read_npy(f("l.npy"), "i4") == ((0, 2), [])
    r = call("links", "--n", "4", "--output", f("l.npy"))
    assert r.returncode == 2 and "--random" in r.stderr
    r = call("links", "--n", "4", "--random", "0", "--output", f("no/l.npy"))
    assert r.returncode == 1 and "no/l.npy" in r.stderr


# ---- cache ----

def test_cache(f):
    folder = f("kernels")
    cache = lambda action, **env: call("cache", action, **{"CLATTN_CACHE_DIR": folder, **env})
    assert "0 entries" in cache("ls").stdout
    f.run(environment={"CLATTN_CACHE_DIR": folder})
    entries = sorted(os.listdir(folder))
    listed = cache("ls")
    assert listed.returncode == 0 and len(entries) > 0 and f"{len(entries)} entries" in listed.stdout
    assert all(name[:32] in listed.stdout for name in entries)
    key = "0123456789abcdef" * 2
    kept = ["notes.txt", key, f"{key}.bin.old", f"{key}.bin.{os.getpid()}.0.tmp", f"x{key[1:]}.bin"]
    for name in kept + [f"{key}.bin.999999999.0.tmp"]:
        with open(os.path.join(folder, name), "w", encoding="ascii"):
            pass
    os.mkdir(os.path.join(folder, key[::-1] + ".bin"))
    assert f"removed {len(entries)} entries" in cache("clear").stdout
    assert sorted(os.listdir(folder)) == sorted(kept + [key[::-1] + ".bin"])
    assert "no kernels are kept" in cache("ls", CLATTN_CACHE_DIR="").stdout
    for args in ([], ["fly"], ["ls", "clear"], ["--fly"]):
        assert call("cache", *args).returncode == 2, args
    r = cache("ls", CLATTN_CACHE_DIR=f("x.npy"))
    assert r.returncode == 1 and "x.npy" in r.stderr


def main():
    if "no OpenCL device" in call("devices").stderr:
        print("no OpenCL device: skipped")
        return 77
    tests = [(k, v) for k, v in globals().items() if k.startswith("test_")]
    failed = 0
    for name, test in tests:
        with tempfile.TemporaryDirectory() as path:
            try:
                test(Folder(path))
            except Exception as error:  # any of them fails its test alone
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
