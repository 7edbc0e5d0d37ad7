"""How far a package's answers may be from torch's, and how that is told. No torch, as a cached package needs none."""

from __future__ import annotations

from model.package import Manifest
from model.package.manifest import Precision

TOLERANCE = 1e-4  # float32 graphs must stay below it: the largest difference over the largest answer
# What is shipped must stay below these: the root mean square of the differences over that of the answers themselves.
# model/README.md, The exporter, has what trained weights came to; a wrong scale, or a feature that drowns all others,
# comes to about 1.
LIMITS: dict[Precision, float] = {
    "float32": 1e-4,
    "float16": 0.02,
    "int8": 0.2,
    "int8-static": 0.2,
    "int8-blocks": 0.2,
    "int4-blocks": 0.5,
}


def verified_in_words(manifest: Manifest) -> str:
    """Tell how far a package's answers were from torch's: first as it is shipped, which no exact float32 tells."""
    found, precision = manifest.verification, manifest.precision
    shipped = (
        "" if found.distance is None else f"distance {found.distance:.2g} from torch (limit {LIMITS[precision]:g}); "
    )
    return (
        f"{precision}, {shipped}largest relative error in float32 {found.max_relative_error:.1e} (limit {TOLERANCE:g})"
    )
