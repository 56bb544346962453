"""The files of `deploy/`: valid Kubernetes objects, commands that exist, shell without faults."""

import copy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from glocal.cli import app

kubernetes_validate = pytest.importorskip("kubernetes_validate")

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes/*.yaml"))
SCRIPTS = sorted(DEPLOY.glob("slurm/*.sh"))
VERSION = "1.31"


def objects(path):
    return [found for found in yaml.safe_load_all(path.read_text("utf-8")) if found]


def ray_groups(found):
    """The groups of pods of a job or a service on Ray."""
    name = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}[found["kind"]]
    spec = found["spec"][name]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def check_object(found):
    """Validate an object; of Ray's kinds, whose schema is not Kubernetes', the pods in it."""
    if found["apiVersion"].startswith("ray.io/"):
        for group in ray_groups(found):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
            kubernetes_validate.validate({**pod, **group["template"]}, VERSION, strict=True)
        return
    kubernetes_validate.validate(found, VERSION, strict=True)


def containers(found):
    if found["kind"] == "Deployment":
        return found["spec"]["template"]["spec"]["containers"]
    if found["kind"] in ("RayJob", "RayService"):
        return [c for g in ray_groups(found) for c in g["template"]["spec"]["containers"]]
    return []


def check_command(words):
    """Check that a command line of glocal has only options that exist."""
    name, *arguments = words
    command = get_command(app).get_command(None, name)
    known = {option for parameter in command.params for option in parameter.opts}
    options = {word for word in arguments if word.startswith("--")}
    assert options <= known, options - known


def shellcheck(path):
    program = Path(sys.executable).with_name("shellcheck")
    return subprocess.run([program, path], capture_output=True, text=True, check=False)


def test_there_are_files():
    assert MANIFESTS
    assert SCRIPTS


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_valid(path):
    for found in objects(path):
        check_object(found)
        for container in containers(found):
            assert container["resources"]["limits"]["memory"]


def test_the_server_has_probes_that_it_answers():
    (deployment,) = [
        o for o in objects(DEPLOY / "kubernetes/serve.yaml") if o["kind"] == "Deployment"
    ]
    (container,) = containers(deployment)
    paths = {
        container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"/readyz", "/healthz"}
    check_command(["serve", *container["args"]])


def test_the_ray_job_runs_a_command_that_exists():
    for path in MANIFESTS:
        for found in objects(path):
            if found["kind"] == "RayJob":
                program, *words = shlex.split(found["spec"]["entrypoint"])
                assert program == "glocal"
                check_command(words)


@pytest.mark.parametrize("change", ["kind of a probe", "unknown field", "image of a ray pod"])
def test_a_broken_manifest_is_noticed(change):
    ray = change == "image of a ray pod"
    name = "predict-rayjob" if ray else "serve"
    broken = copy.deepcopy(objects(DEPLOY / f"kubernetes/{name}.yaml")[0])
    container = containers(broken)[0]
    if change == "kind of a probe":
        container["livenessProbe"]["periodSeconds"] = "often"
    elif change == "unknown field":
        container["resource"] = container.pop("resources")
    else:
        container["image"] = ["glocal"]
    with pytest.raises(kubernetes_validate.ValidationError):
        check_object(broken)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_clean(path):
    found = shellcheck(path)
    assert found.returncode == 0, found.stdout


def test_a_broken_script_is_noticed(tmp_path):
    broken = tmp_path / "broken.sh"
    broken.write_text(SCRIPTS[0].read_text().replace('"$model"', "$model"))
    assert shellcheck(broken).returncode != 0
