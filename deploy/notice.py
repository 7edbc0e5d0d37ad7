"""`NOTICE`: the terms of the code, and those of each bundled model, as its manifest has them."""

from __future__ import annotations

from pathlib import Path

from model.package import Manifest

_CODE = """\
Trifold
Copyright The Trifold Authors

The code is licensed under the Apache License, Version 2.0 (LICENSE). service/engine/native/onnxruntime has the header
of ONNX Runtime's C API, Copyright (c) Microsoft Corporation, under the MIT License that lies beside it.

The bundled models (model/packages) were trained from nothing on the data below, and are under the terms of these data,
not of the code. Where terms are said to be unclear, none were ever published: such a model is for research and
demonstration.
"""


def notice(packages: Path) -> str:
    """Return the text, made of the manifests of a folder of packages."""
    parts = [_CODE]
    for folder in sorted(path for path in packages.iterdir() if path.is_dir()):
        manifest = Manifest.read(folder)
        parts.append(f"\n{manifest.name}: {manifest.licence}\n")
        parts.extend(f"  - {data.name}: {data.licence}\n" for data in manifest.training_data)
    return "".join(parts)
