"""The server as an application of Ray Serve, as the manifest in `deploy/` names it."""

import importlib
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from glocal.cluster import ray_service
from glocal.errors import GlocalError
from tests.deploy.test_manifests import DEPLOY, containers, objects


def test_the_ray_service_serves_an_application_that_exists(words_model, tmp_path):
    (service,) = objects(DEPLOY / "kubernetes/serve-rayservice.yaml")
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    assert getattr(importlib.import_module(module), name) is ray_service.build
    assert [d["name"] for d in application["deployments"]] == [ray_service._Copy.__name__]
    mounted = {m["mountPath"] for c in containers(service) for m in c["volumeMounts"]}
    arguments = application["args"]
    assert {arguments["model"], str(Path(arguments["keys"]).parent)} == mounted
    # The same arguments, with files of this machine.
    keys = tmp_path / "keys.txt"
    keys.write_text("0123456789abcdef\n")
    here = {**arguments, "model": str(words_model), "keys": str(keys)}
    client = TestClient(ray_service._application(ray_service.serve_settings(here)))
    assert client.get("/v1/models").status_code == 401
    found = client.get("/v1/models", headers={"authorization": "Bearer 0123456789abcdef"})
    assert found.status_code == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "m"}, "the argument keys is missing; expected keys=PATH"),
        ({"modle": "m"}, "no such argument: 'modle'|'modle'.*model"),
    ],
)
def test_wrong_arguments_of_the_ray_service_are_one_line(arguments, message):
    with pytest.raises(GlocalError, match=message):
        ray_service.serve_settings(arguments)
