#!/usr/bin/env python3
"""The rules of the house, checked on the tree: who may include whom, what the library exports, how long files and
functions are, what a kernel file begins with, which files a family has.

  test_house.py TOP LIBRARY GENERATED_INCLUDE FAMILIES     prints TAP

TOP is the source folder, GENERATED_INCLUDE the build's folder of <clattn/variants.h>, FAMILIES a comma-separated list.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MAX_LINES, MAX_FUNCTION = 450, 120

FOLDERS = ["base", "core", "runtime", "gemm", "variant", "layer", "api", "cli"]
MAY_INCLUDE = {  # src folder -> src folders, besides its own
    "base": [], "core": ["base"], "runtime": ["base"], "gemm": ["base", "core", "runtime"],
    "variant": ["base", "core", "gemm", "runtime"], "layer": ["base", "core", "gemm", "variant"],
    "api": ["base", "core", "runtime", "gemm", "variant", "layer"], "cli": [],
}
KNOW_OPENCL = {"runtime", "gemm", "api"}
EXPECTED = ["include/clattn/{}.h", "src/variant/{}.c", "src/layer/{}.c", "cl/{}.cl", "tests/variant/{}.c",
            "bench/shapes/{}.txt"]

# What only libraries outside may be asked for, by folder. Everything else in <> must be C or POSIX.
OUTSIDE = {"xxhash.h": {"base"}, "clblast_c.h": {"gemm"}, "jansson.h": {"cli", "core"}, "CL/cl.h": KNOW_OPENCL}
SYSTEM = """assert ctype errno fcntl float getopt inttypes limits math pthread signal stdarg stdatomic stdbool stddef
stdint stdio stdlib string time unistd sys/stat sys/types sys/wait dirent""".split()


class Tap:
    def __init__(self):
        self.number = self.failed = 0

    def check(self, name, problems):
        """problems: sentences; none is success."""
        self.number += 1
        problems = list(problems)
        self.failed += bool(problems)
        print("not ok" if problems else "ok", self.number, "-", name)
        for problem in problems[:40]:
            print("#", problem)

    def skip(self, name, reason):
        self.number += 1
        print("ok", self.number, "-", name, "# SKIP", reason)


def sources(top, folders, endings):
    for folder in folders:
        for path in sorted((top / folder).rglob("*")):
            if path.suffix in endings and path.is_file():
                yield path


def includes(path):
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)[>"]', path.read_text("utf-8"), re.M)


# ---- includes point one way ----

def outside_problem(where, folder, name):
    if name in OUTSIDE:
        return None if folder in OUTSIDE[name] else f"{where} includes <{name}>"
    return None if name.removesuffix(".h") in SYSTEM else f"{where} includes <{name}>, which is not C or POSIX"


def public_problem(where, folder, name):
    if folder == "base" and name not in ("clattn/status.h", "clattn/version.h", "clattn/export.h"):
        return f"{where} includes <{name}>: base knows no OpenCL"
    return None


def library_includes(top):
    for folder in FOLDERS:
        allowed = {folder, *MAY_INCLUDE[folder]}
        for path in sources(top, [f"src/{folder}"], {".c", ".h"}):
            where = path.relative_to(top)
            for kind, name in includes(path):
                first = name.split("/")[0]
                if kind == '"':
                    if name != "variants.inc" and (first not in allowed or not (top / "src" / name).is_file()):
                        yield f'{where} includes "{name}"'
                elif first == "clattn":
                    yield public_problem(where, folder, name)
                else:
                    yield outside_problem(where, folder, name)


def user_includes(top):
    """Examples and benchmarks: public headers, their own files, C, and jansson."""
    for path in sources(top, ["examples", "bench"], {".c", ".h"}):
        where = path.relative_to(top)
        for kind, name in includes(path):
            if kind == '"':
                if not (path.parent / name).is_file() and not name.startswith("cli/") and not (top / name).is_file():
                    yield f'{where} includes "{name}"'
            elif name.split("/")[0] not in ("clattn", "jansson.h"):
                yield outside_problem(where, "examples", name)


def public_includes(top):
    for path in sources(top, ["include"], {".h"}):
        for kind, name in includes(path):
            if kind == '"' or (name.split("/")[0] not in ("clattn", "CL") and name.removesuffix(".h") not in SYSTEM):
                yield f"{path.relative_to(top)} includes {name}"


# ---- what the library exports ----

def declared(top, generated, families):
    """Functions that the public headers declare."""
    text = "#include <clattn/clattn.h>\n"
    command = [os.environ.get("CC", "cc"), "-E", "-P", f"-I{top}/include", f"-I{generated}", "-x", "c", "-"]
    out = subprocess.run(command, input=text, capture_output=True, text=True).stdout
    return set(re.findall(r"\b(clattn_\w+)\s*\(", out))


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines()}


def symbol_problems(names, public):
    yield from (f"{name} is exported, but no public header declares it" for name in sorted(names - public))
    yield from (f"{name} is declared, but not exported" for name in sorted(public - names))
    yield from (f"{name} is internal, but exported" for name in sorted(names) if name.startswith("clattn__"))


# ---- headers stand alone ----

def header_problems(top, generated, compiler, language, standard, skip):
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted((top / "include/clattn").glob("*.h")):
            if path.name in skip:
                continue
            source = pathlib.Path(folder, "alone." + ("c" if language == "c" else "cc"))
            source.write_text(f"#include <clattn/{path.name}>\n#include <clattn/{path.name}>\n"
                              "int alone;\n")
            command = [compiler, "-fsyntax-only", f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                       f"-I{top}/include", f"-I{generated}", str(source)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                lines = run.stderr.strip().splitlines()
                yield f"{path.name}: " + next((line for line in lines if "error" in line), lines[0])


# ---- sizes ----

def long_files(top):
    for path in sources(top, ["include", "src", "cl", "tests", "bench", "examples", "scripts"],
                        {".c", ".h", ".cl", ".py", ".sh", ""}):
        if path.suffix == "" and not path.read_bytes().startswith(b"#!"):
            continue
        lines = path.read_text("utf-8").count("\n")
        if lines > MAX_LINES:
            yield f"{path.relative_to(top)} has {lines} lines, more than {MAX_LINES}"


def long_functions(top):
    """By the formatter's habit: a function's body ends with a brace in the first column."""
    for path in sources(top, ["src", "cl", "tests", "bench", "examples"], {".c", ".h", ".cl"}):
        start = None
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if re.match(r"[A-Za-z_ ].*\) \{$", line) and not re.match(r" *(if|for|while|switch|else)\b", line):
                start = start or number
            if line.startswith("}"):
                if start and number - start > MAX_FUNCTION:
                    yield f"{path.relative_to(top)}:{start}: a function of {number - start} lines, more than {MAX_FUNCTION}"
                start = None


# ---- kernels ----

def asks_for_defines(top, path):
    """An #error in it, or in what it includes beside the headers that every kernel has."""
    common = {"types.h", "port.h", "tile.h", "epilogue.h"}
    return "#error" in path.read_text("utf-8") or any(
        asks_for_defines(top, top / "cl/include" / name) for _, name in includes(path) if name not in common)


