# What arm64.sh and windows.sh share: fetching into $cache, a folder outside the tree. Nothing is installed on this machine.
# It takes apt-get, dpkg-deb, a Python with pip, and 1 GB. PYTHON names the Python, CACHE the folder, DEBIAN the address of
# an archive of Debian, if it is not the one that apt uses.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}
cache=$(realpath -m "${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/quarry-platforms}/$(basename "$0" .sh)")

# Of trixie: QEMU 10 and Wine 10. QEMU 7.2, of the release before, crashes in ONNX Runtime.
prepare_apt() { # architecture
    local debian=${DEBIAN:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)}
    [[ $debian ]] || { echo "apt knows no archive of Debian; name one: DEBIAN=ADDRESS" >&2; exit 1; }
    rm -rf "$cache" && mkdir -p "$cache"/apt/{lists,archives}/partial "$cache"/apt/parts "$cache"/root
    touch "$cache"/apt/status
    echo "deb [arch=amd64,$1 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian trixie main" \
        >"$cache"/apt/sources.list
    cat >"$cache"/apt/apt.conf <<END
Dir::State "$cache/apt"; Dir::State::status "$cache/apt/status"; Dir::Cache "$cache/apt";
Dir::Etc::sourcelist "$cache/apt/sources.list"; Dir::Etc::sourceparts "$cache/apt/parts";
Dir::Etc::preferencesparts "$cache/apt/parts";
APT::Architecture "$1"; APT::Architectures { "$1"; "amd64"; }; APT::Install-Recommends "false";
APT::Sandbox::User ""; Acquire::Languages "none";
END
    export APT_CONFIG=$cache/apt/apt.conf
    apt-get -qq update
}

unpack_packages() { # names: unpacks them and what they depend on into $cache/root
    local package
    apt-get -qq --yes --download-only install "$@"
    for package in "$cache"/apt/archives/*.deb; do dpkg-deb -x "$package" "$cache"/root; done
    for package in lib lib64; do
        [[ -e $cache/root/$package || ! -e $cache/root/usr/$package ]] || ln -s "usr/$package" "$cache/root/$package"
    done
}

install_quarry() { # platforms..., -- more packages...: what is in the tree now, and pytest, into $cache/site
    local wheels platforms=()
    while [[ $1 != -- ]]; do platforms+=(--platform "$1") && shift; done
    wheels=$(mktemp -d)
    # Nothing is written into the tree, where tests would find it.
    printf '[build]\nbuild_base = %s/build\n[egg_info]\negg_base = %s\n' "$wheels" "$wheels" >"$wheels"/settings
    DIST_EXTRA_CONFIG=$wheels/settings "$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
    rm -rf "$cache"/site
    "$python" -m pip install --quiet --no-compile --target "$cache"/site --python-version 3.13 --only-binary :all: \
        "${platforms[@]}" "$(echo "$wheels"/*.whl)[export]" hypothesis pytest pytest-timeout pytest-xdist "${@:2}"
    rm -rf "$wheels"
}
