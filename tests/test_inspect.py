#!/usr/bin/env python3
"""scripts/inspect-kernels on one kernel and one target; 77, skipped, where the compilers are missing.

  test_inspect.py SCRIPT BUILD
"""
import re
import subprocess
import sys


def main(script, build):
    done = subprocess.run([script, build, "--kernel", "gemm_linear", "--target", "gfx90a"], capture_output=True, text=True,
                          check=False)
    print(done.stdout + done.stderr)
    if done.returncode:
        return done.returncode
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| gemm_linear | - | gfx90a | ")]
    if len(rows) != 1 or not int(rows[0][3]) or not re.fullmatch(r"[1-8]/8 \|", rows[0][-1]):
        print("not one row with registers and waves")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
