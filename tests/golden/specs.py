"""The golden cases: group -> {name: spec}, in the oracle's own terms. Sizes are small and odd on purpose."""


def case(B, n, d, heads, lengths=None, nan=False, opt=None, **more):
    spec = {"B": B, "n": n, "d": d, "heads": heads, "options": opt or {}, **more}
    if lengths is not None:
        spec.update(lengths=lengths, nan_padding=nan)
    return spec


def causal(**opt):
    return {"causal": True, **opt}


def cjar(left, right, **opt):
    return {"window-left": left, "window-right": right, **opt}


GROUPS = {
    ("dense", "dense", None): {
        "plain": case(2, 33, 24, 2),
        "one-token": case(3, 1, 10, 2),
        "one-head-of-40": case(1, 65, 40, 1),
        "causal-padded-nan": case(3, 33, 24, 2, [33, 0, 7], True, causal()),
        "padded-nan-head-5": case(2, 65, 15, 3, [1, 64], True),
        "causal-head-1": case(1, 7, 3, 3, opt=causal()),
        "large-logits": case(1, 33, 20, 4, spread=6.0),
    },
    ("assa-topk", "assa", "topk"): {
        "plain": case(2, 65, 24, 2, opt={"k": 8}),
        "one-key": case(1, 33, 10, 2, opt={"k": 1}),
        "k-past-n": case(2, 7, 15, 3, opt={"k": 32}),
        "causal": case(1, 65, 40, 1, opt=causal(k=5)),
        "all": case(2, 33, 24, 2, opt={"k": 3, "normalise": "all"}),
        "all-causal-padded-nan": case(3, 33, 24, 2, [33, 0, 9], True, causal(k=4, normalise="all")),
        "padded-nan": case(2, 65, 10, 2, [20, 65], True, {"k": 8}),
        "one-token": case(2, 1, 10, 2, opt={"k": 4}),
    },
    ("assa-adaptive", "assa", "adaptive"): {
        "whole": case(2, 33, 24, 2),
        "window": case(2, 48, 10, 2, opt={"grid": "6x8", "window": 2}),
        "window-is-grid": case(2, 49, 12, 1, opt={"grid": "7x7", "window": 7}),
        "shift": case(1, 96, 24, 2, opt={"grid": "8x12", "window": 4, "shift": 2}),
        "shift-one": case(2, 54, 15, 3, opt={"grid": "6x9", "window": 3, "shift": 1}),
    },
    ("cas-additive", "cas", "additive"): {
        "plain": case(2, 33, 24, 2, kernel=3),
        "kernel-5-one-token": case(2, 1, 10, 2, kernel=5),
        "kernel-9-past-n": case(1, 7, 15, 3, kernel=9),
        "kernel-7-padded-nan": case(3, 33, 10, 2, [33, 0, 2], True, kernel=7),
        "causal": case(1, 65, 24, 2, opt=causal(), kernel=3),
        "causal-padded-nan": case(2, 65, 15, 3, [65, 13], True, causal(), kernel=5),
        "head-of-40": case(1, 9, 40, 1, kernel=3),
    },
    ("cas-vit", "cas", "vit"): {
        "plain": case(2, 70, 24, 1, opt={"grid": "7x10"}),
        "one-row": case(1, 9, 5, 1, opt={"grid": "1x9"}),
        "one-pixel": case(2, 1, 12, 1, opt={"grid": "1x1"}),
        "tall": case(1, 66, 16, 1, opt={"grid": "33x2"}),
    },
    ("cjar", "cjar", None): {
        "window-past-n": case(2, 33, 24, 2),
        "narrow": case(2, 65, 24, 2, opt=cjar(3, 5)),
        "diagonal": case(1, 33, 10, 2, opt=cjar(0, 0)),
        "left-unlimited": case(1, 65, 15, 3, opt=cjar("none", 4)),
        "right-unlimited": case(1, 65, 15, 3, opt=cjar(2, "none")),
        "unlimited-no-memory": case(1, 33, 10, 2, opt=cjar("none", "none"), memory=0),
        "no-memory-padded-nan": case(3, 33, 24, 2, [33, 0, 6], True, cjar(4, 4), memory=0),
        "links": case(1, 90, 24, 2, opt=cjar(4, 4), links=400),
        "links-inside-window": case(1, 33, 10, 2, opt=cjar(8, 8), links=60),
        "links-causal-padded-nan": case(2, 90, 15, 3, [90, 71], True, cjar(4, 4, causal=True), links=400),
        "causal": case(1, 65, 24, 2, opt=cjar(8, 8, causal=True)),
        "memory-kv": case(2, 33, 24, 2, opt=cjar(4, 4), memory_kv=True, memory=3),
        "scale-model": case(1, 65, 20, 1, opt=cjar("none", 8, **{"scale-by": "model"})),
        "multiply": case(2, 65, 24, 2, opt=cjar(5, 5, masked="multiply")),
        "multiply-links-kv": case(1, 90, 15, 3, opt=cjar(3, 3, masked="multiply"), links=200, memory_kv=True),
        "multiply-causal-padded-nan": case(3, 33, 10, 2, [33, 0, 20], True, cjar(4, 4, masked="multiply", causal=True)),
        "one-token": case(2, 1, 10, 2, opt=cjar(1, 1)),
    },
    ("aft-gated", "aft", "gated"): {
        "plain": case(2, 33, 24, 2),
        "longer-than-wide": case(1, 90, 15, 3),
        "one-token": case(2, 1, 10, 2),
        "causal": case(1, 65, 40, 1, opt=causal()),
        "padded-nan": case(3, 33, 24, 2, [33, 0, 7], True),
        "causal-padded-nan": case(2, 65, 15, 3, [65, 30], True, causal()),
    },
    ("aft-gated-matrix", "aft", "gated-matrix"): {
        "plain": case(2, 33, 24, 2),
        "longer-than-wide": case(1, 90, 15, 3),
        "causal": case(1, 65, 24, 2, opt=causal()),
        "causal-padded-nan": case(2, 65, 15, 3, [65, 30], True, causal()),
        "padded-nan": case(3, 33, 24, 2, [33, 0, 7], True),
    },
    ("aft-full", "aft", "full"): {
        "plain": case(2, 33, 24, 2, T=40),
        "exact-length": case(1, 7, 10, 2),
        "factors": case(1, 65, 15, 3, T=70, rank=4),
        "causal-padded-nan": case(2, 33, 24, 2, [33, 9], True, causal()),
        "large-keys-causal": case(1, 33, 24, 2, opt=causal(), spread=20.0),
    },
    ("aft-local", "aft", "local"): {
        "plain": case(2, 33, 24, 2, opt={"local": 4}),
        "factors-causal-padded-nan": case(2, 65, 15, 3, [65, 11], True, causal(local=7), rank=4, T=70),
        "past-n": case(1, 7, 10, 2, opt={"local": 32}),
    },
    ("aft-simple", "aft", "simple"): {
        "plain": case(2, 33, 24, 2),
        "causal": case(1, 65, 15, 3, opt=causal()),
        "padded-nan": case(3, 33, 10, 2, [33, 0, 7], True),
    },
    ("aft-conv", "aft", "conv"): {
        "plain": case(2, 33, 24, 2, kernel=5),
        "reparam-causal": case(1, 65, 15, 3, opt=causal(), kernel=7, reparam=True),
        "padded-nan": case(3, 33, 10, 2, [33, 0, 7], True, kernel=3),
        "taps-past-n": case(1, 7, 24, 2, kernel=31),
    },
}

