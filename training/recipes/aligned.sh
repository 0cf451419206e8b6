#!/usr/bin/env bash
# Aligns an encoder with two teachers, and trains it to rank as they do. On two cores of an AMD EPYC the steps take an hour, half of it
# for the 250 of ranked.toml, and vectors of the teachers and hard negatives about as long. The same command resumes what was stopped.
#
#   QUARRY_DATA=DATA QUARRY_MPNET=MPNET training/recipes/aligned.sh RUNS
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

[[ -d $QUARRY_RUNS/docstrings ]] || python -m bench collection docstrings --out "$QUARRY_RUNS/docstrings"
quarry train "$recipes/aligned.toml" "$QUARRY_RUNS/aligned"
if [[ ! -d $QUARRY_RUNS/ranked ]]; then # the teachers' vectors are of the same texts
    mkdir -p "$QUARRY_RUNS/ranked.new/teachers"
    cp "$recipes/ranked.toml" "$QUARRY_RUNS/ranked.new/recipe.toml"
    for number in 0 1; do ln -s "$QUARRY_RUNS/aligned/teachers/$number" "$QUARRY_RUNS/ranked.new/teachers/$number"; done
    mv "$QUARRY_RUNS/ranked.new" "$QUARRY_RUNS/ranked"
fi
quarry train "$recipes/ranked.toml" "$QUARRY_RUNS/ranked"
[[ -d $QUARRY_RUNS/bundle ]] || quarry export "$QUARRY_RUNS/ranked/final" "$QUARRY_RUNS/bundle" --name quarry-minilm-l6-aligned
