#!/usr/bin/env python3
"""Run the sample's five layers through clattn and compare each with PyTorch's answer. Standard library only.

  run.py CLATTN

Prints device, plan, time and error of each layer; exit status 1 if an error exceeds 1e-5 of the answer's largest
magnitude (for the encoder's own layer, dense: 1e-5 in absolute terms), 77 if there is no OpenCL device.
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import answers  # noqa: E402
import weights  # noqa: E402

LIMIT = 1e-5
LAYERS = {
    "dense": [],
    "assa": ["--mode", "topk", "--k", "8"],
    "cas": ["--mode", "additive"],
    "cjar": ["--window-left", "4", "--window-right", "4", "--links", "links.npy"],
    "aft": ["--mode", "gated"],
}


def weights_file(layer, folder):
    path = os.path.join(HERE if layer == "dense" else folder, layer + ".safetensors")
    if layer != "dense":
        weights.write_safetensors(path, weights.make(layer))
    return path


def agrees(clattn, layer, options, folder):
    """Run one layer and say how far it is from the stored answer."""
    output = os.path.join(folder, layer + ".y.npy")
    print(f"\n{layer} {' '.join(options)}", flush=True)
    done = subprocess.run([clattn, "run", layer, "--heads", str(weights.HEADS), *options, "--lengths", "lengths.npy",
                           "--weights", weights_file(layer, folder), "--input", "x.npy", "--output", output],
                          cwd=HERE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print(f"WRONG: exit status {done.returncode}")
        return False
    error, magnitude = answers.compare(output, os.path.join(HERE, layer + ".y.npy"))
    relative = answers.relative(error, magnitude)
    good = (error if layer == "dense" else relative) <= LIMIT
    print(f"error: {error:.1e} absolute, {relative:.1e} relative{'' if good else '  WRONG'}", flush=True)
    return good


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    clattn = os.path.abspath(sys.argv[1])
    if not answers.device_present(clattn):
        print("no OpenCL device")
        return answers.SKIPPED
    print("Six sentences entering the first layer of all-MiniLM-L6-v2: x [6, 27, 384], 12 heads, real padding.")
    with tempfile.TemporaryDirectory() as folder:
        good = sum([agrees(clattn, layer, options, folder) for layer, options in LAYERS.items()])
    print(f"\n{good} of {len(LAYERS)} layers agree with PyTorch within {LIMIT:.0e}")
    return good != len(LAYERS)


if __name__ == "__main__":
    sys.exit(main())
