"""`python -m service.ingress FOLDER`: the rules by which HAProxy sends a request straight to its model's replicas.

Ray Serve writes HAProxy's configuration. There the path alone decides: `/models/<name>/…` goes to that model's
replicas, and all else to the gateway, which asks the same replicas through a handle. That took twice as long. The rules
made here read `model` out of the body, or take the path's default, and set the path to `/models/<name>/…`. If the model
shares a replica they go on to `/replicas/<replica>/models/<name>/…`. They stand first in Ray's own frontend, where
`haproxy.sh` puts them whenever Ray starts HAProxy. Ray's rules then do what they always do.

This costs no second hop, changes no port, and leaves Ray's names, health checks, reloads and counts alone. A frontend
of our own in a second file could do the same, but would need another port for Ray's, open to all on a cluster, and a
copy of its rules. Where Ray's file does not look as expected the rules are left out, and the gateway answers.

A name goes into the path only as it stands in the map of models, and only while its replicas are there. HAProxy reads
JSON less strictly than Python. So whatever the two could understand differently goes to the gateway: `model` twice, not
at the top, or spelt with escapes; or no `model` in a body that HAProxy does not see whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from model.package import Manifest, PackageError
from service.api.cors import KNOWN_FOR_S, METHODS, READABLE
from service.errors import (
    BadRequest,
    DeadlineExceeded,
    Forbidden,
    MethodNotAllowed,
    NotReady,
    RequestTimeout,
    ServiceError,
)
from service.replica_groups import names_by_alias
from service.routing import OF_BODY, ROUTES, first_fitting, fitting
from service.settings import Settings
from service.settings_errors import SettingsError
from service.timeouts import Timeouts

AUTO = "auto"  # the source of a request that leaves it to the service, or says nothing of it
# A replica whose node has lost its power says nothing, and a request may rightly take two minutes. TCP's own probes
# tell the two apart within about three seconds: a replica that is slow still answers them, by its kernel. They are not
# sent while a request waits for its own acknowledgement, whose time is bounded by SERVER for each server.
LIVENESS = """\
    timeout connect 1s
    option srvtcpka
    srvtcpka-idle 1s
    srvtcpka-intvl 1s
    srvtcpka-cnt 2
"""
SERVER = "tcp-ut 3s"  # HAProxy 2.8 takes it from a server's own line alone; `haproxy.sh` has it, too
# A replica that is busy answers a check late, and one that has died not at all: its port refuses, or see above. HAProxy
# would wait for as long as it is to the next check, a quarter of a second once one has failed. So a busy replica would
# be taken for dead for as long as it is busy, and what it is asked go the long way through Ray's own proxy.
CHECKS = """\
    timeout check 20s
"""
# HAProxy would take any connection for HTTP/2 that begins like one. It bounds connections, not the hundred streams that
# each of these may have, every one with buffers of its own for a body that is waited for.
NO_HTTP2 = """\
    option disable-h2-upgrade
"""
# Browsers and pools open connections in advance. One on which nothing has come is closed without an answer to nothing.
NO_UNASKED_ANSWER = """\
    option http-ignore-probes
"""
# A request of which a replica has answered nothing when it dies is sent to another one, once: requests change nothing
# here, and one that kills its replica takes but one more with it. Otherwise HAProxy would hang up in silence on whoever
# was on a connection that had been used before, and answer others with 502.
DEFAULTS = (
    LIVENESS
    + NO_HTTP2
    + NO_UNASKED_ANSWER
    + """\
    retry-on conn-failure empty-response
    retries 1
