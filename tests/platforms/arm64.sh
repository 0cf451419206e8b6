#!/usr/bin/env bash
# Tries Quarry on ARM64 Linux, emulated by QEMU: the smoke test, then the tests of what depends on a processor.
#   tests/platforms/arm64.sh [--smoke]
# QEMU and an ARM64 Python come from Debian's archive, wheels from the package index; see fetching.sh.
source "$(dirname "${BASH_SOURCE[0]}")/fetching.sh"

if [[ ! -e $cache/python ]]; then
    prepare_apt arm64
    unpack_packages python3 libstdc++6
    (cd "$cache"/apt && apt-get -qq download "qemu-user:$(dpkg --print-architecture)")
    dpkg-deb --fsys-tarfile "$cache"/apt/qemu-user_*.deb | tar -x -C "$cache" ./usr/bin/qemu-aarch64
    rm -r "$cache"/apt
    # Programs that this Python starts by sys.executable are emulated too. Without -cpu QEMU has SME, and products of matrices by
    # the kernels of OpenBLAS for it are not finite now and then.
    cat >"$cache"/python.new <<END
#!/bin/sh
export PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$cache/site"
exec "$cache"/usr/bin/qemu-aarch64 -cpu neoverse-n1 -L "$cache"/root -0 "$cache"/python "$cache"/root/usr/bin/python3.13 "\$@"
END
    chmod +x "$cache"/python.new
    mv "$cache"/python.new "$cache"/python
fi
install_quarry manylinux_2_28_aarch64 manylinux_2_17_aarch64 manylinux2014_aarch64 --

"$cache"/python tests/platforms/smoke.py
[[ ${1-} == --smoke ]] || "$cache"/python -m pytest -q -p no:cacheprovider --timeout 3000 -o faulthandler_timeout=3600 \
    tests/golden tests/unit/engine/{scoring,quantization,backends,lexical} tests/unit/formats
