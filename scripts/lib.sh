# Shared by the scripts: folders, and the packages that clattn needs. Sourced, not run.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # the scripts that source this use it
build=$top/build

packages=(gcc clang libc6-dev python3 meson ninja-build pkg-config check libjansson-dev libxxhash-dev libclblast-dev
    ocl-icd-opencl-dev opencl-c-headers pocl-opencl-icd oclgrind clinfo)

say() {
    printf '%s\n' "$*" >&2
}

# The packages of the list that are not installed, one a line.
missing_packages() {
    local name
    for name in "${packages[@]}"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$name"
    done
}

other_systems() {
    say 'This system has no apt-get. Install, under your own names:'
    say '  Fedora  dnf install gcc clang python3 meson ninja-build pkgconf check-devel jansson-devel xxhash-devel' \
        'clblast-devel ocl-icd-devel opencl-headers pocl clinfo'
    say '  Arch    pacman -S gcc clang python meson ninja pkgconf check jansson xxhash clblast ocl-icd' \
        'opencl-headers pocl clinfo'
    say '  macOS   brew install meson ninja pkg-config check jansson xxhash clblast opencl-headers' \
        'opencl-icd-loader pocl clinfo'
}

# Is all that a build needs here? For systems whose packages we do not know by name.
tools_present() {
    local tool module
    for tool in meson ninja pkg-config python3; do
        command -v "$tool" >/dev/null || return 1
    done
    command -v cc >/dev/null || command -v gcc >/dev/null || return 1
    for module in OpenCL clblast jansson libxxhash check; do
        pkg-config --exists "$module" || return 1
    done
}

# Run as root: directly, or through sudo after asking (no question without a terminal).
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
        return
    fi
    if ! command -v sudo >/dev/null; then
        say "Root or sudo is needed for: $*"
        return 1
    fi
    if [ -t 0 ] && [ "${CI:-}" != true ] && [ -z "${allowed:-}" ]; then
        read -r -p "Run with sudo: $*? [Y/n] " answer
        case $answer in [nN]*) return 1 ;; esac
        allowed=yes
    fi
    sudo "$@"
}

install_packages() {
    if ! command -v apt-get >/dev/null; then
        tools_present && return
        other_systems
        return 1
    fi
    local missing
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} = 0 ] && return
    say "Installing: ${missing[*]}"
    as_root apt-get update -q >&2 &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
}

# Configure a build folder once, and build. $1 folder, the rest goes to meson setup.
build_in() {
    local folder=$1
    shift
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "$top" "$@" >&2 || return
    ninja -C "$folder" >&2
}