# Input and weights exact in 16 bits, the weights stored so.
STORED = {
    ("dense", "dense", None): {
        "f16": case(2, 33, 24, 2, [33, 7], True, causal(), dtype="f16"),
    },
    ("assa-topk", "assa", "topk"): {
        "bf16": case(2, 33, 24, 2, opt={"k": 8}, dtype="bf16"),
    },
    ("assa-adaptive", "assa", "adaptive"): {
        "f16": case(1, 48, 10, 2, opt={"grid": "6x8", "window": 2, "shift": 1}, dtype="f16"),
        "bf16": case(2, 33, 15, 3, dtype="bf16"),
    },
    ("cas-additive", "cas", "additive"): {
        "f16": case(2, 33, 24, 2, [33, 7], True, causal(), kernel=3, dtype="f16"),
        "bf16": case(2, 33, 10, 2, kernel=5, dtype="bf16"),
    },
    ("cas-vit", "cas", "vit"): {
        "f16": case(1, 35, 12, 1, opt={"grid": "5x7"}, dtype="f16"),
    },
    ("cjar", "cjar", None): {
        "f16": case(2, 33, 24, 2, opt=cjar(3, 5), dtype="f16"),
        "bf16": case(1, 33, 10, 2, opt=cjar(4, 4, masked="multiply"), memory_kv=True, memory=3, dtype="bf16"),
    },
    ("aft-gated", "aft", "gated"): {
        "f16": case(1, 33, 15, 3, dtype="f16"),
    },
    ("aft-gated-matrix", "aft", "gated-matrix"): {
        "bf16": case(2, 33, 24, 2, opt=causal(), dtype="bf16"),
    },
    ("aft-full", "aft", "full"): {
        "f16": case(2, 33, 24, 2, T=40, dtype="f16"),
        "bf16": case(1, 33, 15, 3, T=40, rank=4, dtype="bf16"),
    },
    ("aft-local", "aft", "local"): {
        "bf16": case(2, 33, 24, 2, opt={"local": 4}, dtype="bf16"),
    },
    ("aft-simple", "aft", "simple"): {
        "f16": case(2, 33, 10, 2, [33, 7], True, dtype="f16"),
    },
    ("aft-conv", "aft", "conv"): {
        "bf16": case(2, 33, 24, 2, kernel=5, reparam=True, dtype="bf16"),
    },
}


def all_cases():
    """(group, name, spec) of every case; a spec's seed follows its place."""
    seed = 100
    for (group, variant, mode), cases in [*GROUPS.items(), *STORED.items()]:
        for name, spec in cases.items():
            seed += 1
            spec = {"variant": variant, **({"mode": mode} if mode else {}), "seed": seed, "grad": False, **spec}
            yield group, name, spec
