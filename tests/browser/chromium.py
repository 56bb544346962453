"""A real Chromium in front of a real server, with axe-core, for the tests of the page."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 60  # seconds; the machine may be busy
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
CACHE = Path(
    os.environ.get("GLOCAL_BROWSER_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glocal-browser"
)
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# Reports what axe finds, with the element and what to do about it.
AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: {type: "tag", values: arguments[0]}}).then(
  (found) => done(found.violations.map((v) => v.id + ": " + v.help + " " +
    v.nodes.slice(0, 3).map((n) => n.target + " " + n.failureSummary).join(" | "))),
  (error) => done(["axe failed: " + error]));
"""


def missing_tools():
    """What the tests need and do not find."""
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    axe = sorted(CACHE.glob("axe-*.js"))
    return [name for name, path in found.items() if not path] + ([] if axe else ["axe-core"])


def require_tools():
    """Skip without a browser, or fail where one is required (GLOCAL_BROWSER=required)."""
    if missing := missing_tools():
        message = f"{', '.join(missing)} missing; run tests/browser/install.sh"
        if os.environ.get("GLOCAL_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)


class Server:
    """`glocal serve` in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "glocal", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.url = json.loads(self._document())["url"]

    def _document(self):
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            try:
                json.loads("".join(lines))
            except ValueError:
                continue
            return "".join(lines)
        raise AssertionError(f"the server did not start: {lines}")

    def warm(self, model):
        """Have a model loaded, however long a busy machine takes for it."""
        body = json.dumps({"model": model, "texts": ["a text"]}).encode()
        for _ in range(20):
            call = Request(f"{self.url}v1/predict", body, {"content-type": "application/json"})
            with contextlib.suppress(URLError), urlopen(call, timeout=PATIENCE):
                return
            time.sleep(0.5)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


class Page:
    """The page in a window; what a user does and sees."""

    def __init__(self, downloads):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
            options.add_argument(f"--{flag}")
        options.add_argument("--force-device-scale-factor=1")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.downloads = downloads
        self.resize("desktop")

    def close(self):
        self.driver.quit()

    # --- looking -----------------------------------------------------------------------------

    def open(self, url):
        self.driver.get("about:blank")
        self.driver.get(url)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)",
            selector,
        )

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, test, about=""):
        """Wait until a function of no argument gives something true, and return that."""

        def settled(_driver):
            try:
                return test()
            except Exception:  # an element that was replaced meanwhile
                return False

        return WebDriverWait(self.driver, PATIENCE, 0.1).until(settled, about)

    def see(self, selector, text=None):
        """Wait for a visible element, with some text if given, and return it."""

        def seen():
            found = [e for e in self.all(selector) if e.is_displayed()]
            return next((e for e in found if text is None or text in e.text), None)

        return self.wait(seen, f"{selector} {text or ''}")

    def settled(self):
        """Wait until nothing is loading and no motion goes on."""
        self.wait(lambda: not self.all(".busy, .skeleton, [aria-busy=true]"), "still loading")
        time.sleep(0.3)

    # --- doing -------------------------------------------------------------------------------

    def write(self, text):
        field = self.find("#text")
        field.clear()
        if all(ord(c) < 0x10000 for c in text):
            field.send_keys(text)
        else:  # chromedriver types only the basic plane
            self.run(
                "arguments[0].value = arguments[1];"
                "arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
                field,
                text,
            )

    def press(self, *keys):
        """Press keys wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector, most=60):
        """Press Tab until an element has the focus."""
        for _ in range(most):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return self.driver.switch_to.active_element
            self.press(Keys.TAB)
        raise AssertionError(f"Tab does not reach {selector}")

    def resize(self, size):
        width, height = SIZES[size]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**metrics, "mobile": size == "phone"}
        )

    def colours(self, scheme):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def downloaded(self, name):
        """Wait for a download and return its content."""
        path = self.downloads / name
        self.wait(lambda: path.is_file() and path.stat().st_size, f"no download {name}")
        content = path.read_text("utf-8")
        path.unlink()
        return content

    # --- judging -----------------------------------------------------------------------------

    def violations(self):
        """What axe-core finds wrong with the page as it is."""
        if not self.run("return Boolean(window.axe)"):
            (source,) = sorted(CACHE.glob("axe-*.js"))[-1:]
            self.driver.execute_cdp_cmd(
                "Runtime.evaluate", {"expression": source.read_text("utf-8")}
            )
        return self.driver.execute_async_script(AXE, AXE_RULES)

    def complaints(self):
        """Errors in the browser's console: scripts that failed, content that was refused."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def check(self, state):
        """Check a state in light, dark and phone size; keep screenshots where asked for."""
        folder = os.environ.get("GLOCAL_SCREENSHOTS")
        for name, scheme, size in (
            ("light", "light", "desktop"),
            ("dark", "dark", "desktop"),
            ("phone", "light", "phone"),
        ):
            self.colours(scheme)
            self.resize(size)
            self.settled()
            if folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                self.screenshot(Path(folder) / f"{state}-{name}.png", whole=size == "phone")
            assert self.violations() == [], f"{state} {name}"
            wide = self.run("return document.documentElement.scrollWidth")
            assert wide <= SIZES[size][0], f"{state} {name} is {wide} pixels wide"
        self.colours("light")
        self.resize("desktop")

    def screenshot(self, path, *, whole=False):
        if whole:
            height = self.run("return document.documentElement.scrollHeight")
            metrics = {"width": SIZES["phone"][0], "height": min(height, 3000)}
            self.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {**metrics, "deviceScaleFactor": 1, "mobile": True},
            )
            time.sleep(0.2)
        self.driver.save_screenshot(str(path))
