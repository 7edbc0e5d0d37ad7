#!/bin/sh
# Runs an image as locked down as a cluster would, asks it from within (it has no network), and stops it.
#
#   docker build --target cpu --tag trifold:cpu .    or: podman build …, buildah bud --isolation chroot …
#   deploy/image/try.sh trifold:cpu
#
# ENGINE is the container engine (docker), OPTIONS what it needs beside, as --ulimit where the host allows few files.
set -eu
image=${1:?the image}
engine=${ENGINE:-docker}
name=trifold-try-$$
started=$(date +%s)

# It has no network, so nobody can come without a key.
$engine run --detach --name "$name" --env TRIFOLD_ALLOW_ANONYMOUS=true --network none --read-only --tmpfs /tmp:rw,size=1g,mode=1777 --shm-size 512m \
    --cap-drop all --security-opt no-new-privileges --user 10001:10001 ${OPTIONS:-} "$image" >/dev/null
trap '$engine rm --force "$name" >/dev/null' EXIT
until $engine exec "$name" python -m service.healthcheck 2>/dev/null; do
    if [ $(($(date +%s) - started)) -gt 120 ]; then
        $engine logs "$name"
        echo "not healthy within 120 s" >&2
        exit 1
    fi
    sleep 1
done
echo "healthy after $(($(date +%s) - started)) s"

$engine exec "$name" python -c '
import json
from urllib.request import Request, urlopen

for route, body in (
    ("classify", {"model": "sentiment", "input": "A warm, funny film."}),
    ("generate", {"model": "stories", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}),
    ("translate", {"input": "Dan loves ice cream.", "target": "sv"}),
):
    request = Request(f"http://127.0.0.1:8000/{route}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    print(urlopen(request, timeout=60).read().decode())
'
# The folder is root's: were the file system not read-only, this user would get another error.
$engine exec "$name" python -c '
import errno, os, sys
try:
    open("/app/x", "w")
    found = 0
except OSError as error:
    found = error.errno
print(f"uid {os.getuid()}, root file system: {os.strerror(found)}")
sys.exit(found != errno.EROFS)
'
$engine exec "$name" bash -lc 'ray --version && python -c "import ray"'  # as KubeRay calls them
stopping=$(date +%s)
$engine stop --time 60 "$name" >/dev/null
status=$($engine inspect --format '{{.State.ExitCode}}' "$name")
echo "stopped after $(($(date +%s) - stopping)) s with exit status $status"
[ "$status" = 0 ]