"""
    + CHECKS
)
MAX_PAIRS = 50_000  # of languages that HAProxy knows; the gateway knows all


def pairs(manifests: list[Manifest]) -> dict[str, str]:
    """Return the model for each pair of languages that a request may name, as `en>sv`, in the models' own spellings.

    Where nobody told the source, only one model may fit: the gateway reads the text to choose among several. What is
    not here is left to the gateway: other spellings, and all if there are too many.
    """
    languages_of = {each.name: each.languages for each in fitting(manifests, "translate") if each.languages is not None}
    sources = {name for languages in languages_of.values() for name in languages.sources}
    targets = {name for languages in languages_of.values() for name in languages.targets}
    if len(languages_of) < 2 or len(sources) * len(targets) > MAX_PAIRS:
        return {}
    known = {model: {name: languages_of[model].known_as(name) for name in sources | targets} for model in languages_of}

    def fit(source: str, target: str) -> list[str]:
        return [
            model
            for model in languages_of
            if languages_of[model].translates(known[model][source], known[model][target])
        ]

    found = {f"{source}>{target}": fit(source, target) for source in sources for target in targets}
    into = {
        f"{AUTO}>{target}": [model for model in languages_of if known[model][target] in languages_of[model].targets]
        for target in targets
    }
    alone = {pair: models for pair, models in into.items() if len(models) == 1}
    return {pair: models[0] for pair, models in (found | alone).items() if models}


def _own_answers(folder: Path) -> str:
    """Return the rules of what HAProxy answers itself, and by which pages of allowed sites may read it."""
    first = {
        "Allow-Methods": f'"{", ".join(METHODS)}"',
        "Allow-Headers": "%[req.fhdr(access-control-request-headers)]",
        "Allow-Private-Network": "true",
        "Max-Age": str(KNOWN_FOR_S),
    }
    said_first = " ".join(f"hdr Access-Control-{name} {value}" for name, value in first.items())
    unless_said = "if is_allowed_site !may_be_read"
    return f"""\
    # Pages of allowed sites may read this, too, and ask first while nothing runs. Their origin is copied from the map.
    http-request set-var(txn.origin) req.fhdr(origin),map_str({folder}/origins.map)
    acl is_allowed_site var(txn.origin) -m found
    acl may_be_read res.hdr(access-control-allow-origin) -m found
    http-after-response set-header Access-Control-Expose-Headers "{", ".join(READABLE)}" {unless_said}
    http-after-response add-header Vary Origin {unless_said}
    http-after-response set-header Access-Control-Allow-Origin %[var(txn.origin)] {unless_said}
    acl asks_first req.hdr(access-control-request-method) -m found
    http-request return status 204 {said_first} if METH_OPTIONS asks_first is_allowed_site
    # What uvicorn does not know it would refuse in plain text.
    errorfile 405 {folder}/405.http
    http-request deny deny_status 405 if !{{ method GET HEAD POST PUT PATCH DELETE OPTIONS TRACE }}
    # Ray's rules would find no application for what has no path.
    errorfile 400 {folder}/400.http
    http-request return status 204 if METH_OPTIONS {{ url -m str * }}
    http-request deny deny_status 400 if !{{ path_beg / }}
