"""The server as an application of Ray Serve, as the manifest in `deploy/` names it."""

import importlib
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from glocal.cluster import ray_service
from glocal.errors import GlocalError
from glocal.predict.predictor import Predictor
from glocal.serve.app import create_app
from tests.deploy.test_manifests import DEPLOY, containers, objects
from tests.train.runs import free_port


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
    client = TestClient(create_app(ray_service.serve_settings(here)))
    assert client.get("/v1/models").status_code == 401
    found = client.get("/v1/models", headers={"authorization": "Bearer 0123456789abcdef"})
    assert found.status_code == 200


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.filterwarnings("ignore")
def test_ray_serve_answers(words_model, tmp_path):
    serve = pytest.importorskip("ray.serve")
    import ray

    keys, port = tmp_path / "keys.txt", free_port()
    keys.write_text("0123456789abcdef\n")

    def answer(path, body=None, **headers):
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        application = ray_service.build({"model": str(words_model), "keys": str(keys)})
        serve.run(application, name="glocal", route_prefix="/")
        assert answer("/readyz")[0] == 200
        assert answer("/v1/models")[0] == 401
        key = {"authorization": "Bearer 0123456789abcdef"}
        status, found = answer("/v1/predict", {"texts": ["a red cat"], "k": 2}, **key)
    finally:
        serve.shutdown()
        ray.shutdown()
    assert status == 200, found
    expected = Predictor.load(words_model, device="cpu").predict(["a red cat"], k=2)
    assert [tag["id"] for tag in found["results"][0]["tags"]] == [tag.id for tag in expected[0]]


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
