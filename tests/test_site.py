"""The site builds with warnings as errors, and its pages are sound in a browser: Chromium, where it and playwright are.

    pip install '.[docs]' playwright axe-playwright-python && apt install chromium
"""

import functools
import html
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from marginlinear import registry
from tools import study

ROOT = Path(__file__).parent.parent
# Of elements of one kind, in the same places, the first of all pages is left: contrast is that of a kind, and is slow
# to find. Returns the kinds of those that are left.
FIRST_OF_A_KIND = """known => {
    const seen = new Set(known), kind = e => e ? kind(e.parentElement) + ' ' + e.tagName + '.' + e.className : '';
    for (const e of document.querySelectorAll('article *'))
        if (!e.firstElementChild && seen.size == seen.add(kind(e)).size) e.remove();
    return [...seen].slice(known.length);
}"""
SCHEMES = {"light": "default", "dark": "slate"}  # as the theme calls them


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    for module in ("material", "mkdocstrings", "latex2mathml", "ziamath", "matplotlib", "sklearn", "distributed"):
        pytest.importorskip(module, reason="pip install 'marginlinear[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder,
                           "--config-file", ROOT / "mkdocs.yml"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


def texts(site):
    """Each page -> its HTML."""
    return {page.relative_to(site).as_posix(): page.read_text("utf-8") for page in sorted(site.rglob("*.html"))}


def test_site_has_what_the_package_knows(site):
    for name, method in registry.methods().items():
        page = (site / "methods" / f"{name}.html").read_text("utf-8")
        assert all(p.flag in page for p in method.params)
        assert "<math" in page
        if method.classifies and "multiclass" not in method.defaults:
            assert (site / "methods" / f"{name}.svg").read_text("utf-8").startswith("<?xml")
    assert "margin-train [options] training_set_file" in (site / "commands.html").read_text("utf-8")
    assert 'id="marginlinear.train"' in (site / "api" / "marginlinear.html").read_text("utf-8")


def test_formulas(site, monkeypatch):
    """Of what the package has in ASCII; and the font has a sign for each character."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    latex = importlib.import_module("typeset").latex
    assert latex("1/2 ||w||^2 - lambda1 ghat") == r"\tfrac{1}{2} \|w\|^{2} - \lambda_{1} \hat{g}"
    assert latex("sum_{l != y_i} a_il (w_{y_i} - w_l).x_i") == (
        r"\sum _{l \ne  y_{i}} a_{il} (w_{y_{i}} - w_{l}) \cdot x_{i}")
    assert latex("{i : g_i < rho},  K R^-1, sqrt(x^2 + 1)^(2/p)") == (
        r"\{i : g_{i} < \rho \}, \quad K R^{-1}, \sqrt{x^{2} + 1}^{2/p}")
    known = set(map(chr, importlib.import_module("fontTools.ttLib").TTFont(site / "math.woff").getBestCmap()))
    for page, text in texts(site).items():
        used = set(html.unescape(re.sub("<[^>]*>", "", "".join(re.findall("<math.*?</math>", text)))))
        assert used <= known, (page, used - known)


def test_charts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    charts = importlib.import_module("charts")
    rows = [{"data": "d", "method": method, "accuracy": right, "low": right - 0.1, "high": right + 0.1, "seconds": 2.0,
             "megabytes": 30} for method, right in (("LinearSVC", 0.6), ("l2svc", 0.6), ("mcodm", 0.8))]
    (tmp_path / "compared.json").write_text(json.dumps({"rows": rows}), "utf-8")
    made = charts.compared(tmp_path / "compared.json")
    assert '<i style="left: 0.0%; right: 60.0%"></i><b style="left: 20.0%"></b>' in made
    assert "| d | 60.0% (50.0% to 70.0%) | 2, 30 | 2, 30 | 80.0% (70.0% to 90.0%) | 2, 30 |" in made
    assert charts.compared(tmp_path / "none.json") == ""
    assert charts.ratios().count("<tr>") > 20


def test_site_asks_no_other(site):
    """Scripts, styles, fonts and pictures are the site's own; links in the text may lead anywhere."""
    for page, text in texts(site).items():
        loaded = re.findall(r"""<(?:script|img|link)[^>]*(?:src|href)=["']([^"']*)""", text)
        assert loaded and not [place for place in loaded if re.match("(https?:)?//", place)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text("utf-8")), sheet


def test_site_shows_no_patterns(site):
    """Neither what stands for any number in a block that is tested, nor what its test is told, is for readers."""
    for page, text in texts(site).items():
        assert not re.search(r"<!-- (needs|not run|make)", text), page
        for block in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL):
            shown = re.sub(r"<[^>]*>", "", block)
            assert not re.search(r"\d\.\.\.|= -?\.\.\.|\.\.\.[%/]", shown), f"{page}: {shown}"


def test_site_has_no_dead_links(site):
    pages = texts(site)
    ids = {page: set(re.findall(r"""\bid=["']?([^"'\s>]+)""", text)) for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in re.findall(r"""<a\s[^>]*?href=["']?([^"'\s>]*)""", text):
            place, anchor = urldefrag(unquote(urljoin(f"http://site/{page}", link)))
            path = place.removeprefix("http://site/")
            if not place.startswith("http://site/") or page == "404.html":
                continue
            if not (site / path).exists() or (anchor and path in ids and anchor not in ids[path] | {"__toc", "__top"}):
                dead.append(f"{page}: {link}")
    assert not dead, "\n".join(dead)


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with api.sync_playwright() as play:
        chromium = shutil.which("chromium") or shutil.which("google-chrome") or play.chromium.executable_path
        if not Path(chromium).exists():
            pytest.skip("apt install chromium, or playwright install chromium")
        running = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def address(site):
    """The site, served."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_site_in_a_browser(site, address, browser):
    """On a phone's screen: nothing on the console, no other host, no scrolling sideways, contrast for all eyes (AA)."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    page = browser.new_page(viewport={"width": 360, "height": 740})
    wrong = []
    page.on("console", lambda message: message.type in ("error", "warning") and wrong.append((page.url, message.text)))
    page.on("pageerror", lambda error: wrong.append((page.url, error)))
    page.on("request", lambda sent: sent.url.startswith(address) or wrong.append((page.url, sent.url)))
    # One part of the study stands for the others, whose reports one function made.
    parts = [f"evidence/study/{part}.html" for part in study.PARTS]
    kinds = []
    for name in sorted(texts(site).keys() - set(parts[1:])):
        page.goto(address + name)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 360:
            wrong.append((name, f"{width} pixels wide"))
        kinds += (new := page.evaluate(FIRST_OF_A_KIND, kinds))
        for scheme, themes in SCHEMES.items() if new else ():
            page.emulate_media(color_scheme=scheme)
            page.wait_for_selector(f"body[data-md-color-scheme='{themes}']")
            found = axe.run(page, options={"runOnly": ["color-contrast"], "resultTypes": ["violations"]})
            wrong += [(name, scheme, node["html"][:200], node["any"][0]["message"])
                      for rule in found.response["violations"] for node in rule["nodes"]]
    page.close()
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("served", [True, False])
def test_search_finds_a_page(site, address, browser, served):
    """On the web and in pages that are opened as files, in a folder below."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((address if served else site.as_uri() + "/") + "methods/odm.html")
    page.keyboard.press("s")
    page.keyboard.type("semi-variance")
    page.wait_for_selector(".md-search-result__link[href*='methods/msv']", timeout=20_000)
    page.close()
