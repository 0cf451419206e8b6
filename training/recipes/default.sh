#!/usr/bin/env bash
# Makes the default encoder in four runs, about two and a half hours on two CPU cores with bfloat16 (AMX): an encoder for
# passages, a larger one as its teacher, the encoder again, by the rankings of the teacher, and a layer behind it that
# whitens its vectors in part. The same command resumes what was stopped.
#
#   QUARRY_DATA=DATA QUARRY_MPNET=MPNET training/recipes/default.sh RUNS
#
# DATA is the folder of the data sets (training/DATA.md), MPNET that of the checkpoint of all-mpnet-base-v2, RUNS a folder to
# make: the encoder is RUNS/bundle.
set -euo pipefail
unset CDPATH

: "${1:?name a folder for the runs}" "${QUARRY_DATA:?names the folder of the data sets}"
: "${QUARRY_MPNET:?names the folder of all-mpnet-base-v2}"
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
QUARRY_RUNS=$(cd "$1" && pwd)
export QUARRY_RUNS

quarry train "$recipes/base.toml" "$QUARRY_RUNS/base"
quarry train "$recipes/teacher.toml" "$QUARRY_RUNS/teacher"
quarry train "$recipes/default.toml" "$QUARRY_RUNS/default"
quarry train "$recipes/whitened.toml" "$QUARRY_RUNS/whitened"
[[ -d $QUARRY_RUNS/bundle ]] || quarry export "$QUARRY_RUNS/whitened/final" "$QUARRY_RUNS/bundle" --name quarry-minilm-l6
