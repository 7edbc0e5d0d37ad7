from __future__ import annotations

from pathlib import Path

import pytest

from service.settings import Settings, SettingsError


def test_it_listens_on_this_machine_alone_unless_told() -> None:
    settings = Settings.read()

    assert (settings.host, settings.port) == ("127.0.0.1", 8000)


def test_the_environment_sets_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_PORT", "9000")
    monkeypatch.setenv("TRIFOLD_LIMITS__MAX_INPUTS", "7")
    monkeypatch.setenv("TRIFOLD_API_KEYS", '["a", "b"]')
    settings = Settings.read(host="0.0.0.0")

    assert (settings.host, settings.port, settings.limits.max_inputs) == ("0.0.0.0", 9000, 7)
    assert [key.get_secret_value() for key in settings.api_keys] == ["a", "b"]
    assert "'a'" not in repr(settings)


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFOLD_PORT", "70000")

    with pytest.raises(SettingsError, match="port: Input should be less than or equal to 65535"):
        Settings.read()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("models: []", "models: List should have at least 1 item"),
        ("models:\n  - {package: x, slots: 3}", "slots: Extra inputs"),
        ("models:\n  - {package: x, max_slots: 0}", "max_slots: Input should be greater"),
        ("models: [", "not YAML"),
    ],
)
def test_a_wrong_models_file_is_named(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(content)

    with pytest.raises(SettingsError, match=words) as error:
        Settings(models_file=path).models()
    assert str(path) in str(error.value)


def test_a_missing_models_file_says_what_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TRIFOLD_MODELS_FILE"):
        Settings(models_file=tmp_path / "none.yaml").models()


def test_packages_are_found_relative_to_the_models_file(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  - package: one\n")

    assert Settings(models_file=tmp_path / "models.yaml").models()[0].package == tmp_path / "one"


def test_the_bundled_models_are_listed() -> None:
    assert [model.package.name for model in Settings.read().models()] == [
        "sentiment",
        "spam",
        "topics",
        "embed",
        "fashion",
        "stories",
        "translate",
    ]


def test_bounds_of_a_gpu_are_refused_without_one(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  - {package: x, gpu_memory_mib: 512}\n")

    with pytest.raises(SettingsError, match="for models with num_gpus more than 0"):
        Settings(models_file=tmp_path / "models.yaml").models()
