"""The page in a real browser: marked words, escaped text, and use by keyboard.

Screenshots are kept in a temporary folder, or in the one that the variable QUARRY_SCREENSHOTS names.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="serving needs the extra server")
pytest.importorskip("uvicorn", reason="serving needs the extra server")
pytest.importorskip("selenium", reason="the page is tested with selenium")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.indexes.word_encoder import WordEncoder
from support.processes import until
from support.server.running_server import READ_KEY, RunningServer, running

from quarry import engine
from quarry.server import Access, app

ENCODER = WordEncoder()
FLAGS = """
--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,900
"""
FILLING = " ".join(f"Filler number {n} says little that anybody would ask for." for n in range(40))
DOCUMENTS = [
    {
        "id": "odd/1 é",
        "title": "Tides 🌊🌊",
        "text": f"{FILLING} 🌊 The moon 🌙 pulls the sea twice a day. {FILLING}",
        "metadata": {"kind": "sea", "tags": ["water", "sky"], "year": 2021},
    },
    {
        "id": "<b>2</b>",
        "title": "<script>window.broken = 1</script>",
        "text": "comet <script>window.broken = 1</script> <img src=x onerror='window.broken = 1'> &amp; comet",
        "metadata": {"kind": "<i>sky</i>", "year": 2022},
    },
    {"id": "قمر", "title": "القمر والمد", "text": "يرفع القمر مياه البحر كل يوم lunar!\n(A note.)"},
    *(
        {"id": f"moon {n}", "title": f"Moon {n}", "text": f"the moon number{n} rises", "metadata": {"kind": kind}}
        for n, kind in enumerate(["sky", "sky", "sea"] * 5)
    ),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "notes"
    engine.build(DOCUMENTS, path, encoder=ENCODER)
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[RunningServer]:
    with app([path], encoder=ENCODER) as served, running(served) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("the page is tested in Chromium, with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The page of a server in the browser."""

    def __init__(self, browser: Any, server: RunningServer, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        browser.get("about:blank")
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get(server.url)
        self.settle()

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def one(self, selector: str) -> Any:
        found: list[Any] = []
        until(lambda: found.extend(self.all(selector)) or found)
        return found[0]

    def settle(self) -> None:
        """Wait until no answer is awaited, so that no element is replaced any more."""
        until(lambda: not self.all("[aria-busy=true]"))

    def click(self, selector: str, place: int = 0) -> None:
        """Click an element and wait for the answer to what it asks for."""
        until(lambda: len(self.all(selector)) > place)
        self.all(selector)[place].click()
        self.settle()

    def texts(self, selector: str) -> list[str]:
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(each => each.textContent)", selector
        )

    def type(self, text: str) -> None:
        field = self.one("#query")
        field.clear()
        field.send_keys(text)

    def search(self, text: str) -> None:
        """Type a query and wait for its answer."""
        self.type(text)
        until(lambda: self.browser.title.startswith(text) and "result" in self.one("#status").text)
        self.settle()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        return str(self.browser.switch_to.active_element.get_attribute("id") or self.focused_hit())

    def focused_hit(self) -> int:
        return int(self.run("return [...document.querySelectorAll('.hit')].indexOf(document.activeElement)"))

    def run(self, script: str) -> Any:
        return self.browser.execute_script(script)

    def keep(self, name: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        assert self.browser.save_screenshot(str(self.folder / f"{name}.png"))


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[[RunningServer], Page]]:
    """Return a function that opens the page of a server; check at the end that it caused no warning or error."""
    folder = Path(os.environ.get("QUARRY_SCREENSHOTS") or tmp_path / "screenshots")
    browser.get_log("browser")
    yield lambda server: Page(browser, server, folder)
    messages = [entry["message"] for entry in browser.get_log("browser")]
    harmless = (
        "status of",
        "Autofocus processing was blocked",
    )  # answers with errors; the dialog for a key was faster
    assert [message for message in messages if not any(each in message for each in harmless)] == []


@pytest.fixture
def page(open_page: Callable[[RunningServer], Page], server: RunningServer) -> Page:
    return open_page(server)


