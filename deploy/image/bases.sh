#!/bin/sh
# Compares the images that ours begin with, and those that are run beside it, with their registries: each must be there
# for amd64 and arm64. Says whose tag names something else than the digest here, or has no digest here. With --renew it
# writes the one that the tag names now; with --strict it fails where that is another.
#
#   deploy/image/bases.sh [--renew | --strict]        needs docker with buildx
set -eu
cd "$(dirname "$0")/../.."
files="Dockerfile docker-compose.yml deploy/kubernetes/components/ha/redis.yaml"
status=0

# shellcheck disable=SC2086  # several files
for named in $(grep -ohE 'docker\.io/[a-z0-9./-]+:[A-Za-z0-9._-]+(@sha256:[0-9a-f]{64})?' $files | sort -u); do
    tag=${named%@*}
    now=$(docker buildx imagetools inspect "$tag" --format '{{.Manifest.Digest}}')
    if [ "$tag@$now" != "$named" ]; then
        if [ "$tag" = "$named" ]; then
            is="has no digest here; it is"
        else
            is=is
            [ "${1:-}" != --strict ] || status=1
        fi
        echo "$tag $is $now now"
        if [ "${1:-}" = --renew ]; then
            sed -i -E "s#$named([^@A-Za-z0-9._-]|\$)#$tag@$now\1#" $files # and no longer tag that begins so
            named=$tag@$now
        fi
    fi
    platforms=$(docker buildx imagetools inspect "$named" --format '{{json .Manifest}}' | tr -d ' \n')
    for architecture in amd64 arm64; do
        case $platforms in
        *"\"architecture\":\"$architecture\""*) ;;
        *) echo "$named is not for $architecture" >&2 && status=1 ;;
        esac
    done
done
exit $status