"""


def rules(folder: Path, body_timeout_s: float, *, needs_keys: bool, is_one_machine: bool) -> str:
    """Return what goes into Ray's frontend; the maps and pages are files of the folder.

    On one machine the models file is the one that the service was started with. On a cluster it may be older or newer
    than what Serve has: there a model without an application may be another's default, which the gateway knows.
    """
    where_the_gateway_is = "is_model !has_application" if is_one_machine else "{ always_false }"
    names_of_models = "path,url_dec -m str -i /-/routes" if needs_keys else "always_false"
    return f"""\
    # From service/ingress.py: requests that name a model, or whose path has a default one, go straight to it.
    # Ray has them logged with their queries, in which LibreTranslate's clients may send their key.
    http-request set-log-level silent
{_own_answers(folder)}\
    # A client of HTTP/1.0 knows no chunks, and finds the end of a stream where its connection ends.
    http-request set-var(txn.is_old) bool(true) if HTTP_1.0
    acl is_in_chunks res.hdr(transfer-encoding) -m found
    http-after-response set-header Connection close if {{ var(txn.is_old) -m found }} is_in_chunks
    # A WebSocket's handshake is a GET like any other: nothing but HTTP is spoken.
    http-request del-header upgrade
    # A client may not switch off that Ray notices when it leaves, nor choose Ray's timeout.
    http-request del-header x-request-disconnect-disabled
    http-request del-header x-request-timeout-seconds
    # Ray decodes an id before the service sees it, and fails on bytes that are not UTF-8; an empty one it sends back.
    http-request del-header x-request-id if {{ req.fhdr(x-request-id) -m reg '^$|[^A-Za-z0-9_.:/+=-]|.{{129}}' }}
    # These choose among Ray's replicas, of which ours are all alike; it fails on the same bytes.
    http-request del-header ^(x[-_]session[-_]id|serve[-_]multiplexed[-_]model[-_]id)$ -m reg
    errorfile 403 {folder}/403.http
    http-request deny deny_status 403 if {{ {names_of_models} }}
    # A replica counts a request from its head on, so one whose body is slow would take the place of others there.
    timeout http-request {body_timeout_s * 1000:.0f}ms
    http-request wait-for-body time {body_timeout_s * 1000:.0f}ms
    errorfile 408 {folder}/408.http
    http-request set-var(txn.default) path,map_str({folder}/defaults.map) if METH_POST
    acl takes_model var(txn.default) -m found
    http-request set-var(txn.model) req.body,json_query('$.model'),map_str({folder}/models.map) if takes_model
    acl is_named var(txn.model) -m found
    acl has_key req.body -m sub '"model"'
    acl has_key_twice req.body -m reg '(?s)"model".*"model"'
    acl has_null req.body -m reg '"model"\\s*:\\s*null'
    acl has_escaped_letters req.body -m sub '\\u006'
    http-request unset-var(txn.model) if is_named has_key_twice
    # Of several translators the languages choose; where they are not sure the default is no model's name.
    acl is_translation path /translate
    acl has_language_twice req.body -m reg '(?s)"source".*"source"' '(?s)"target".*"target"'
    acl has_more_escaped_letters req.body -m sub '\\u007'
    acl has_source req.body,json_query('$.source') -m found
    http-request set-var(txn.source) str({AUTO}) if is_translation !has_source
    http-request set-var(txn.source) req.body,json_query('$.source') if is_translation has_source
    http-request set-var(txn.target) req.body,json_query('$.target') if is_translation
    http-request set-var(txn.pair) var(txn.source),concat(>,txn.target),map_str({folder}/pairs.map) if is_translation
    acl has_pair var(txn.pair) -m found
    http-request set-var(txn.default) var(txn.pair) if has_pair !has_language_twice !has_more_escaped_letters
    # How long the body is, unless it comes in chunks.
    http-request set-var(txn.size) req.body_size if takes_model !{{ req.hdr(transfer-encoding) -m found }}
    # As text a body ends at its first zero: UTF-16 is not seen whole, and the gateway refuses it.
    acl may_take_default req.body,length,sub(txn.size) eq 0
    http-request set-var(txn.model) var(txn.default) if takes_model !is_named may_take_default !has_key
    http-request set-var(txn.model) var(txn.default) if takes_model !is_named may_take_default has_null !has_key_twice
    http-request unset-var(txn.model) if is_named has_escaped_letters
    # A model without a replica is left to the gateway, which says so or waits. If neither it nor the replica that it
    # shares is an application, it is where the gateway would be.
    http-request set-var(txn.replica) var(txn.model),map_str({folder}/replicas.map) if is_named
    acl is_model var(txn.replica) -m found
    http-request set-var(txn.there) str(http-),concat(,txn.model),nbsrv if is_model
    acl has_application var(txn.there) -m found
    http-request set-var(txn.there) str(http-),concat(,txn.replica),nbsrv if is_model !has_application
    acl is_there var(txn.there) -m int gt 0
    http-request set-path /models/%[var(txn.model)]%[path] if {where_the_gateway_is}
    http-request set-path /models/%[var(txn.model)]%[path] if is_model is_there
    # A model's address leads to the replica that it shares, by whatever rule it came into the path.
    http-request set-var(txn.shared) path,field(3,/),map_str({folder}/shared.map) if {{ path_beg /models/ }}
    acl shares var(txn.shared) -m found
    http-request unset-var(txn.there) if shares
    http-request set-var(txn.there) str(http-),concat(,txn.shared),nbsrv if shares
    http-request set-path /replicas/%[var(txn.shared)]%[path] if shares is_there
"""


def pages(body_timeout_s: float) -> Mapping[int, ServiceError]:
    """Return what HAProxy answers itself: what is no request, Ray's routes, a slow body, a replica gone or late."""
    broken = BadRequest(
        "the request's target does not begin with /, its body is malformed, or the client closed its half of the "
        "connection before the answer"
    )
    unknown = MethodNotAllowed("no route answers this method; see /docs", allowed=METHODS)
    ours = Forbidden("Ray's routes are not shown where keys are needed; GET /v1/models lists the models")
    gone = NotReady("the service starts, or the model's replica is gone and will be replaced; try again")
    slow = RequestTimeout(f"the body did not come within {body_timeout_s:g} s", "body")
    late = DeadlineExceeded("not finished in time")
    return {400: broken, 403: ours, 405: unknown, 408: slow, 502: gone, 503: gone, 504: late}


