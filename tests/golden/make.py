#!/usr/bin/env python3
"""Store the golden cases. Needs the project's oracle (case.py, with torch, numpy and safetensors).

  make.py CASE.PY [GROUP...]     write GROUP/NAME/{args.txt,x.npy,y.npy,w.safetensors,...} beside this file

Each case is also computed in float32: one whose answer rounding alone can move is refused, so that a failing golden
case is always clattn's fault. The stored files are enough to run the tests; only remaking them needs the oracle.
"""
import os
import shlex
import shutil
import sys

import numpy as np

import specs

HERE = os.path.dirname(os.path.abspath(__file__))
STEADY = 1e-5
DROPPED = ("dy.npy", "dx.npy", "dw.safetensors")


def fragility(case, spec, out):
    """Error of the oracle itself when it computes in float32."""
    import torch
    from safetensors.torch import load_file

    pairs = f"{out}/links.npy"
    links = torch.as_tensor(np.load(pairs)) if os.path.exists(pairs) else None
    x = torch.as_tensor(np.load(f"{out}/x.npy"))
    w = {name: values.float() for name, values in load_file(f"{out}/w.safetensors").items()}
    y = case.oracle(spec, w, x, links)
    return case.error(y.detach().numpy(), np.load(f"{out}/y.npy"))


def narrow(path, dtype):
    """Store weights as they are computed with; the case has rounded them."""
    import torch
    from safetensors.torch import load_file, save_file

    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    save_file({name: values.to(types[dtype]) for name, values in load_file(path).items()}, path)


def store(case, group, name, spec):
    out = os.path.join(HERE, group, name)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    args = case.make(spec, out)
    narrow(f"{out}/w.safetensors", spec.get("dtype", "f32"))
    error = fragility(case, spec, out)
    if error > STEADY:
        raise SystemExit(f"{group}/{name}: float32 alone is {error:.1e} off; change the case or its seed")
    for file in DROPPED:
        os.remove(f"{out}/{file}")
    np.save(f"{out}/y.npy", np.ascontiguousarray(np.load(f"{out}/y.npy"), np.float32))
    os.chmod(f"{out}/w.safetensors", 0o644)
    at = args.index("--output")
    relative = [a.removeprefix(out + "/") for a in args[:at] + args[at + 2:]]
    with open(f"{out}/args.txt", "w", encoding="ascii") as f:
        f.write(shlex.join(relative) + "\n")
    return error


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
    import case

    for group, name, spec in specs.all_cases():
        if not sys.argv[2:] or group in sys.argv[2:]:
            print(f"{group}/{name}: steady to {store(case, group, name, spec):.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
