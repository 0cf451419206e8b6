#!/usr/bin/env bash
# Prepares a checkout for a machine with a GPU and without a network. Collects the wheels that it may lack in .whl (for
# CPython 3.12 on x86-64), which `python -m bench gpu --wheels .whl` installs for its run, and prints the total of
# tracked files and wheels, without the folder `bundles`, which no part needs: remove it before the files are carried,
# and bring it back with `git checkout`. Fails above 62 MiB.
# PyTorch for CUDA, Triton, transformers, onnx, onnxruntime, tokenizers, safetensors, hypothesis, pytest with
# pytest-timeout and pytest-xdist are expected there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

packages=(faiss-cpu msgpack PyStemmer simsimd tqdm webencodings xxhash zstandard)
left_out=bundles
most=$((62 << 20))

platforms=()
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014 manylinux_2_5 manylinux1; do
    platforms+=(--platform "${tag}_x86_64")
done
rm -rf .whl
"${PYTHON:-python3}" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version 3.12 \
    "${platforms[@]}" --dest .whl "${packages[@]}"

tracked=$(git ls-files -z -- ":!$left_out" | xargs -0 stat --format %s -- | awk '{ n += $1 } END { print n }')
wheels=$(stat --format %s .whl/*.whl | awk '{ n += $1 } END { print n }')
total=$((tracked + wheels))
printf 'tracked files %d, wheels %d, together %d bytes (%.1f MiB of 62)\n' \
    "$tracked" "$wheels" "$total" "$(awk "BEGIN { print $total / 1048576 }")"
((total <= most)) || { echo "too large to carry" >&2; exit 1; }
cat <<END
then: rm -r $left_out; afterwards: git checkout -- $left_out
there: make .links; PYTHONPATH=.links python3 -m bench gpu --seconds 500 --wheels .whl --commit $(git rev-parse --short HEAD) --out gpu.jsonl
END
