#!/usr/bin/env python3
"""Make the sample from the unpacked model: inputs, the encoder's own weights, and five answers.

  make.py MODEL [OUTDIR]     MODEL holds vocab.txt and model.safetensors; OUTDIR defaults to this folder

Needs torch, numpy and safetensors. Answers are computed in float64 from exactly the float32 numbers that clattn
reads, by the naive formulas below, and stored as float32. Nothing is written if a check fails.
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

import encoder
import weights

HERE = os.path.dirname(os.path.abspath(__file__))
HEADS, K, WINDOW = encoder.HEADS, 8, 4
LIMIT = 1e-5


def seeded(layer):
    return {name: torch.tensor(values, dtype=torch.float64).view(shape)
            for name, (shape, values) in weights.make(layer).items()}


def heads(t):
    """[B, n, d] -> [B, H, n, dh]"""
    return t.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def finish(t, real, w, name):
    """Join the heads, empty the padding rows, project."""
    return encoder.linear(t.transpose(1, 2).flatten(2) * real.unsqueeze(-1), w, name)


def softmax(scores, seen):
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)


def dense(x, real, w):
    q, k, v = (heads(t) for t in F.linear(x, w["in_proj_weight"], w["in_proj_bias"]).chunk(3, -1))
    p = softmax(q @ k.mT / q.shape[-1] ** 0.5, real[:, None, None])
    return finish(p @ v, real, w, "out_proj")


def assa(x, real, w):
    """Each query keeps its K best keys. Returns the answer and the narrowest gap between a kept and a dropped score."""
    q, k, v = (heads(encoder.linear(x, w, c + "_proj")) for c in "qkv")
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~real[:, None, None], float("-inf"))
    best, index = scores.topk(K + 1, -1)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, index[..., :K], True)
    gap = (best[..., K - 1] - best[..., K])[real[:, None].expand(-1, HEADS, -1)]
    return finish(softmax(scores, kept) @ v, real, w, "out_proj"), gap[torch.isfinite(gap)].min().item()


def cas(x, real, w):
    def convolve(name):
        return heads(F.conv1d(x.mT, w[name + ".weight"], w[name + ".bias"], padding="same").mT)

    x = x * real.unsqueeze(-1)  # a tap beyond the end reads zero, not a padding token
    scores = convolve("conv_q").sum(-1).unsqueeze(-1) + convolve("conv_k").sum(-1).unsqueeze(-2)
    v = heads(encoder.linear(x, w, "linear_v"))
    return finish(softmax(scores / v.shape[-1] ** 0.5, real[:, None, None]) @ v, real, w, "proj")


def cjar(x, real, w, links):
    n = x.shape[1]
    q, k, v = (heads(t) for t in encoder.linear(x, w, "to_qkv").chunk(3, -1))
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= WINDOW
    near[links[:, 0], links[:, 1]] = True
    memory = heads(w["global_mem"].expand(len(x), -1, -1))
    seen = torch.cat([near & real[:, None, None], torch.ones(len(x), 1, n, memory.shape[2], dtype=torch.bool)], -1)
    k, v = torch.cat([k, memory], 2), torch.cat([v, memory], 2)
    return finish(softmax(q @ k.mT / q.shape[-1] ** 0.5, seen) @ v, real, w, "to_out")


def aft(x, real, w):
    gate, k, v = (heads(encoder.linear(x, w, c)) for c in ("Wq", "Wk", "Wv"))
    total = (k * v * real[:, None, :, None]).sum(2, keepdim=True)
    return finish(gate.sigmoid() * total * w["position_weights"], real, w, "Wo")


def draw_links(n, count):
    """Pairs (query, key) outside the window, from the weights' generator."""
    draws = np.array(weights.numbers(5, 2 * count)).reshape(count, 2)
    pairs = ((draws + 1) / 2 * n).astype(np.int32)
    return np.unique(pairs[np.abs(pairs[:, 0] - pairs[:, 1]) > WINDOW], axis=0)


def check_dense(model, w, x, lengths, y):
    """The plain formula, PyTorch's module and the encoder's own layer must say the same at every real token."""
    own = encoder.attention(model, 0, x, lengths)
    module = encoder.module_answer({k: v.numpy() for k, v in w.items()}, x, lengths)
    for b, length in enumerate(lengths):
        for other in (own, module):
            assert (y[b, :length] - other[b, :length]).abs().max() < LIMIT


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    out = sys.argv[2] if len(sys.argv) == 3 else HERE
    model = encoder.read_model(sys.argv[1])
    tokens, lengths = encoder.tokenise(sys.argv[1], encoder.SENTENCES)
    hidden = encoder.embed(model, tokens).float()
    x = hidden.double()
    real = torch.arange(x.shape[1]) < torch.as_tensor(lengths)[:, None]
    stored = encoder.dense_weights(model, 0)
    own = {name: torch.as_tensor(value).double() for name, value in stored.items()}
    links = draw_links(x.shape[1], 40)

    kept, gap = assa(x, real, seeded("assa"))
    assert gap > 1e-4, f"two scores {gap:.1e} apart: rounding could exchange them, take another seed"
    answers = {"dense": dense(x, real, own), "assa": kept, "cas": cas(x, real, seeded("cas")),
               "cjar": cjar(x, real, seeded("cjar"), torch.as_tensor(links).long()),
               "aft": aft(x, real, seeded("aft"))}
    check_dense(model, own, x, lengths, answers["dense"])
    for name, y in answers.items():
        assert y.isfinite().all(), name

    save_file(stored, f"{out}/dense.safetensors")
    np.save(f"{out}/x.npy", hidden.numpy())
    np.save(f"{out}/lengths.npy", lengths)
    np.save(f"{out}/links.npy", links)
    for name, y in answers.items():
        np.save(f"{out}/{name}.y.npy", y.float().numpy())
        print(f"{name}: largest magnitude {y.abs().max():.3f}")
    print(f"x {tuple(x.shape)}, lengths {lengths.tolist()}, {len(links)} links, narrowest top-{K} gap {gap:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
