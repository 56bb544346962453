"""The server as an application of Ray Serve, which starts copies of it and spreads requests.

`deploy/kubernetes/serve-rayservice.yaml` names `build` as its import path. Each copy is the
application of `glocal serve`, so that interface, limits and keys are the same; Ray Serve's proxies
listen in place of uvicorn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glocal.errors import ConfigError, no_such, require


def build(arguments: Mapping[str, str]) -> Any:
    """Return the application for `serve run glocal.cluster.ray_service:build model=DIR`.

    Args:
        arguments: `model`, a model directory that every machine reads, `keys`, a file with API
            keys, and optionally `device`.

    Raises:
        ConfigError: Something is missing, or the settings cannot be served.
    """
    serve = require("ray.serve", extra="ray-serve", purpose="serving on a Ray cluster")
    settings = serve_settings(arguments)
    settings.check()

    def application() -> Any:  # a plain function: Ray Serve takes any other object for the server
        from glocal.serve.app import create_app

        return create_app(settings)

    return serve.deployment(serve.ingress(application)(_Copy)).bind()


def serve_settings(arguments: Mapping[str, str]) -> Any:
    """Return the settings of the server.

    Raises:
        ConfigError: Something is missing or unknown, or the file of keys cannot be read.
    """
    from glocal.serve.serve_settings import ServeSettings, read_api_keys

    for name in arguments:
        if name not in (known := ("model", "keys", "device")):
            raise ConfigError(no_such("argument", name, known))
    for name in ("model", "keys"):
        if name not in arguments:
            raise ConfigError(f"the argument {name} is missing; expected {name}=PATH")
    return ServeSettings(
        models=(Path(arguments["model"]),),
        host="0.0.0.0",
        api_keys=read_api_keys(Path(arguments["keys"])),
        device=arguments.get("device", "auto"),
    )


class _Copy:
    """One copy of the server; Ray Serve adds the application."""
