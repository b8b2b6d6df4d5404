"""A real browser for page tests: headless Chromium, or the reason why there is none."""

import json
import shutil
from contextlib import contextmanager

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)


def why_not():
    """Say what is missing; None if nothing is."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (make extras)"
    if CHROMIUM is None or DRIVER is None:
        return "chromium and chromedriver are not installed (make extras)"
    return None


@contextmanager
def browser(*, width=1200, height=900, dark=False):
    """Open a browser of this size that prefers light or dark pages; give its driver."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield driver
    finally:
        driver.quit()


def complaints(driver):
    """Return the messages of the console."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver):
    """Return the addresses that the page requested, besides itself and embedded data."""
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return [url for url in found if not url.startswith("data:") and url != driver.current_url]
