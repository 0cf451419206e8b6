#!/usr/bin/env bash
# Tries Quarry on ARM64 Linux, emulated by QEMU: the smoke test, then the tests of what depends on a processor.
#   tests/platforms/arm64.sh [--smoke]
# QEMU and an ARM64 Python come from Debian's archive, wheels from the package index; they are kept in a folder outside
# the tree and nothing is installed on this machine. It takes apt-get, dpkg-deb, a Python with pip, and 600 MB.
# PYTHON names the Python, CACHE the folder, DEBIAN the address of the archive, if it is not the one that apt uses.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quarry-platforms}/arm64
suite=trixie version=3.13 # its QEMU is version 10; version 7.2 crashes in ONNX Runtime
tests=(tests/golden tests/unit/engine/{scoring,quantization,backends,lexical} tests/unit/formats)

if [[ ! -e $cache/python ]]; then
    debian=${DEBIAN:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)}
    [[ $debian ]] || { echo "apt knows no archive of Debian; name one: DEBIAN=ADDRESS" >&2; exit 1; }
    rm -rf "$cache" && mkdir -p "$cache"/apt/{lists,archives}/partial "$cache"/apt/parts "$cache"/{qemu,root}
    touch "$cache"/apt/status
    echo "deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian $suite main" \
        >"$cache"/apt/sources.list
    cat >"$cache"/apt/apt.conf <<END
Dir::State "$cache/apt"; Dir::State::status "$cache/apt/status"; Dir::Cache "$cache/apt";
Dir::Etc::sourcelist "$cache/apt/sources.list"; Dir::Etc::sourceparts "$cache/apt/parts";
Dir::Etc::preferencesparts "$cache/apt/parts";
APT::Architecture "arm64"; APT::Architectures { "arm64"; "amd64"; }; APT::Install-Recommends "false";
APT::Sandbox::User ""; Acquire::Languages "none";
END
    export APT_CONFIG=$cache/apt/apt.conf
    apt-get -qq update
    apt-get -qq --yes --download-only install python3 libstdc++6
    for package in "$cache"/apt/archives/*.deb; do dpkg-deb -x "$package" "$cache"/root; done
    ln -s usr/lib "$cache"/root/lib
    (cd "$cache"/apt && apt-get -qq download "qemu-user:$(dpkg --print-architecture)")
    dpkg-deb --fsys-tarfile "$cache"/apt/qemu-user_*.deb | tar -x -C "$cache"/qemu ./usr/bin/qemu-aarch64
    rm -r "$cache"/apt
    # Programs that this Python starts by sys.executable are emulated too.
    cat >"$cache"/python.new <<END
#!/bin/sh
export PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$cache/site"
exec "$cache"/qemu/usr/bin/qemu-aarch64 -L "$cache"/root -0 "$cache"/python "$cache"/root/usr/bin/python$version "\$@"
END
    chmod +x "$cache"/python.new
    mv "$cache"/python.new "$cache"/python
fi

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
rm -rf "$cache"/site
"$python" -m pip install --quiet --target "$cache"/site --python-version $version --only-binary :all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    "$wheels"/*.whl hypothesis pytest pytest-timeout pytest-xdist

"$cache"/python tests/platforms/smoke.py
[[ ${1-} == --smoke ]] || "$cache"/python -m pytest -p no:cacheprovider -q --timeout 3000 "${tests[@]}"
