"""A stand-in for the Hugging Face hub on loopback: repositories in memory, one commit each."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


class HubStub:
    """A hub that takes commits and gives files; `repositories` has their content by id.

    Attributes:
        url: Its address.
        token: The token that it takes.
    """

    token = "hf_secret"

    def __init__(self):
        self.repositories, self.large, self.private = {}, {}, {}
        stub = self

        class Handler(_Handler):
            hub = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubStub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _answer(self, content, status=200, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_POST(self):
        body, hub = self._body(), self.hub
        if self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._answer({"error": "Invalid username or password."}, 401)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            hub.repositories.setdefault(name, {})
            hub.private[name] = bool(asked.get("private")) or asked.get("visibility") == "private"
            return self._answer({"url": f"{hub.url}/{name}"})
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if found := re.fullmatch(r"/api/models/(.+)/preupload/main", self.path):
            files = json.loads(body)["files"]
            return self._answer(
                {
                    "files": [
                        {
                            "path": f["path"],
                            "uploadMode": "lfs" if f["size"] > 10_000 else "regular",
                            "shouldIgnore": False,
                        }
                        for f in files
                    ]
                }
            )
        if found := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", self.path):
            objects = [
                {
                    "oid": o["oid"],
                    "size": o["size"],
                    "actions": {"upload": {"href": f"{hub.url}/lfs/{o['oid']}"}},
                }
                for o in json.loads(body)["objects"]
            ]
            return self._answer({"transfer": "basic", "objects": objects})
        if found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
            return self._answer(
                {
                    "commitUrl": f"{hub.url}/{found[1]}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "success": True,
                }
            )
        return self._answer({"error": f"no {self.path}"}, 404)

    def _commit(self, name, rows):
        files = self.hub.repositories[name]
        for row in rows:
            value = row["value"]
            if row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            if row["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]

    def do_PUT(self):
        self.hub.large[self.path.removeprefix("/lfs/")] = self._body()
        self._answer({})

    def do_GET(self):
        hub = self.hub
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?(\?.*)?", self.path):
            if found[1] not in hub.repositories:
                return self._answer(
                    {"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"}
                )
            siblings = [{"rfilename": name} for name in hub.repositories[found[1]]]
            return self._answer(
                {
                    "id": found[1],
                    "modelId": found[1],
                    "sha": COMMIT,
                    "siblings": siblings,
                    "tags": [],
                    "private": False,
                }
            )
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/.*", self.path):
            files = hub.repositories[found[1]]
            return self._answer(
                [
                    {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for n, c in files.items()
                ]
            )
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path):
            content = hub.repositories.get(found[1], {}).get(found[2])
            if content is None:
                return self._answer(
                    {"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"}
                )
            etag = hashlib.sha1(content).hexdigest()
            return self._answer(content, headers={"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        return self._answer({"error": f"no {self.path}"}, 404)

    do_HEAD = do_GET
