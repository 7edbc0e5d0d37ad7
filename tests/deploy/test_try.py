"""What `deploy/image/try.sh` makes of an image, with a stand-in for the container engine."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "deploy" / "image" / "try.sh"
# Runs the code that looks at the root file system, for which opening a file ends as in the image; the rest succeeds.
ENGINE = """#!/bin/sh
case "$*" in
inspect*) echo "$STATUS" ;;
exec*/app/x*)
    for code; do :; done
    python3 -c "import os
def open(*_):
    if $ERROR: raise OSError($ERROR, os.strerror($ERROR))
$code"
    ;;
esac
"""


def tried(folder: Path, *, status: int = 0, error: int = errno.EROFS) -> subprocess.CompletedProcess[str]:
    """Try an image whose container ends with a status, and in which writing fails with an error, or succeeds (0)."""
    engine = folder / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    environment = {**os.environ, "ENGINE": str(engine), "STATUS": str(status), "ERROR": str(error)}
    return subprocess.run(["sh", SCRIPT, "trifold:cpu"], env=environment, capture_output=True, text=True, check=False)


def test_an_image_passes_that_is_read_only_and_stops_by_itself(tmp_path: Path) -> None:
    done = tried(tmp_path)

    assert done.returncode == 0, done.stderr
    assert "root file system: Read-only file system" in done.stdout
    assert done.stdout.endswith("with exit status 0\n")


@pytest.mark.parametrize("status", [137, 1])
def test_an_image_fails_whose_container_does_not_end_well(status: int, tmp_path: Path) -> None:
    done = tried(tmp_path, status=status)

    assert done.returncode != 0
    assert done.stdout.endswith(f"with exit status {status}\n")


@pytest.mark.parametrize(("error", "words"), [(errno.EACCES, "Permission denied"), (0, "Success")])
def test_an_image_fails_whose_root_can_be_written_to(error: int, words: str, tmp_path: Path) -> None:
    done = tried(tmp_path, error=error)

    assert done.returncode != 0
    assert f"root file system: {words}" in done.stdout
    assert "stopped" not in done.stdout
