#!/bin/sh
# Compares the images that ours begin with, and those of docker-compose.yml, with their registries: each must be there
# under its digest, for amd64 and arm64. Says which tags name something newer, and with --renew writes their digests.
#
#   deploy/image/bases.sh [--renew]        needs docker with buildx
set -eu
cd "$(dirname "$0")/../.."
files="Dockerfile docker-compose.yml"
status=0

# shellcheck disable=SC2086  # several files
for pinned in $(grep -ohE '[a-z0-9./-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}' $files | sort -u); do
    tag=${pinned%@*}
    now=$(docker buildx imagetools inspect "$tag" --format '{{.Manifest.Digest}}')
    if [ "$tag@$now" != "$pinned" ]; then
        echo "$tag is $now now"
        if [ "${1:-}" = --renew ]; then
            sed -i "s|$pinned|$tag@$now|" $files
            pinned=$tag@$now
        fi
    fi
    platforms=$(docker buildx imagetools inspect "$pinned" --format '{{json .Manifest}}' | tr -d ' \n')
    for architecture in amd64 arm64; do
        case $platforms in
        *"\"architecture\":\"$architecture\""*) ;;
        *) echo "$pinned is not for $architecture" >&2 && status=1 ;;
        esac
    done
done
exit $status