def test_the_passage_and_the_words_that_matched_are_marked(page: Page, path: Path) -> None:
    with engine.Engine.open(path, encoder=ENCODER) as index:
        hit = index.search("moon pulls sea", k=1, explain=True)[0]
    assert hit.id == "odd/1 é"
    best = hit.passages[0]
    page.search("moon pulls sea")
    assert page.texts(".hit:first-child .passage")[0] == best.text
    assert page.texts(".hit:first-child .passage:first-of-type mark") == [
        best.text[low:high] for low, high in best.words
    ]
    assert {"moon", "pulls", "sea"} <= set(page.texts(".hit:first-child mark"))
    page.click(".acts button")
    text = page.one(".hit:first-child .text")
    full = f"{DOCUMENTS[0]['title']}\n{DOCUMENTS[0]['text']}"
    assert text.get_property("textContent") == full
    assert page.texts(".hit:first-child .span.best") == [full[low:high] for low, high in best.spans]
    assert page.texts(".hit:first-child .text mark") == [full[word.start : word.end] for word in hit.words]
    assert "🌙" in page.texts(".hit:first-child .span.best")[0]
    page.keep("document")


def test_what_documents_hold_is_text(page: Page, server: RunningServer) -> None:
    page.search("comet")
    assert page.texts(".hit:first-child h2") == ["<script>window.broken = 1</script>"]
    assert "<img src=x onerror='window.broken = 1'> &amp; comet" in page.texts(".hit:first-child .passage")[0]
    page.click(".acts button")
    page.one(".hit:first-child .text")
    page.click(".acts button:nth-child(2)")
    page.search("moon comet")
    until(lambda: "<i>sky</i>" in page.texts("#facets label span"))
    assert page.run("return window.broken") is None
    assert page.all("#results script, #results img, #facets i") == []


def test_each_text_has_the_direction_of_its_script(page: Page) -> None:
    """Results in Arabic begin at the right, those beside them at the left, and so does each line of a result."""
    page.search("القمر lunar note")
    page.click(".hit:first-child .acts button")
    page.one(".hit:first-child .text")
    directions = """return [...document.querySelectorAll('.hit')].map(hit => [...hit.querySelectorAll(
        'h2, .where, .passage, .text, dd')].map(each => getComputedStyle(each).direction))"""
    arabic, *others = page.run(directions)
    assert arabic == ["rtl"] * 5
    assert others
    assert {direction for each in others for direction in each} == {"ltr"}
    bars = """return ['Left', 'Right'].map(side => parseFloat(
        getComputedStyle(document.querySelector('.passage'))[`border${side}Width`]))"""
    assert page.run(bars) == [0, 3]
    assert page.texts(".hit:first-child .passage mark") == ["القمر", "lunar", "note"]
    places = """return [...document.querySelectorAll('.hit:first-child :is(.passage, .passage mark)')].map(
        each => { const place = each.getBoundingClientRect(); return [place.left, place.right]; })"""
    passage, moon, lunar, note = page.run(places)
    assert passage[0] < note[1] < sum(passage) / 2 < lunar[0] < lunar[1] < moon[0]
    page.click(".hit:first-child .acts button:nth-child(2)")
    assert page.texts(".hit:first-child .terms bdi") != []
    page.keep("right-to-left")


def test_only_what_the_page_itself_holds_may_run(server: RunningServer) -> None:
    answer = server.ask("GET", "/")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    html = answer.body.decode()
    for kind in ("script", "style"):
        (content,) = re.findall(f"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        assert (
            policy[f"{kind}-src"]
            == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
        )
    assert re.findall(r"https?://(?!www\.w3\.org/)[^\s\"']+", html) == []
    assert "innerHTML" not in html
    assert " style=" not in html


def test_an_index_that_disappears_is_an_error_that_ends(page: Page, path: Path) -> None:
    page.search("moon")
    path.rename(path.with_name("away"))
    try:
        page.type("moon rises")
        until(lambda: page.texts("#problem h2"))
        assert page.texts("#problem h2") == ["The index cannot be searched right now"]
        assert page.one("#problem").get_attribute("role") == "alert"
        assert page.all(".hit") == []
        page.keep("error")
    finally:
        path.with_name("away").rename(path)
    page.click("#problem button")
    until(lambda: page.all(".hit"))
    assert page.texts("#problem h2") == []


