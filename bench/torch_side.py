#!/usr/bin/env python3
"""PyTorch's side of bench/compare: one layer at one size, a run for each line on the standard input.

usage: torch_side.py LAYER N D HEADS forward|train THREADS

Answers a line of JSON when ready, then one with the milliseconds of each run.
"""
import json
import sys
import time

import torch

import torch_layers


def status(field):
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


def reset_peak():
    """False where the system does not let a process forget its peak: then the first run's counts."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
        return True
    except OSError:
        return False


def answer(**fields):
    print(json.dumps(fields), flush=True)


def main():
    layer, n, d, heads, direction, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    before = status("VmRSS")
    run = torch_layers.make(layer, int(n), int(d), int(heads), direction == "train")
    run()
    reset_peak()
    finite = bool(torch.isfinite(run()).all())
    answer(version=torch.__version__, bytes=max(0, status("VmHWM") - before), finite=finite)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        answer(ms=(time.perf_counter() - start) * 1e3)


if __name__ == "__main__":
    main()
