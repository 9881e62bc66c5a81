#!/usr/bin/env python3
"""examples/forward.c against the same layer in plain Python.   test_forward.py FORWARD [WRAPPER...]"""
import math
import re
import subprocess
import sys

LENGTH, WIDTH, HEADS, SKIPPED = 16, 32, 4, 77


def fill(count, scale, seed):
    values = []
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        values.append(scale * ((seed >> 8) / 8388608.0 - 1.0))
    return values


def linear(x, weight, bias):
    return [b + sum(w * a for w, a in zip(weight[r * WIDTH:(r + 1) * WIDTH], x)) for r, b in enumerate(bias)]


def attend(q, keys, values):
    scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in keys]
    weights = [math.exp(s - max(scores)) for s in scores]
    return [sum(w * v[c] for w, v in zip(weights, values)) / sum(weights) for c in range(len(q))]


def expected():
    """The last token of the first sequence: causal, so it sees all of them."""
    x = fill(LENGTH * WIDTH, 1.0, 1)  # of two sequences, the first
    w_in, b_in = fill(3 * WIDTH * WIDTH, 0.3, 100), fill(3 * WIDTH, 0.1, 101)
    w_out, b_out = fill(WIDTH * WIDTH, 0.3, 102), fill(WIDTH, 0.1, 103)
    rows = [linear(x[i * WIDTH:(i + 1) * WIDTH], w_in, b_in) for i in range(LENGTH)]
    size, o = WIDTH // HEADS, []
    for first in range(0, WIDTH, size):
        o += attend(rows[-1][first:first + size], [r[WIDTH + first:WIDTH + first + size] for r in rows],
                    [r[2 * WIDTH + first:2 * WIDTH + first + size] for r in rows])
    return linear(o, w_out, b_out)


def main():
    run = subprocess.run(sys.argv[1:], capture_output=True, text=True)
    if "no OpenCL device" in run.stderr:
        return SKIPPED
    print(run.stdout, run.stderr)
    numbers = re.match(r"y\[0, 15\]:(.*)", run.stdout)
    if run.returncode or not numbers:
        return 1
    got, want = [float(v) for v in numbers.group(1).split()], expected()
    error = max(abs(a - b) for a, b in zip(got, want)) if len(got) == len(want) else math.inf
    print(f"{len(got)} numbers, largest error {error:.1e}")
    return not error < 2e-5


if __name__ == "__main__":
    sys.exit(main())
