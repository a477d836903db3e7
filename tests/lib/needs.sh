# Installs on Debian and Ubuntu what a build needs besides Rust, if it is missing: a C compiler and its headers, for
# zstd, ring, BLAKE3 and LZ4, and for linking. Sourced by serve.sh and quick.sh.

PATH=$PATH:$HOME/.cargo/bin

compiles_c() { printf 'int main(void) { return 0; }\n' | cc -x c -o /dev/null - 2>/dev/null; }

need_build_tools() {
    if ! command -v cargo >/dev/null; then
        echo "$0: Rust 1.95 or newer is missing; see https://rustup.rs" >&2
        exit 1
    fi
    compiles_c && return
    if ! command -v apt-get >/dev/null; then
        echo "$0: a C compiler is missing: install gcc (or clang) and the C library's headers" >&2
        exit 1
    fi
    local as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "$0: installing a C compiler (gcc, libc6-dev)" >&2
    $as_root apt-get -q update >&2
    $as_root apt-get -q -y install --no-install-recommends gcc libc6-dev >&2
    compiles_c || {
        echo "$0: the C compiler does not work" >&2
        exit 1
    }
}
