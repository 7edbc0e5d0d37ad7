from __future__ import annotations

from deploy.checks.compositions import COMPOSITIONS
from deploy.kustomize import KUBERNETES
from tests.deploy.test_documents import PARTS


def test_every_component_is_in_a_composition_that_is_checked() -> None:
    folders = (path.parent for path in (KUBERNETES / "components").rglob("kustomization.yaml"))
    components = {str(folder.relative_to(KUBERNETES / "components")) for folder in folders} - PARTS

    assert {each for composition in COMPOSITIONS for each in composition.components} == components


def test_no_policy_closes_the_store_from_which_packages_come() -> None:
    fetching = [set(each.components) for each in COMPOSITIONS if "models/store" in each.components]
    policies = [{each for each in components if each.startswith("network-policy/")} for components in fetching]

    assert any(policies)
    assert all(not found or found > {"network-policy/store"} for found in policies)
