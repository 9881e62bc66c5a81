"""The training example learns: usage test_train.py TRAIN. Standard library only; prints TAP."""
import subprocess
import sys

# family, storage, steps, the loss that it must end below or (cas: one answer for all queries) stay above
CASES = [
    ("dense", "f32", 100, "below", 0.1),
    ("dense", "f16", 110, "below", 0.1),
    ("assa", "f32", 130, "below", 0.1),
    ("cjar", "f32", 130, "below", 0.1),
    ("aft-full", "f32", 130, "below", 0.1),
    ("aft-gated", "f32", 30, "above", 0.5),
    ("cas", "f32", 30, "above", 0.5),
]


def losses(program, family, storage, steps):
    run = subprocess.run([program, family, storage, str(steps)], capture_output=True, text=True, timeout=900)
    if run.returncode:
        raise RuntimeError(run.stderr.strip() or f"exit status {run.returncode}")
    return [float(line.split()[-1]) for line in run.stdout.splitlines()]


def verdict(program, family, storage, steps, side, bound):
    try:
        seen = losses(program, family, storage, steps)
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        return False, str(failure)
    good = len(seen) > 1 and seen[0] > 0.9 and (seen[-1] < bound if side == "below" else seen[-1] > bound)
    return good, " ".join(f"{loss:.4f}" for loss in seen)


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, case in enumerate(CASES, 1):
        good, seen = verdict(sys.argv[1], *case)
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {case[0]} {case[1]}: {seen}, must end {case[3]} {case[4]}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