SLOW_FETCH = """
const usual = window.fetch;
window.requests = [];
window.fetch = async (path, options) => {
  const body = options?.body ?? "";
  window.requests.push(body);
  const answer = await usual(path, {...options, signal: undefined});
  if (body.includes('"comet"')) { await new Promise(resolve => setTimeout(resolve, 600)); window.late = true; }
  return answer;
};
"""


def test_answers_that_come_late_are_dropped(page: Page) -> None:
    page.search("moon")
    page.run(SLOW_FETCH)
    page.type("comet")
    until(lambda: any('"comet"' in body for body in page.run("return window.requests")))
    page.search("sea")
    shown = page.texts(".hit h2")
    until(lambda: page.run("return window.late"))
    assert page.texts(".hit h2") == shown
    assert page.browser.title.startswith("sea")


def test_a_query_typed_while_the_page_loads_is_kept(page: Page, server: RunningServer, browser: Any) -> None:
    slow = """
        const usual = window.fetch, ready = new Promise(resolve => { window.letGo = resolve; });
        window.fetch = (...request) => ready.then(() => usual(...request));
    """
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": slow})
    browser.get("about:blank")
    browser.get(f"{server.url}#q=sea&mode=lexical")
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    page.type("moon")
    page.run("window.letGo()")
    until(lambda: browser.title.startswith("moon"))
    assert page.one("#query").get_property("value") == "moon"
    assert page.one("[value=lexical]").is_selected()


def test_not_every_key_is_a_search(page: Page) -> None:
    page.search("moon")
    page.run(SLOW_FETCH)
    page.run(
        "const field = document.getElementById('query');"
        "for (const end of ['s', 'se', 'sea']) { field.value = end; field.dispatchEvent(new Event('input')); }"
    )
    until(lambda: page.browser.title.startswith("sea"))
    assert len(page.run("return window.requests.filter(body => body.includes('mode'))")) == 1


def test_results_are_narrowed_down(page: Page) -> None:
    page.search("moon")
    labels = {label.text.split()[0]: label for label in page.all("#facets label") if label.text}
    assert page.texts("#facets legend") == ["kind"]
    labels["sea"].click()
    page.settle()
    assert page.texts("#applied button") == ["kind: sea ×"]
    assert len(page.all(".hit")) == 6
    counts = dict(zip(page.texts("#facets label span"), page.texts("#facets label small"), strict=True))
    assert (counts["sea"], counts["sky"]) == ("6", "10")
    page.keep("filters")
    page.click("#applied button")
    until(lambda: len(page.all(".hit")) == 10)


