#!/usr/bin/env python3
"""clattn bench from outside: rows of every family, bad usage, and what it refuses to time.

  test_bench.py CLATTN KERNELS FAMILY,FAMILY...     KERNELS is the folder cl/ of the sources

Needs the standard library alone. Exit status 77 where there is no OpenCL device.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CLATTN, KERNELS = sys.argv[1], sys.argv[2]
FAMILIES = sys.argv[3].split(",")
FIELDS = {"variant": str, "mode": (str, type(None)), "n": int, "batch": int, "d": int, "heads": int, "dtype": str,
          "direction": str, "level": str, "device": str, "plan": str, "compile_ms": float, "median_ms": float,
          "p10_ms": float, "p90_ms": float, "host_us": float, "gflops": float, "gbps": float, "peak_share": float,
          "workspace_bytes": int, "device_bytes": int, "runs": int, "peak_gflops": float, "peak_gbps": float}

# Options of a layer, and whether it has a core.
CASES = {
    "dense": [(["--causal"], True)],
    "assa": [(["--k", "8"], True), (["--mode", "adaptive", "--window", "2", "--shift", "1"], True)],
    "cas": [([], True), (["--mode", "vit"], False)],
    "cjar": [(["--window-left", "5", "--window-right", "3", "--random", "0.1"], True)],
    "aft": [([], True), (["--mode", "full"], True), (["--mode", "local", "--local", "4"], False),
            (["--mode", "conv"], False)],
}
SMALL = ["--n", "20", "--d", "16", "--heads", "2", "--repeat", "2"]


def call(*args, stdin=None, **environment):
    return subprocess.run([CLATTN, "bench", *args], capture_output=True, text=True, timeout=600, input=stdin,
                          env={**os.environ, **environment})


def rows(*args, **more):
    r = call(*args, "--json", **more)
    assert r.returncode == 0, f"{args}: exit status {r.returncode}: {r.stderr}"
    return [json.loads(line) for line in r.stdout.splitlines()]


def check_row(row, family, **known):
    assert set(row) == set(FIELDS), set(row) ^ set(FIELDS)
    for name, kind in FIELDS.items():
        assert isinstance(row[name], kind), (name, row[name])
    assert 0 < row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
    assert 0 < row["host_us"] <= 1000 * row["p90_ms"], row
    assert all(row[name] > 0 for name in ("gflops", "gbps", "peak_share", "device_bytes", "peak_gflops", "peak_gbps"))
    assert row["variant"] == family and row["plan"]
    assert all(row[name] == value for name, value in known.items()), row


def test_rows(family):
    for options, core in CASES[family]:
        shape = {"n": 20, "d": 16, "heads": 2, "batch": 1, "runs": 2}
        check_row(*rows(family, *SMALL, *options), family, level="layer", direction="forward", **shape)
        if core:
            check_row(*rows(family, *SMALL, *options, "--level", "core"), family, level="core", **shape)


def test_train(family):
    for options, core in CASES[family]:
        for level in ("layer", "core")[:1 + core]:
            args = [*SMALL, *options, "--direction", "train", "--level", level]
            check_row(*rows(family, *args), family, direction="train", level=level)


def test_storages(family):
    for dtype in ("f16", "bf16"):
        check_row(*rows(family, *SMALL, *CASES[family][0][0], "--dtype", dtype, "--batch", "2"), family, dtype=dtype,
                  batch=2)


def test_several(family):
    got = rows(family, "--n", "7,20", *SMALL[2:], *CASES[family][0][0], "--cold")
    assert [row["n"] for row in got] == [7, 20]
    assert len(rows(family, *SMALL, *CASES[family][0][0], "--paced", stdin="\n\n\n")) == 3
    text = call(family, *SMALL, *CASES[family][0][0])
    assert text.returncode == 0 and "GFLOP/s" in text.stdout and text.stdout.count("\n") == 4, text.stdout


def test_shapes(family):
    """Every line of bench/shapes, at a small size."""
    lines = (pathlib.Path(KERNELS).parent / "bench/shapes" / f"{family}.txt").read_text("ascii").splitlines()
    for line in lines:
        if line and not line.startswith("#") and "train" not in line:
            check_row(*rows(family, *line.split(), *SMALL, "--n", "64"), family, n=64)


def test_compare(family):
    """The comparison, without PyTorch or with it."""
    if family != FAMILIES[0] or set(FAMILIES) != set(CASES):
        return
    script = pathlib.Path(KERNELS).parent / "bench/compare"
    with tempfile.TemporaryDirectory() as folder:
        r = subprocess.run([sys.executable, "-B", script, "-c", CLATTN, "--n", "16", "--d", "16", "--heads", "2", "--rounds",
                            "2", "--direction", "forward", "--threads", "1", "--output", folder],
                           capture_output=True, text=True, timeout=600)
        assert r.returncode == 0, r.stderr
        table = (pathlib.Path(folder) / "bench-table.md").read_text("utf-8").splitlines()
        assert sum(line.startswith("| ") for line in table) >= 7, table


def test_usage(family):
    for args in ([], ["nosuch"], [family, "--n", "0"], [family, "--n", "3,"], [family, "--n", "x"],
                 [family, "--direction", "back"], [family, "--level", "top"], [family, "--dtype", "f64"],
                 [family, "--repeat", "0"], [family, "--mode", "nosuch"], [family, "--fly"],
                 [family, "--heads", "7", "--level", "core"]):
        r = call(*args)
        assert r.returncode == 2 and r.stdout == "" and "usage" in r.stderr, (args, r)
    if family != "cjar":
        assert call(family, "--random", "0.5").returncode == 2
    assert call("--help").returncode == 0


# ---- wrong kernels are not timed ----

def broken(folder, files, pattern, replacement):
    """The environment of kernels with a mistake: text that matches is replaced in the files of a pattern."""
    copy = pathlib.Path(folder) / "cl"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(KERNELS, copy)
    changes = 0
    for path in copy.rglob(files):
        text, count = re.subn(pattern, replacement, path.read_text("utf-8"))
        path.write_text(text, "utf-8")
        changes += count
    assert changes, f"no {files} has {pattern}"
    return {"CLATTN_KERNEL_PATH": str(copy), "CLATTN_CACHE_DIR": ""}


def refuses(word, *args, **environment):
    r = call(*args, "--json", **environment)
    assert r.returncode == 1 and r.stdout == "", (args, r)
    assert word in r.stderr and "no time is given" in r.stderr, r.stderr


# A mistake in a backward pass: of a linear layer; of dQ and dK, and of dV.
WRONG_GRADIENTS = {
    "dense": [("gemm_backward.cl", r"\bLOAD\(TYPE_X,", "1.2f * LOAD(TYPE_X,")],
    "assa": [("assa_backward.cl", r"RAW_LOAD\(grad_s \+ e\) - RAW_LOAD.*? \* sum", r"1.05f * (\g<0>)"),
             ("assa_backward.cl", r"\bkey_weights\[place\] =", "key_weights[place] = 1.2f *")],
}


def test_refusal(family):
    options = [*SMALL, *CASES[family][0][0]]
    if family == "aft":
        options += ["--mode", "simple"]
    with tempfile.TemporaryDirectory() as folder:
        exponentials = r"\b(native_exp2|exp2|exp|weights_of)\((?!const )"
        refuses("of the output is", family, *options, **broken(folder, "*.*", exponentials, r"\1(0.9f * "))
        for files, pattern, replacement in WRONG_GRADIENTS.get(family, []):
            refuses("slope", family, *options, "--direction", "train", **broken(folder, files, pattern, replacement))


def main():
    devices = subprocess.run([CLATTN, "devices", "--json"], capture_output=True, text=True)
    if devices.returncode != 0:
        return 77
    for family in FAMILIES:
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test(family)
                print(f"{family}: {name[5:]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
