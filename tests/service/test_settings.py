from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.settings import OTHER_VARIABLES, Limits, Settings
from service.settings_errors import SettingsError

ROOT = Path(__file__).parent.parent.parent


def test_it_listens_on_this_machine_alone_unless_told() -> None:
    settings = Settings.read()

    assert (settings.host, settings.port) == ("127.0.0.1", 8000)


def test_the_environment_sets_fields_also_nested_ones_and_arguments_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_PORT", "9000")
    monkeypatch.setenv("TRIFOLD_LIMITS__MAX_INPUTS", "7")
    monkeypatch.setenv("TRIFOLD_API_KEYS", '["a", "b"]')
    settings = Settings.read(host="0.0.0.0")

    assert (settings.host, settings.port, settings.limits.max_inputs) == ("0.0.0.0", 9000, 7)
    assert [key.get_secret_value() for key in settings.api_keys] == ["a", "b"]
    assert "'a'" not in repr(settings)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('[""]', "api_keys: .*key 1 is empty"),
        ('["good", "  "]', "api_keys: .*key 2 is empty, or has spaces"),
        ('["with space"]', "has spaces"),
        ('["tab\\t"]', "has spaces"),
        ('["größe"]', "other characters than visible ASCII"),
        ('["a", "b", "a"]', "key 3 is there twice"),
        ("secret", "api_keys: it must be JSON"),
        ("", "api_keys: it must be JSON"),
    ],
)
def test_keys_that_could_not_be_meant_are_refused(monkeypatch: pytest.MonkeyPatch, keys: str, words: str) -> None:
    monkeypatch.setenv("TRIFOLD_API_KEYS", keys)

    with pytest.raises(SettingsError, match=words) as error:
        Settings.read()
    assert not {"good", "größe", "secret"} & set(re.findall(r"\w+", str(error.value)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TRIFOLD_API_KEY", "TRIFOLD_API_KEY is not a setting; did you mean TRIFOLD_API_KEYS?"),
        ("trifold_prot", "did you mean TRIFOLD_PORT?"),
        ("TRIFOLD_LIMITS__MAX_INPUT", "did you mean TRIFOLD_LIMITS__MAX_INPUTS?"),
        ("TRIFOLD_METRIC_PORT", "did you mean TRIFOLD_METRICS_PORT?"),
        ("TRIFOLD_COLOUR", "service/settings.md lists them all"),
        ("TRIFOLD_HEAD_SVC_SERVICE_HOST", "enableServiceLinks: false"),
        ("TRIFOLD_SERVE_SVC_PORT_8000_TCP_ADDR", "enableServiceLinks: false"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.setenv(name, "1")

    with pytest.raises(SettingsError, match=words.replace("?", "[?]")):
        Settings.read()


def test_every_variable_that_the_repository_names_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [ROOT / "Dockerfile", ROOT / "docker-compose.yml", ROOT / "README.md", *(ROOT / "deploy").rglob("*.yaml")]
    files += [path for ending in ("*.py", "*.sh", "*.md", "*.js") for path in (ROOT / "service").rglob(ending)]
    named = {name for file in files for name in re.findall(r"\bTRIFOLD_[A-Z][A-Z_]*[A-Z]", file.read_text())}
    assert {"TRIFOLD_API_KEYS", "TRIFOLD_LIMITS__MAX_INPUTS", "TRIFOLD_HAPROXY_BINARY"} <= named
    for name in named:
        monkeypatch.setenv(name, "?")

    with pytest.raises(SettingsError) as error:
        Settings.read()
    assert "is not a setting" not in str(error.value)


def test_every_variable_that_is_known_stands_in_the_documentation() -> None:
    told = (ROOT / "service" / "settings.md").read_text(encoding="utf-8")
    fields = [name for name in Settings.model_fields if name != "limits"]
    fields += [f"limits__{name}" for name in Limits.model_fields]

    names = {*OTHER_VARIABLES, *(f"TRIFOLD_{name.upper()}" for name in fields)}
    assert {name for name in names if f"`{name}`" not in told} == set()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_without_keys_it_listens_to_its_own_machine(host: str) -> None:
    Settings().check_exposure(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "trifold.example", "127.0.0.1.example"])
def test_without_keys_it_listens_to_others_only_when_that_is_said_to_be_meant(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"TRIFOLD_API_KEYS .*TRIFOLD_ALLOW_ANONYMOUS=true"):
        Settings().check_exposure(host)

    Settings(allow_anonymous=True).check_exposure(host)
    Settings.model_validate({"api_keys": ["secret"]}).check_exposure(host)
    Settings(api_keys_file=tmp_path / "keys.yaml").check_exposure(host)


@pytest.mark.parametrize("name", ["LIMITS__REQUEST_TIMEOUT_S", "LIMITS__STALL_TIMEOUT_S", "DRAIN_NOTICE_S"])
@pytest.mark.parametrize("value", ["inf", "nan", "90000"])
def test_a_time_that_nothing_could_be_reckoned_with_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TRIFOLD_{name}", value)

    with pytest.raises(SettingsError, match=f"{name.lower().replace('__', '.')}: "):
        Settings.read()


@pytest.mark.parametrize("buckets", ["[1, 0.5]", "[0, 1]", "[1, 1]", "[1, Infinity]"])
def test_bounds_of_histograms_must_ascend(monkeypatch: pytest.MonkeyPatch, buckets: str) -> None:
    monkeypatch.setenv("TRIFOLD_LATENCY_BUCKETS", buckets)

    with pytest.raises(SettingsError, match="latency_buckets"):
        Settings.read()


@pytest.mark.parametrize("origin", ["*", "example.com", "https://example.com/", "https://*.example.com", "null", ""])
def test_an_origin_that_no_browser_sends_is_refused(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    monkeypatch.setenv("TRIFOLD_ALLOWED_ORIGINS", f'["https://example.com:8443", "{origin}"]')

    with pytest.raises(SettingsError, match=r"allowed_origins: .*origin 2 must be like https://"):
        Settings.read()


@pytest.mark.parametrize("origin", ["https://example.com:443", "http://a.b:80", "https://bücher.example"])
def test_an_origin_as_browsers_do_not_spell_it_is_refused(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    monkeypatch.setenv("TRIFOLD_ALLOWED_ORIGINS", f'["http://a.b:443", "{origin}"]')

    with pytest.raises(SettingsError, match="origin 2 is not what browsers send"):
        Settings.read()


@pytest.mark.parametrize("name", ["METRICS_DIR", "LOG_TO", "RUN_DIR"])
def test_a_place_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"TRIFOLD_{name}", "")

    assert getattr(Settings.read(), name.lower()) is None


def test_a_collector_without_its_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_OTLP_ENDPOINT", "collector:4318")

    with pytest.raises(SettingsError, match=r"otlp_endpoint: must begin with http://"):
        Settings.read()


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_PORT", "70000")

    with pytest.raises(SettingsError, match="port: Input should be less than or equal to 65535"):
        Settings.read()
