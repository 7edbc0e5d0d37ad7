#!/bin/sh
# Renews the packages of the images, by version and hash; needs uv. One lock serves amd64 and arm64: it is made for the
# one, must come out the same for the other, and every package in it must have a wheel for both.
#
#   deploy/image/lock.sh [--upgrade]
set -eu
cd "$(dirname "$0")/../.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

for device in cpu gpu; do
    lock=deploy/image/requirements-$device.txt
    [ $device = cpu ] && options= || options="--extra gpu --no-emit-package onnxruntime"
    for machine in x86_64 aarch64; do
        cp "$lock" "$made/$machine" # whose versions are kept, unless --upgrade is given
        # shellcheck disable=SC2086  # options are several words, or none
        uv pip compile pyproject.toml --extra otel --extra stores $options --generate-hashes --quiet "$@" \
            --python-version 3.12 --python-platform $machine-manylinux_2_36 \
            --custom-compile-command "deploy/image/lock.sh" --output-file "$made/$machine" >/dev/null
        uv pip install --dry-run --quiet --python-version 3.12 --python-platform $machine-manylinux_2_36 \
            --only-binary :all: --require-hashes --no-deps --target "$made/none" --requirement "$made/$machine"
    done
    cmp "$made/x86_64" "$made/aarch64"
    cp "$made/x86_64" "$lock"
done
