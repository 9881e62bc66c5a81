#!/usr/bin/env python3
"""Run test_gpu under Oclgrind, a family at a time; what it reports is a failure. Prints TAP.

  oclgrind.py PROGRAM FAMILY[,FAMILY...] SANITIZERS      those that PROGRAM was built with, or none

Kernels are compiled without optimisation: Oclgrind does not know all instructions that LLVM's optimiser makes.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

# For the first GPU row, and enough work-items that both threads' work-groups overlap.
DEVICE = ["--local-mem-size", "65536", "--build-options", "-cl-opt-disable"]
# The second check of Oclgrind 21.10 dies of cjar's kernels, where a struct is passed on from local memory.
CHECKS = {"cjar": ["--data-races"]}
ALL_CHECKS = ["--data-races", "--uninitialized"]


def reports(log):
    """Each kind of report once, by its first line, kernel and place."""
    seen = {}
    for block in re.split(r"\n\s*\n(?=\n*\S)", log):
        lines = [line.strip() for line in block.strip().splitlines()]
        if not lines:
            continue
        kernel, place = re.search(r"Kernel: (\S+)", block), re.search(r"At line (\d+).* of (\S+):", block)
        what = re.sub(r"0x[0-9a-f]+", "an address", lines[0])
        where = f"{place.group(2)}:{place.group(1)}" if place else "?"
        key = f"{what} [{kernel.group(1) if kernel else '?'}, {where}]"
        seen[key] = seen.get(key, 0) + 1
    return [f"{count} x {key}" for key, count in seen.items()]


def run(program, family):
    """Why the family fails: lines, or none."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        environment = {**os.environ, "CLATTN_CACHE_DIR": "", "CK_RUN_CASE": family}
        done = subprocess.run(["oclgrind", *CHECKS.get(family, ALL_CHECKS), *DEVICE, "--log", log, program],
                              env=environment, capture_output=True, text=True, check=False)
        with open(log, encoding="utf-8", errors="replace") as f:
            problems = reports(f.read())
    if done.returncode:
        problems += [f"exit status {done.returncode}", *done.stdout.splitlines(), *done.stderr.splitlines()]
    elif "Checks: 0" in done.stdout or "Checks: " not in done.stdout:
        problems += ["no test ran"]
    return problems


def main(program, families, sanitizers):
    if sanitizers != "none":
        print("1..0 # SKIP both oclgrind and a sanitizer's runtime want to be loaded first")
        return 0
    if not shutil.which("oclgrind"):
        print("1..0 # SKIP no oclgrind")
        return 0
    failed = 0
    print(f"1..{len(families)}")
    for number, family in enumerate(families, 1):
        problems = run(program, family)
        failed += bool(problems)
        print(f"{'not ok' if problems else 'ok'} {number} - {family}", flush=True)
        for line in problems[:60]:
            print(f"# {line}")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2].split(","), sys.argv[3]))