def kernel_problems(top):
    for path in sources(top, ["cl"], {".cl"}):
        text, where = path.read_text("utf-8"), path.relative_to(top)
        head = re.match(r"(//.*\n)*", text).group(0)
        if head.count("\n") < 3 or not re.search(r"[Dd]efine|legal|\b[A-Z]+ *(=|>=|of) *\d", head):
            yield f"{where}: its head must say who owns which rows, the local memory and the defines"
        if not asks_for_defines(top, path):
            yield f"{where}: no #error for a missing define"
        code = re.sub(r"//.*|/\*[\s\S]*?\*/|^\s*#.*", "", text, flags=re.M)
        sized = len(re.findall(r"reqd_work_group_size", code))
        if sized < len(re.findall(r"\b__kernel\b", code)):
            yield f"{where}: a kernel without reqd_work_group_size"
        for name in re.findall(r"(?:__kernel\b[^;{}]*?\bvoid|^KERNEL)\s+(\w+)\(", code, re.M):
            if not name.startswith(path.stem.split("_")[0] + "_"):
                yield f"{where}: kernel {name} is not named after its family"
        if re.search(r"\batomic_|\batom_", code):
            yield f"{where}: an atomic: the same inputs must give the same bits"


# ---- the tree ----

def unwanted_words(top):
    """Notes to self, and paths of one machine."""
    words = re.compile("|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", r"(?<![\w.])/wo" + "rk/", "/ro" + "ot/",
                                 r"/home/(?!me\b)\w"]))
    folders = ["include", "src", "cl", "tests", "bench", "examples", "docs", "scripts", ".ci"]
    paths = sources(top, folders, {".c", ".h", ".cl", ".py", ".sh", ".md", ".txt", ".build", ".in", ""})
    for path in [*paths, *top.glob("*.md"), *top.glob("meson*")]:
        relative = path.relative_to(top)
        if path.suffix == "" and not path.read_bytes().startswith(b"#!"):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if words.search(line):
                yield f"{relative}:{number}: {line.strip()[:80]}"


def missing_files(top, families, pattern):
    yield from (f"{family} has no {pattern.format(family)}" for family in families
                if not (top / pattern.format(family)).is_file())


def main():
    top, library, generated = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
    families = sys.argv[4].split(",")
    choices = re.search(r"choices: \[(.*?)\]", (top / "meson_options.txt").read_text()).group(1)
    all_families = re.findall(r"\w+", choices)
    tap = Tap()
    tap.check("folders include one way", filter(None, library_includes(top)))
    tap.check("examples and benchmarks include public headers", filter(None, user_includes(top)))
    tap.check("public headers include public headers", public_includes(top))
    names, public = exported(library), declared(top, generated, families)
    tap.check("the library exports what the headers declare", symbol_problems(names, public))
    not_built = {f"{family}.h" for family in all_families if family not in families}
    for compiler, language, standard in (("gcc", "c", "c11"), ("clang", "c", "c11"), ("g++", "c++", "c++17"),
                                         ("clang++", "c++", "c++17")):
        name = f"each public header alone, {compiler} -std={standard}"
        if shutil.which(compiler):
            tap.check(name, header_problems(top, generated, compiler, language, standard, not_built))
        else:
            tap.skip(name, f"no {compiler}")
    tap.check(f"no file above {MAX_LINES} lines", long_files(top))
    tap.check(f"no function above {MAX_FUNCTION} lines", long_functions(top))
    tap.check("kernel files", kernel_problems(top))
    tap.check("no notes to self, no machine's paths", unwanted_words(top))
    for pattern in EXPECTED:
        problems = list(missing_files(top, all_families, pattern))
        tap.check(f"each family has {pattern.format('<family>')}", problems)
    print(f"1..{tap.number}")
    return tap.failed != 0


if __name__ == "__main__":
    sys.exit(main())
