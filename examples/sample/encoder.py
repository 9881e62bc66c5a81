"""The sentence encoder all-MiniLM-L6-v2 in plain PyTorch: words to token numbers, embeddings, six layers.

Only what make.py and scripts/check-encoder need, read straight from the unpacked model (vocab.txt,
model.safetensors). Everything is computed in float64.
"""
import re

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file

HEADS = 12
LAYERS = 6
EPSILON = 1e-12

SENTENCES = [
    "The library compiles its kernels for whatever device it finds, and keeps the programs on disk for the next run.",
    "A heron stood in the shallow water and waited for the tide to turn.",
    "Where is the nearest railway station?",
    "Softmax subtracts the maximum before it exponentiates, so large scores stay finite.",
    "Rain.",
    "She bought two lemons, a loaf of rye bread and some unsalted butter at the market.",
]


def read_model(folder):
    weights = load_file(f"{folder}/model.safetensors")
    return {name: torch.as_tensor(value).double() for name, value in weights.items() if value.dtype == np.float32}


def tokenise(folder, sentences):
    """WordPiece on lower-case ASCII text: the longest known piece first. Returns token numbers [B, n] and lengths."""
    with open(f"{folder}/vocab.txt", encoding="utf-8") as f:
        number = {piece.rstrip("\n"): i for i, piece in enumerate(f)}

    def pieces(word):
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next(e for e in range(len(word), start, -1) if prefix + word[start:e] in number)
            yield number[prefix + word[start:end]]
            start = end

    rows = []
    for sentence in sentences:
        words = re.findall(r"[a-z0-9]+|[^\sa-z0-9]", sentence.lower())
        rows.append([number["[CLS]"], *(p for word in words for p in pieces(word)), number["[SEP]"]])
    n = max(map(len, rows))
    tokens = torch.tensor([row + [number["[PAD]"]] * (n - len(row)) for row in rows])
    return tokens, np.array([len(row) for row in rows], np.int32)


def norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], EPSILON)


def linear(x, w, name):
    return F.linear(x, w[name + ".weight"], w[name + ".bias"])


def embed(w, tokens):
    """Hidden states that enter the first layer, padding tokens included."""
    table = "embeddings."
    x = (w[table + "word_embeddings.weight"][tokens] + w[table + "position_embeddings.weight"][: tokens.shape[1]]
         + w[table + "token_type_embeddings.weight"][0])
    return norm(x, w, table + "LayerNorm")


def attention(w, layer, x, lengths):
    """What the encoder's own layer adds to its input: projections, heads, keys past the length hidden."""
    B, n, d = x.shape
    self = f"encoder.layer.{layer}.attention.self."
    q, k, v = (linear(x, w, self + c).view(B, n, HEADS, -1).transpose(1, 2) for c in ("query", "key", "value"))
    scores = q @ k.transpose(-1, -2) / (d // HEADS) ** 0.5
    hidden = torch.arange(n) >= torch.as_tensor(lengths).view(B, 1, 1, 1)
    mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    return linear(mixed.transpose(1, 2).reshape(B, n, d), w, f"encoder.layer.{layer}.attention.output.dense")


def rest(w, layer, x, y):
    """The remainder of an encoder layer: residual, norm, feed-forward, residual, norm."""
    name = f"encoder.layer.{layer}."
    x = norm(x + y, w, name + "attention.output.LayerNorm")
    y = linear(F.gelu(linear(x, w, name + "intermediate.dense")), w, name + "output.dense")
    return norm(x + y, w, name + "output.LayerNorm")


def dense_weights(w, layer):
    """One layer's attention weights under clattn's (and torch.nn.MultiheadAttention's) names, as float32."""
    name = f"encoder.layer.{layer}.attention."
    stack = lambda kind: torch.cat([w[f"{name}self.{c}.{kind}"] for c in ("query", "key", "value")])
    out = {"in_proj_weight": stack("weight"), "in_proj_bias": stack("bias"),
           "out_proj.weight": w[name + "output.dense.weight"], "out_proj.bias": w[name + "output.dense.bias"]}
    return {key: value.float().numpy().copy() for key, value in out.items()}


def module_answer(dense, x, lengths):
    """torch.nn.MultiheadAttention with these weights, in float64; rows at padding are its own, not clattn's."""
    d = x.shape[-1]
    module = torch.nn.MultiheadAttention(d, HEADS, batch_first=True).double()
    module.load_state_dict({key: torch.as_tensor(value).double() for key, value in dense.items()})
    padding = torch.arange(x.shape[1]) >= torch.as_tensor(lengths).view(-1, 1)
    with torch.no_grad():
        return module(x, x, x, key_padding_mask=padding, need_weights=False)[0]
