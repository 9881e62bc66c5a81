#!/usr/bin/env python3
"""Install clattn, and use it as a user's build would: pkg-config, CMake, Meson subproject. Prints TAP.

  test_install.py TOP BUILD FORWARD FLAGS COMPILER...

BUILD is a built folder, FORWARD its examples/forward, FLAGS more for the compiler ("-fsanitize=address", or ""). Each way
compiles examples/forward.c and runs it; what it prints must be what FORWARD prints.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP, BUILD, FORWARD = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
FLAGS, COMPILER = sys.argv[4].split(), sys.argv[5:]
SOURCE = TOP / "examples/forward.c"


class Failure(Exception):
    pass


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def require(good, sentence):
    if not good:
        raise Failure(sentence)


def installed(folder):
    """Install under folder; gives the prefix. The library's and pkg-config's folders are found in it."""
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder)
    found = sorted(folder.rglob("clattn.pc"))
    require(len(found) == 1, f"{len(found)} files clattn.pc were installed")
    text = found[0].read_text()
    prefix = re.search(r"^prefix=(.*)$", text, re.M).group(1)
    # Where DESTDIR is not the system's root, only the prefix differs.
    found[0].write_text(text.replace(f"prefix={prefix}", f"prefix={folder}{prefix}", 1))
    return pathlib.Path(f"{folder}{prefix}"), found[0].parent, text


def check_tree(prefix, text):
    names = {str(p.relative_to(prefix)) for p in prefix.rglob("*")}
    for wanted in ("bin/clattn", "include/clattn/clattn.h", "include/clattn/variants.h", "include/clattn/tensor.h"):
        require(wanted in names, f"{wanted} was not installed")
    libraries = {pathlib.Path(n).name for n in names if "libclattn" in n}
    require({"libclattn.so", "libclattn.so.0"} <= libraries, f"no libclattn.so with its version among {libraries}")
    require(not any("internal" in n for n in libraries), f"the internal library was installed: {libraries}")
    for name in names:
        if name.startswith("include/"):
            require(name == "include/clattn" or pathlib.Path(name).parent.name == "clattn", f"{name} is out of place")
    require(re.search(r"^Requires:.*OpenCL", text, re.M), "clattn.pc does not require OpenCL")
    require(re.search(r"^Requires.private:.*clblast", text, re.M), "clattn.pc does not require clblast privately")


def check_answer(program, library_folder):
    folders = [str(library_folder)] if library_folder else []
    env = dict(os.environ, LD_LIBRARY_PATH=":".join(folders + [os.environ["LD_LIBRARY_PATH"]]))
    require(run(program, env=env) == WANTED, f"{program} prints something else than {FORWARD}")


def by_pkg_config(folder, prefix, pc_folder):
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc_folder))
    flags = run("pkg-config", "--cflags", "--libs", "clattn", env=env).split()
    require("-lclblast" not in flags, f"pkg-config gives private libraries to users: {flags}")
    run(*COMPILER, *FLAGS, SOURCE, *flags, "-o", folder / "forward")
    check_answer(folder / "forward", pc_folder.parent)


def by_cmake(folder, prefix, pc_folder):
    project = folder / "cmake"
    project.mkdir()
    shutil.copy(SOURCE, project)
    (project / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.10)
project(user C)
find_package(clattn 0.1 REQUIRED CONFIG)
add_executable(forward forward.c)
target_link_libraries(forward PRIVATE clattn::clattn)
""")
    run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={shutil.which(COMPILER[-1])}", f"-DCMAKE_C_FLAGS={' '.join(FLAGS)}")
    run("cmake", "--build", project / "build")
    check_answer(project / "build/forward", pc_folder.parent)
    text = (project / "CMakeLists.txt").read_text()
    for version in ("0.2", "1", "0.1.9"):
        (project / "CMakeLists.txt").write_text(text.replace("clattn 0.1", f"clattn {version}"))
        done = subprocess.run(["cmake", "-S", project, "-B", project / f"build-{version}",
                               f"-DCMAKE_PREFIX_PATH={prefix}"], capture_output=True)
        require(done.returncode, f"find_package took this version for {version}")


def by_subproject(folder, prefix, pc_folder):
    project = folder / "meson"
    (project / "subprojects").mkdir(parents=True)
    shutil.copy(SOURCE, project)
    (project / "subprojects/clattn").symlink_to(TOP, target_is_directory=True)
    (project / "meson.build").write_text("""project('user', 'c', default_options: 'c_std=c11')
clattn = dependency('clattn', fallback: 'clattn',
                    default_options: ['tests=false', 'examples=false', 'variants=dense'])
executable('forward', 'forward.c', dependencies: clattn)
""")
    run("meson", "setup", project / "build", project, "-Doptimization=0", "-Dwrap_mode=nodownload",
        "--force-fallback-for=clattn", env=dict(os.environ, CC=" ".join(COMPILER)))
    run("ninja", "-C", project / "build", "forward")
    check_answer(project / "build/forward", None)


def without_build():
    """Meson lets tests find the build's library first; what is tested here must find its own."""
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    os.environ["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p and BUILD not in pathlib.Path(p).resolve().parents)


def main():
    global WANTED
    without_build()
    number = failed = 0
    with tempfile.TemporaryDirectory(prefix="clattn-install-") as name:
        folder = pathlib.Path(name)
        WANTED = run(FORWARD)
        prefix, pc_folder, text = installed(folder)
        for title, tool, check in (("what is installed", None, lambda *_: check_tree(prefix, text)),
                                   ("pkg-config", "pkg-config", by_pkg_config), ("CMake", "cmake", by_cmake),
                                   ("Meson subproject", "meson", by_subproject)):
            number += 1
            if tool and not shutil.which(tool):
                print("ok", number, "-", title, "# SKIP no", tool)
                continue
            try:
                check(folder, prefix, pc_folder)
                print("ok", number, "-", title, flush=True)
            except Failure as failure:
                failed += 1
                print("not ok", number, "-", title, flush=True)
                print("\n".join("# " + line for line in str(failure).splitlines()[-30:]))
    print(f"1..{number}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
