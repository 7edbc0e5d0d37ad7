#!/bin/sh
# Makes a stand-in for docker.io/library/python:3.12.12-slim-bookworm where no registry can be reached: Debian from its
# mirror, and a CPython 3.12 of this machine in /usr/local. Its size says nothing about the real one's. As it has not the
# digest of the real one, builds take --build-arg PYTHON=docker.io/library/python:3.12.12-slim-bookworm
#
#   deploy/image/base_without_registry.sh /path/to/python3.12/prefix      needs root, mmdebstrap and buildah
set -eu
prefix=${1:?the prefix of a CPython 3.12, as /usr/local or ~/.pyenv/versions/3.12.1}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mmdebstrap --variant=minbase --mode=root \
    --include=ca-certificates,libbz2-1.0,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,zlib1g \
    bookworm "$root"
cp -a "$prefix/bin" "$prefix/lib" "$root/usr/local/"
rm -rf "$root/usr/local/lib/python3.12/site-packages" "$root/usr/local/lib/python3.12/test"
mkdir "$root/usr/local/lib/python3.12/site-packages"
ln -sf python3.12 "$root/usr/local/bin/python3"
ln -sf python3.12 "$root/usr/local/bin/python"
chroot "$root" ldconfig

container=$(buildah from scratch)
buildah copy --quiet "$container" "$root" /
buildah config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin "$container"
buildah commit --rm --quiet "$container" docker.io/library/python:3.12.12-slim-bookworm