def files(
    manifests: list[Manifest],
    shared: Mapping[str, str],
    aliases: Mapping[str, str],
    folder: Path,
    body_timeout_s: float,
    *,
    allowed_origins: Sequence[str],
    needs_keys: bool,
    is_one_machine: bool,
) -> Iterator[tuple[str, str]]:
    """Yield the name and content of each file that HAProxy needs; the rules come last, as they name the others."""
    by_body = OF_BODY if len(manifests) > 1 else frozenset()
    defaults = {path: None if kind in by_body else first_fitting(manifests, kind) for path, kind in ROUTES.items()}
    if len(fitting(manifests, "translate")) > 1:
        # The languages choose, or all translators' are asked for.
        defaults |= dict.fromkeys((path for path, task in ROUTES.items() if task == "translate"))
    # A route without a default has itself as one: a name that no model has, so that the gateway answers.
    yield "defaults.map", _map({path: manifest.name if manifest else path for path, manifest in defaults.items()})
    yield "pairs.map", _map(pairs(manifests))
    yield "models.map", _map({**aliases, **{manifest.name: manifest.name for manifest in manifests}})
    yield "replicas.map", _map({manifest.name: shared.get(manifest.name, manifest.name) for manifest in manifests})
    yield "shared.map", _map(shared)
    yield "origins.map", _map({origin: origin for origin in allowed_origins})
    for status, error in pages(body_timeout_s).items():
        yield f"{status}.http", page(error)
    yield "defaults.cfg", DEFAULTS
    yield "rules.cfg", rules(folder, body_timeout_s, needs_keys=needs_keys, is_one_machine=is_one_machine)


def page(error: ServiceError) -> str:
    """Return an error as HAProxy sends it: a whole answer over HTTP."""
    body = json.dumps(error.body())
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body.encode())), **error.headers()}
    head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}", *map(": ".join, headers.items())]
    return "\r\n".join([*head, "", body])


def _map(entries: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in entries.items())


def write(
    manifests: list[Manifest],
    folder: Path,
    body_timeout_s: float,
    *,
    shared: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    allowed_origins: Sequence[str] = (),
    needs_keys: bool = False,
    is_one_machine: bool = True,
) -> None:
    """Write the files; each is replaced whole. HAProxy waits so long for a head, and for a body or a buffer full of it.

    `shared` has the replica of each model that names one, `aliases` the model of each further name. Where keys are
    needed HAProxy does not show Ray's routes, which name all models.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = files(
        manifests,
        shared or {},
        aliases or {},
        folder,
        body_timeout_s,
        allowed_origins=allowed_origins,
        needs_keys=needs_keys,
        is_one_machine=is_one_machine,
    )
    for name, content in found:
        unfinished = folder / f"{name}.new"
        unfinished.write_text(content, encoding="utf-8", newline="")
        unfinished.replace(folder / name)


def main() -> None:
    """Write the files for the models of the models file."""
    parser = argparse.ArgumentParser(prog="python -m service.ingress", description=__doc__)
    parser.add_argument("folder", type=Path, help="where HAProxy finds them")
    try:
        settings = Settings.read()
        models = settings.models(lambda _: 1)  # whose shares of the memory are nothing to HAProxy
        manifests, aliases = [model.manifest() for model in models], names_by_alias(models)
    except (SettingsError, PackageError) as error:
        sys.exit(f"trifold: {error}")
    body_timeout_s = Timeouts.of(settings.limits).body
    shared = {
        manifest.name: model.replica_group
        for manifest, model in zip(manifests, models, strict=True)
        if model.replica_group
    }
    folder = parser.parse_args().folder.resolve()
    is_one_machine = settings.run_dir is not None  # which `python -m service` sets
    write(
        manifests,
        folder,
        body_timeout_s,
        shared=shared,
        aliases=aliases,
        allowed_origins=settings.allowed_origins,
        needs_keys=settings.needs_keys,
        is_one_machine=is_one_machine,
    )


if __name__ == "__main__":
    main()
