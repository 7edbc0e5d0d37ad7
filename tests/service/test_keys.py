from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from service.keys import appended, configured_keys, hash_of, main, make_key, read_keys
from service.settings import Settings
from service.settings_errors import SettingsError

HASH = hash_of("secret")


def keys_file(folder: Path, content: str) -> Path:
    path = folder / "keys.yaml"
    path.write_text(content)
    return path


def test_a_made_key_is_found_by_its_hash_and_cannot_be_read_from_it() -> None:
    key, kept = make_key("billing", tokens_per_minute=100)

    assert kept.hash == hash_of(key)
    assert key not in kept.entry() and key.removeprefix("trifold_") not in kept.entry()
    assert len(key) >= 43  # 256 bits in base64
    assert make_key("billing")[0] != key


def test_what_is_printed_for_a_key_is_what_a_keys_file_has(tmp_path: Path) -> None:
    _, kept = make_key("billing", requests_per_minute=60, concurrent_requests=2)

    assert read_keys(keys_file(tmp_path, kept.entry())) == [kept]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "must be a list of keys"),
        ("keys: []", "must be a list of keys"),
        ("- name: [", "not YAML, line 1"),
        ("- name: 2024-13-45", "not YAML: a value is not what its form or tag says; put texts in quotes"),
        ("- name: !!int secret", "not YAML: a value"),
        ("- name: !!bool secret", "not YAML: a value"),
        ("- name: !!timestamp secret", "not YAML: a value"),
        ("- name: !!int ''", "not YAML: a value"),
        ("[" * 2000, "not YAML: nested too deeply"),
        ("- 3", "entry 1: should have fields"),
        (f"- hash: {HASH}", "entry 1: name: Field required"),
        ("- name: a", r"entry 1 \(a\): hash: Field required"),
        (f"- {{name: '', hash: '{HASH}'}}", "entry 1 .*: name: String should match"),
        (f"- {{name: 'a b', hash: '{HASH}'}}", r"entry 1 \(a b\): name: String should match"),
        (f"- {{name: a, hash: '{hash_of('')}'}}", r"entry 1 \(a\): hash: is that of no text at all"),
        ("- {name: a, hash: secret}", r"entry 1 \(a\): hash: String should match"),
        (f"- {{name: a, hash: '{HASH}', requests_per_minute: 0}}", "requests_per_minute: Input should be greater"),
        (f"- {{name: a, hash: '{HASH}', tokens_a_minute: 5}}", "tokens_a_minute: not known"),
        (f"- {{name: a, hash: '{HASH}'}}\n- {{name: a, hash: '{hash_of('b')}'}}", "name: a is there twice"),
        (f"- {{name: a, hash: '{HASH}'}}\n- {{name: b, hash: '{HASH}'}}", "hash: a and b are the same key"),
    ],
)
def test_a_wrong_keys_file_is_told_by_file_entry_and_field(tmp_path: Path, content: str, words: str) -> None:
    path = keys_file(tmp_path, content)

    with pytest.raises(SettingsError, match=words) as error:
        read_keys(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "content", ["- {name: a, hash: my-secret}", "- {name: a, key: my-secret}", "- my-secret", "- [my-secret"]
)
def test_what_is_wrong_with_a_keys_file_is_told_without_its_secrets(tmp_path: Path, content: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_keys(keys_file(tmp_path, content))

    assert "my-secret" not in str(error.value)


def test_a_missing_keys_file_says_what_names_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TRIFOLD_API_KEYS_FILE"):
        read_keys(tmp_path / "none.yaml")


def test_an_empty_list_lets_nobody_in_rather_than_everybody(tmp_path: Path) -> None:
    settings = Settings(api_keys_file=keys_file(tmp_path, "[]"))

    assert configured_keys(settings) == []
    assert settings.needs_keys


def test_keys_of_the_environment_have_names_beside_those_of_the_file(tmp_path: Path) -> None:
    path = keys_file(tmp_path, f"- {{name: billing, hash: '{HASH}'}}")
    settings = Settings.model_validate({"api_keys": ["one", "two"], "api_keys_file": path})

    assert [key.name for key in configured_keys(settings)] == ["key-1", "key-2", "billing"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"{{name: key-1, hash: '{HASH}'}}", "name: key-1 is there twice"),
        (f"{{name: billing, hash: '{hash_of('one')}'}}", "hash: key-1 and billing are the same key"),
    ],
)
def test_a_key_of_the_file_that_the_environment_has_too_is_refused(tmp_path: Path, entry: str, words: str) -> None:
    settings = Settings.model_validate({"api_keys": ["one"], "api_keys_file": keys_file(tmp_path, f"- {entry}")})

    with pytest.raises(SettingsError, match=words):
        configured_keys(settings)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["keys", *arguments])
    main()


