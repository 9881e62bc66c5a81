#!/usr/bin/env python3
"""Run the stored golden cases through the command line and compare. Standard library only; prints TAP.

  run.py CLATTN [--families NAME,NAME...] [GROUP...]     all groups, or those named

A group whose family is not among those built is reported as skipped case by case, unless it is named.
"""
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.dont_write_bytecode = True
import answers  # noqa: E402

LIMITS = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}  # largest error over the largest magnitude of the answer
SECONDS = 120


def cases():
    """(group, name, arguments, dtype); those in 16 bits once more in float32, from the same 16-bit weights."""
    for group in sorted(os.listdir(HERE)):
        folder = os.path.join(HERE, group)
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name, "args.txt")
                if not os.path.exists(path):
                    continue
                with open(path, encoding="ascii") as f:
                    args = shlex.split(f.read())
                dtype = args[args.index("--dtype") + 1] if "--dtype" in args else "f32"
                yield group, name, args, dtype
                if dtype != "f32":
                    yield group, name, [*args, "--dtype", "f32"], "f32"


def run(clattn, folder, args, dtype, output):
    """None, or why the case failed."""
    command = [clattn, *args, "--output", output]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr.strip()[-2000:]}"
    try:
        relative = answers.relative(*answers.compare(output, os.path.join(folder, "y.npy")))
    except (OSError, ValueError) as problem:
        return str(problem)
    return None if relative <= LIMITS[dtype] else f"relative error {relative:.1e}"


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    clattn, args = os.path.abspath(sys.argv[1]), sys.argv[2:]
    todo = list(cases())
    groups = {group for group, *_ in todo}
    wanted = groups
    if args[:1] == ["--families"]:
        wanted = {group for group in groups if group.split("-")[0] in args[1].split(",")}
        args = args[2:]
    wanted = set(args) or wanted
    unknown = wanted - groups
    if unknown:
        print(f"no such group: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if not answers.device_present(clattn):
        print("1..0 # SKIP no OpenCL device")
        return 0
    passed = failed = skipped = 0
    print(f"1..{len(todo)}")
    with tempfile.TemporaryDirectory() as temporary:
        os.environ.setdefault("CLATTN_CACHE_DIR", os.path.join(temporary, "cache"))
        for number, (group, name, args, dtype) in enumerate(todo, 1):
            title = f"{number} - {group}/{name} {dtype}"
            if group not in wanted:
                skipped += 1
                print(f"ok {title} # SKIP family not built, or not asked for")
                continue
            output = os.path.join(temporary, f"{number}.npy")
            why = run(clattn, os.path.join(HERE, group, name), args, dtype, output)
            passed, failed = passed + (why is None), failed + (why is not None)
            print(f"{'not ok' if why else 'ok'} {title}", flush=True)
            for line in (why or "").splitlines():
                print(f"# {line}")
    print(f"# {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