def test_filters_follow_the_query_and_are_kept_in_the_address(
    open_page: Callable[[RunningServer], Page], browser: Any, tmp_path: Path
) -> None:
    documents = [
        {
            "id": f"{n}",
            "text": f"the lamp number{n} " + "shines" * (n < 20),
            "metadata": {
                "price": n + 0.5,
                "day": f"2025-01-{n + 1:02}T10:00",
                "file": {"type": "pdf" if n % 3 else "text"},
            },
        }
        for n in range(30)
    ]
    engine.build(documents, tmp_path / "lamps", encoder=ENCODER)
    with app([tmp_path / "lamps"], encoder=ENCODER) as served, running(served) as server:
        page = open_page(server)
        page.search("lamp")
        until(lambda: page.texts("#facets legend") == ["price", "day", "file.type"])
        assert page.texts("#facets label small") == ["20", "10"]
        page.search("shines")
        until(lambda: page.texts("#facets label small") == ["13", "7"])
        page.one("[aria-label='price from']").send_keys("3.5" + Keys.TAB)
        until(lambda: page.texts("#applied button") == ["price: 3.5 – … ×"])
        page.run(
            "const day = document.querySelector(\"[aria-label='day to']\"); day.value = '2025-01-06';"
            "day.dispatchEvent(new Event('change'))"
        )
        until(lambda: len(page.all(".hit")) == 3)
        address = browser.current_url
        browser.get("about:blank")
        browser.get(address)
        until(lambda: len(page.all(".hit")) == 3)
        assert page.texts("#applied button") == ["price: 3.5 – … ×", "day: … – 2025-01-06 ×"]
        until(lambda: page.all("[aria-label='day to']"))
        assert page.one("[aria-label='day to']").get_property("value") == "2025-01-06"
        page.click("#applied button")
        until(lambda: len(page.all(".hit")) == 6)
        for odd in ("{", '{"chosen": [[1, 2]], "ranges": [["price", [null, null]]]}', "null", "[]"):
            browser.get("about:blank")
            browser.get(f"{server.url}#q=lamp&filters={odd}")
            until(lambda: len(page.all(".hit")) == 10)
            assert page.texts("#applied button") == []
        browser.get("about:blank")  # a request that the end of the server cuts off would be an error


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Serve the products of the example."""
    path = tmp_path_factory.mktemp("page") / "shop"
    made = runpy.run_path(str(Path(__file__).resolve().parents[3] / "examples" / "shop.py"))
    engine.build(made["products"](300), path, encoder=ENCODER, searchable=["sku", "brand", "tags"])
    with app([path], encoder=ENCODER) as served, running(served) as server:
        yield server


@pytest.fixture
def shop_page(open_page: Callable[[RunningServer], Page], shop: RunningServer) -> Iterator[Page]:
    page = open_page(shop)
    yield page
    page.browser.get("about:blank")


def fields_of_hits(page: Page) -> list[dict[str, str]]:
    """Return the fields that each hit shows."""
    script = """
        return [...document.querySelectorAll('.hit')].map(hit =>
            [...hit.querySelectorAll('.fields div')].map(each => [...each.children].map(part => part.textContent)))
    """
    return [dict(pairs) for pairs in page.run(script)]


def sort_by(page: Page, value: str) -> None:
    page.browser.execute_script(
        "const sort = document.getElementById('sort'); sort.value = arguments[0];"
        "sort.dispatchEvent(new Event('change'))",
        value,
    )


def test_hits_show_fields_that_can_be_chosen(shop_page: Page, browser: Any) -> None:
    page = shop_page
    page.search("kettle")
    hits = fields_of_hits(page)
    assert [list(hit) for hit in hits] == [["sku", "brand", "price", "stock.count", "rating", "published"]] * 10
    assert all(re.fullmatch(r"SKU-\d{5}", hit["sku"]) and float(hit["price"]) > 0 for hit in hits)
    assert page.texts("#shown label") == ["sku", "brand", "price", "stock.count", "rating", "published", "tags"]
    page.click("#columns summary")
    page.keep("fields")
    assert {each.accessible_name for each in page.all("#sort, #shown")} == {"Order", "Fields of results"}
    metrics = {"width": 320, "height": 700, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert page.run("return document.documentElement.scrollWidth") <= 320
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for name in ("sku", "stock.count", "rating", "published", "tags"):
        next(each for each in page.all("#shown label") if each.text == name).click()
    until(lambda: {tuple(hit) for hit in fields_of_hits(page)} == {("brand", "price", "tags")})
    assert all(hit["tags"].startswith("kitchen, ") for hit in fields_of_hits(page))
    address = browser.current_url
    assert address.endswith("#q=kettle&show=brand&show=price&show=tags")
    browser.get("about:blank")
    browser.get(address)
    until(lambda: {tuple(hit) for hit in fields_of_hits(page)} == {("brand", "price", "tags")})
    browser.get(address.split("&")[0] + "&show=")
    until(lambda: set(map(len, fields_of_hits(page))) == {0})


def test_hits_are_sorted_by_numbers_and_dates(shop_page: Page, shop: RunningServer, browser: Any) -> None:
    page = shop_page
    page.search("kettle")
    assert page.texts("#sort option") == [
        "Best match",
        *(
            f"{name}: {which} first"
            for name in ("price", "stock.count", "rating")
            for which in ("lowest", "highest")
        ),
        *(f"published: {which} first" for which in ("oldest", "newest")),
    ]
    for order, name in (("price", "price"), ("-price", "price"), ("-published", "published")):
        sort_by(page, order)
        request = {"query": "kettle", "mode": "lexical", "sort": order, "total": True}
        wanted = shop.search("shop", **request).json
        shown = [str(hit["metadata"][name]) for hit in wanted["hits"]]
        until(lambda name=name, shown=shown: [hit[name] for hit in fields_of_hits(page)] == shown)
        assert page.one("#status").text.startswith(f"10 of {wanted['total']} results")
        assert page.one("[value=lexical]").is_selected()
    address = browser.current_url
    assert address.endswith("#q=kettle&mode=lexical&sort=-published")
    browser.get("about:blank")
    browser.get(address)
    until(lambda: [hit["published"] for hit in fields_of_hits(page)] == shown)
    assert page.one("#sort").get_property("value") == "-published"

    page.click("#clear")  # all products, the newest first
    until(lambda: "10 of 300 results" in page.one("#status").text)
    page.click(".acts button", 1)
    until(lambda: "Ranked by" in page.one(".panel").text and "published" in page.one(".panel").text)
    page.click(".modes label", 0)  # by meaning nothing is sorted, and without a query nothing is found
    until(lambda: "sort" not in browser.current_url and not page.all(".hit"))
    assert page.one("#sort").get_property("value") == ""

    browser.get("about:blank")
    browser.get(f"{shop.url}#q=kettle&sort=nonsense")
    until(lambda: page.texts("#problem h2") == ["The search failed"])
    sort_by(page, "")
    until(lambda: len(page.all(".hit")) == 10)


def test_filters_alone_find_documents(shop_page: Page) -> None:
    page = shop_page
    page.search("kettle")
    until(lambda: page.texts("#facets legend"))
    next(each for each in page.all("#facets label") if each.text.startswith("Pallas")).click()
    until(lambda: page.texts("#applied button") == ["brand: Pallas ×"])
    page.click("#clear")
    until(lambda: {hit["brand"] for hit in fields_of_hits(page)} == {"Pallas"} and not page.all("mark"))
    page.click("#applied button")
    until(lambda: not page.all(".hit"))


def test_facets_follow_what_is_typed(shop_page: Page, shop: RunningServer) -> None:
    page = shop_page
    page.type("kettl")
    request = {"fields": ["brand"], "query": "kettl", "prefix": True, "limit": 8}
    counted = shop.post("/v1/indexes/shop/facets", request).json["facets"]["brand"]["values"]
    wanted = [f"{each['value']}{each['n_documents']}" for each in counted]
    until(lambda: page.texts("#facets fieldset:first-child label") == wanted)
    assert 1 < sum(each["n_documents"] for each in counted) < 100


def test_the_requests_are_described_on_a_page(page: Page, server: RunningServer, browser: Any) -> None:
    browser.get(f"{server.url}docs")
    until(lambda: len(page.all("details")) == 17)
    search = next(each for each in page.all("details") if "/search –" in each.text)
    search.find_element(By.CSS_SELECTOR, "summary").click()
    assert "min_relevance" in search.text
    assert "innerHTML" not in browser.page_source


def test_more_results_can_be_had(page: Page) -> None:
    page.search("moon")
    page.click("#further")
    until(lambda: len(page.all(".hit")) > 10)
    until(lambda: page.focused_hit() == 10)


def test_the_page_is_used_with_keys(page: Page) -> None:
    page.search("moon")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert page.focused_hit() == 1
    page.press(Keys.ENTER)
    until(lambda: page.all(".hit:nth-child(2) .text"))
    page.press("e")
    assert page.one(".hit:nth-child(2) .acts button:nth-child(2)").get_attribute("aria-expanded") == "true"
    assert page.texts(".hit:nth-child(2) .parts dt")[-1].startswith("Ranked by")
    page.keep("explanation")
    page.press(Keys.ARROW_UP, Keys.ARROW_UP)
    assert page.focused() == "query"
    page.press(Keys.ARROW_DOWN, "/")
    assert page.focused() == "query"
    page.press(Keys.ESCAPE)
    until(lambda: not page.all(".hit"))
    assert page.one("#query").get_property("value") == ""
    page.type("a/b e")
    assert page.one("#query").get_property("value") == "a/b e"


def test_everything_has_a_name_for_screen_readers(page: Page) -> None:
    page.search("moon")
    for each in page.all("input, button, select, section, aside, ol"):
        if each.is_displayed():
            assert each.accessible_name, each.get_attribute("outerHTML")[:200]
    assert page.one("#status").get_attribute("aria-live") == "polite"
    assert page.one(".hit").accessible_name == page.texts(".hit h2")[0]
    assert page.one("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_narrow_screens_in_both_colors(page: Page, scheme: str) -> None:
    metrics = {"width": 320, "height": 700, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.search("moon pulls sea")
    page.run("document.querySelectorAll('.hit:first-child .acts button').forEach(button => button.click())")
    page.one(".hit:first-child .text")
    assert page.run("return document.documentElement.scrollWidth") <= 320
    page.keep(f"narrow-{scheme}")
    assert contrast(page, ".hit h2") >= 7
    for selector in (".where", ".relevance b", ".acts button", "mark", "#status"):
        assert contrast(page, selector) >= 4.5, selector


CONTRAST = """
const luminance = color => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(each => each / 255)
    .map(each => each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const element = document.querySelector(arguments[0]);
let ground = element;
while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
const colors = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor];
const [low, high] = colors.map(luminance).sort((a, b) => a - b);
return (high + .05) / (low + .05);
"""


def contrast(page: Page, selector: str) -> float:
    """Return the contrast ratio of a text and its background, as WCAG 2 defines it."""
    return float(page.browser.execute_script(CONTRAST, selector))


def test_a_key_is_asked_for(path: Path, open_page: Callable[[RunningServer], Page]) -> None:
    access = Access(read_key=READ_KEY)
    with app({"one": path, "two": path}, encoder=ENCODER, access=access) as served, running(served) as server:
        page = open_page(server)
        page.one("#problem input[type=password]").send_keys("not the key" + Keys.ENTER)
        until(lambda: page.texts("#problem h2") == ["This key is not valid"])
        page.one("#problem input[type=password]").send_keys(READ_KEY + Keys.ENTER)
        until(lambda: page.texts("#index option") == ["one", "two"])
        page.search("moon")
        assert len(page.all(".hit")) == 10
        assert READ_KEY not in page.browser.current_url
        page.run(
            "document.getElementById('index').value = 'two';"
            "document.getElementById('index').dispatchEvent(new Event('change'))"
        )
        until(lambda: "index=two" in page.browser.current_url and len(page.all(".hit")) == 10)
        page.browser.get("about:blank")  # a request that the end of the server cuts off would be an error


def test_a_query_is_kept_in_the_address(page: Page, server: RunningServer, browser: Any) -> None:
    page.search("moon pulls")
    page.click(".modes label", 2)
    until(lambda: "mode=lexical" in browser.current_url)
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    until(lambda: len(page.all(".hit")) == 10)
    assert page.one("#query").get_property("value") == "moon pulls"
    assert page.one("[value=lexical]").is_selected()


def test_passages_are_shown_whole_with_their_words_marked(page: Page, browser: Any) -> None:
    page.search("moon pulls the sea twice")
    page.click(".modes label", 4)
    assert "unit=passage" in browser.current_url
    assert page.texts(".hit:first-child mark")[:2] == ["moon", "pulls"]
    (passage,) = page.texts(".hit:first-child .passage")
    assert "twice a day. Filler number 0 says" in passage
    page.click(".modes label", 3)
    assert "unit" not in browser.current_url


def test_a_query_that_cannot_be_searched_for_is_explained(page: Page) -> None:
    page.type("...")
    until(lambda: page.texts("#problem h2") == ["This cannot be searched for"])