def test_the_command_prints_the_entry_apart_from_the_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(monkeypatch, "billing", "--requests-per-minute", "60", "--concurrent-requests", "2")
    printed = capsys.readouterr()
    (kept,) = read_keys(keys_file(tmp_path, printed.out))

    assert (kept.name, kept.limits) == ("billing", {"requests_per_minute": 60, "concurrent_requests": 2})
    assert kept.hash == hash_of(printed.err.strip())


@pytest.mark.parametrize("before", [None, "[]\n", "", f"- {{name: old, hash: '{HASH}'}}", "# ours\n"])
def test_the_command_appends_to_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "keys.yaml" if before is None else keys_file(tmp_path, before)
    run(monkeypatch, "new", "--file", str(path))

    key = capsys.readouterr().out.strip()
    assert read_keys(path)[-1].hash == hash_of(key)
    assert len(read_keys(path)) == (2 if before and "old" in before else 1)


@pytest.mark.parametrize("arguments", [("a b",), ("a", "--tokens-per-minute", "0"), ("old", "--file", "keys.yaml")])
def test_the_command_refuses_what_a_file_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = keys_file(tmp_path, f"- {{name: old, hash: '{HASH}'}}\n").read_text()

    with pytest.raises(SystemExit, match="trifold: "):
        run(monkeypatch, *arguments)
    assert (tmp_path / "keys.yaml").read_text() == before


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """Let no file become larger; what fits of a write is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("before", [None, "[]\n", f"- {{name: old, hash: '{HASH}'}}"])
def test_a_disk_without_room_for_an_entry_leaves_the_file_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "keys.yaml" if before is None else keys_file(tmp_path, before)

    with full_after(len(before or "") + 20), pytest.raises(SystemExit, match=f"trifold: {path}: File too large"):
        run(monkeypatch, "new", "--file", str(path))
    assert path.read_text() == (before or "[]\n")  # which lets nobody in


@pytest.mark.parametrize("before", [None, "[]\n", f"- {{name: old, hash: '{HASH}'}}"])
def test_a_key_that_nobody_sees_leaves_no_entry(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "keys.yaml" if before is None else keys_file(tmp_path, before)
    reader, closed = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full, os.fdopen(closed, "w") as pipe:
        for nowhere, reason in ((full, "No space left on device"), (pipe, "Broken pipe")):
            command = [sys.executable, "-m", "service.keys", "new", "--file", str(path)]
            made = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False)

            told = f"trifold: the key cannot be shown ({reason}), so it is not kept\n"
            assert (made.returncode, made.stderr) == (1, told)
            assert path.read_text() == (before or "[]\n")  # which lets nobody in


def test_a_keys_file_stays_the_file_that_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, link = keys_file(tmp_path, "[]\n"), tmp_path / "link.yaml"
    link.symlink_to(path)
    path.chmod(0o640)
    before = path.stat()
    for name in ("one", "two"):
        run(monkeypatch, name, "--file", str(link))

    assert link.is_symlink() and [key.name for key in read_keys(path)] == ["one", "two"]
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert len(capsys.readouterr().out.split()) == 2


def test_keys_that_are_added_at_once_all_come_into_the_file(tmp_path: Path) -> None:
    path = keys_file(tmp_path, "[]\n")
    names = [f"key-of-{place}" for place in range(20)]
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(partial(add, path), names))

    assert sorted(key.name for key in read_keys(path)) == sorted(names)


def add(path: Path, name: str) -> None:
    with appended(path, make_key(name)[1]):
        pass
