"""The layers as PyTorch computes them best, for bench/compare: functions of x [B, n, d] and a dict of weights under the
names of clattn's layers.

Each entry of LAYERS: (weights, prepare, forward). weights(n, d, heads) -> name -> shape; prepare(w, n, heads, train) adds what a
user would compute once and keep; forward(x, w, heads) -> y. No dropout, float32, no padding.
"""
import math

import torch
import torch.nn.functional as F

TOP, CHUNK, WINDOW, MEMORY, LINKS, TAPS = 32, 256, 64, 4, 0.05, 3


def split(t, heads):
    B, n, d = t.shape
    return t.view(B, n, heads, d // heads).transpose(1, 2)


def merge(t):
    B, H, n, dh = t.shape
    return t.transpose(1, 2).reshape(B, n, H * dh)


def square(d, *names):
    return {name + suffix: shape for name in names for suffix, shape in ((".weight", (d, d)), (".bias", (d,)))}


def kept(w, n, heads, train):
    """Nothing to keep."""


# ---- dense: fused attention ----

def dense_weights(n, d, heads):
    return {"in_proj_weight": (3 * d, d), "in_proj_bias": (3 * d,), **square(d, "out_proj")}


def dense(x, w, heads):
    q, k, v = (split(t, heads) for t in F.linear(x, w["in_proj_weight"], w["in_proj_bias"]).chunk(3, -1))
    return F.linear(merge(F.scaled_dot_product_attention(q, k, v)), w["out_proj.weight"], w["out_proj.bias"])


# ---- assa: top-k in chunks of queries, so that no n x n array exists at once ----

def assa_weights(n, d, heads):
    return square(d, "q_proj", "k_proj", "v_proj", "out_proj")


def assa(x, w, heads):
    q, k, v = (split(F.linear(x, w[p + ".weight"], w[p + ".bias"]), heads) for p in ("q_proj", "k_proj", "v_proj"))
    B, H, n, dh = q.shape
    parts, flat = [], v.reshape(B * H, n, dh)
    for chunk in (q / math.sqrt(dh)).split(CHUNK, 2):
        top, index = (chunk @ k.transpose(-1, -2)).topk(min(TOP, n), -1)
        rows = index.view(B * H, -1, 1).expand(-1, -1, dh)
        values = flat.gather(1, rows).view(B, H, chunk.shape[2], -1, dh)
        parts.append((top.softmax(-1).unsqueeze(-2) @ values).squeeze(-2))
    return F.linear(merge(torch.cat(parts, 2)), w["out_proj.weight"], w["out_proj.bias"])


# ---- cas: the n x n tutorial, the same modules with sums linear in n, and the form in which the queries cancel ----

def cas_weights(n, d, heads):
    conv = {name + suffix: shape for name in ("conv_q", "conv_k")
            for suffix, shape in ((".weight", (d, d, TAPS)), (".bias", (d,)))}
    return {**conv, **square(d, "linear_v", "proj")}


def cas_tutorial(x, w, heads):
    q, k = (split(F.conv1d(x.transpose(1, 2), w[c + ".weight"], w[c + ".bias"], padding=TAPS // 2).transpose(1, 2), heads)
            for c in ("conv_q", "conv_k"))
    v = split(F.linear(x, w["linear_v.weight"], w["linear_v.bias"]), heads)
    scores = (q.unsqueeze(3) + k.unsqueeze(2)).sum(-1)
    o = (scores / math.sqrt(v.shape[-1])).softmax(-1) @ v
    return F.linear(merge(o), w["proj.weight"], w["proj.bias"])


def cas_linear(x, w, heads):
    """All four modules of the tutorial; scores are sums a_i + b_j, so that softmax over j is one row a head, plus 0 a_i."""
    q, k = (split(F.conv1d(x.transpose(1, 2), w[c + ".weight"], w[c + ".bias"], padding=TAPS // 2).transpose(1, 2), heads)
            for c in ("conv_q", "conv_k"))
    v = split(F.linear(x, w["linear_v.weight"], w["linear_v.bias"]), heads)
    p = (k.sum(-1) / math.sqrt(v.shape[-1])).softmax(-1)
    o = p.unsqueeze(-2) @ v + 0 * q.sum(-1, keepdim=True)
    return F.linear(merge(o), w["proj.weight"], w["proj.bias"])


def cas_sums(w, n, heads, train):
    if not train:
        w["sums"] = head_sums(w, heads)


def head_sums(w, heads):
    weight = w["conv_k.weight"]
    return weight.view(heads, -1, *weight.shape[1:]).sum(1)


def cas_collapsed(x, w, heads):
    B, n, d = x.shape
    dh = d // heads
    sums = w["sums"] if "sums" in w else head_sums(w, heads)
    p = (F.conv1d(x.transpose(1, 2), sums, padding=TAPS // 2) / math.sqrt(dh)).softmax(-1)
    mean = p @ x  # [B, heads, d]
    row = torch.einsum("bhc,hec->bhe", mean, w["linear_v.weight"].view(heads, dh, d)).reshape(B, d) + w["linear_v.bias"]
    return F.linear(row, w["proj.weight"], w["proj.bias"]).unsqueeze(1).expand(B, n, d).contiguous()


# ---- cjar: fused attention with a mask of n x (n + memory) ----

def cjar_weights(n, d, heads):
    return {"to_qkv.weight": (3 * d, d), "to_qkv.bias": (3 * d,), **square(d, "to_out"), "global_mem": (MEMORY, d)}


def cjar_mask(w, n, heads, train):
    i = torch.arange(n)
    near = (i[:, None] - i[None, :]).abs() <= WINDOW
    drawn = torch.rand(n, n, generator=torch.Generator().manual_seed(1)) < LINKS
    w["mask"] = torch.cat([near | drawn, torch.ones(n, MEMORY, dtype=torch.bool)], 1)


def cjar(x, w, heads):
    q, k, v = (split(t, heads) for t in F.linear(x, w["to_qkv.weight"], w["to_qkv.bias"]).chunk(3, -1))
    memory = split(w["global_mem"].unsqueeze(0), heads).expand(x.shape[0], -1, -1, -1)
    k, v = torch.cat([k, memory], 2), torch.cat([v, memory], 2)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=w["mask"])
    return F.linear(merge(o), w["to_out.weight"], w["to_out.bias"])


# ---- aft ----

def gated_weights(n, d, heads):
    return {**square(d, "Wq", "Wk", "Wv", "Wo"), "position_weights": (heads, 1, 1)}


def gated(x, w, heads):
    q, k, v = (F.linear(x, w[p + ".weight"], w[p + ".bias"]) for p in ("Wq", "Wk", "Wv"))
    total = (k * v).sum(1, keepdim=True)
    scale = w["position_weights"].view(-1).repeat_interleave(x.shape[-1] // heads)
    return F.linear(q.sigmoid() * (total * scale), w["Wo.weight"], w["Wo.bias"])


def full_weights(n, d, heads):
    return {**square(d, "Wq", "Wk", "Wv", "Wo"), "w": (n, n)}


def full_exponentials(w, n, heads, train):
    if not train:
        w["exponentials"] = (w["w"] - w["w"].max()).exp()


def full(x, w, heads):
    """As two products by exponentials; the maxima are subtracted apart, which is quick but can underflow."""
    q, k, v = (F.linear(x, w[p + ".weight"], w[p + ".bias"]) for p in ("Wq", "Wk", "Wv"))
    ew = w["exponentials"] if "exponentials" in w else (w["w"] - w["w"].max()).exp()
    ek = (k - k.amax(1, keepdim=True)).exp()
    return F.linear(q.sigmoid() * (ew @ (ek * v)) / (ew @ ek), w["Wo.weight"], w["Wo.bias"])


LAYERS = {
    "dense": (dense_weights, kept, dense),
    "assa": (assa_weights, kept, assa),
    "cas": (cas_weights, cas_sums, cas_collapsed),
    "cas linear": (cas_weights, kept, cas_linear),
    "cas tutorial": (cas_weights, kept, cas_tutorial),
    "cjar": (cjar_weights, cjar_mask, cjar),
    "aft gated": (gated_weights, kept, gated),
    "aft full": (full_weights, full_exponentials, full),
}


def temporary_bytes(layer, n, d, train):
    """What the largest arrays of a layer take, to leave out what the machine cannot hold."""
    square_bytes = 4 * n * n
    rough = {"cas tutorial": square_bytes * d, "cjar": 2 * square_bytes, "aft full": 4 * square_bytes}
    return rough.get(layer, 0) * (3 if train else 1) + 64 * n * d


def make(layer, n, d, heads, train):
    """A function of no arguments that runs the layer once, on seeded numbers."""
    shapes, prepare, forward = LAYERS[layer]
    torch.manual_seed(0)
    w = {name: torch.randn(shape) / math.sqrt(math.prod(shape[1:])) for name, shape in shapes(n, d, heads).items()}
    x = torch.randn(1, n, d)
    if not train:
        prepare(w, n, heads, train)

        def run():
            with torch.inference_mode():
                return forward(x, w, heads)
        return run

    learnt = [x, *w.values()]
    prepare(w, n, heads, train)
    for t in learnt:
        t.requires_grad_(True)
    gradient = torch.randn(1, n, d)

    def run_both():
        for t in learnt:
            t.grad = None
        y = forward(x, w, heads)
        y.backward(gradient)
        return y
    return run_both
