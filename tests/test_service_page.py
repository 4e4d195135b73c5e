"""The page at /, in a real Chromium: it shows the service's numbers, needs no mouse, and asks nobody else."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from metabandit.service.keys import made_key
from metabandit.service.stores import store_of
from tests.chromium import chromium, look
from tests.service_page import ARMS, Users, make, service, settled, until, visit

__all__ = ["chromium"]  # a fixture

PAGE = Path(__file__).resolve().parent.parent / "src" / "metabandit" / "service" / "page"
NASTY_TASK = """<script>document.title='owned'</script> "O'Neil" & <img src=x onerror=alert(1)>"""
NASTY_ARM = """<b id="bold">'urgent' & "co"</b>"""
WATCH = """
window.faults = [];
document.addEventListener("securitypolicyviolation", (event) => window.faults.push("CSP: " + event.violatedDirective));
window.addEventListener("error", (event) => window.faults.push("error: " + event.message));
window.addEventListener("unhandledrejection", (event) => window.faults.push("rejection: " + event.reason));
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with bandits in every state."""
    with service(tmp_path_factory.mktemp("page")) as address:
        with httpx.Client(base_url=address, timeout=60.0) as client:
            users = Users([NASTY_TASK, *[f"user-{i}" for i in range(39)]], seed=1)
            make(client, "templates")
            for _ in range(10):
                visit(client, "templates", ARMS, users, list(range(40)), kept=0.9)
            make(client, "nasty", ["short", NASTY_ARM], reward="real")
            visit(client, "nasty", ["short", NASTY_ARM], users, list(range(40)))
            make(client, "undecided")
            make(client, "unrewarded")
            visit(client, "unrewarded", ARMS, users, [1, 2, 3], kept=0.0)
            make(client, "counts", reward="count")
            for number in (1, 2):
                one = (
                    client.post("/v1/bandits/counts/decisions", json=users.request(number))
                    .raise_for_status()
                    .json()
                )
                reward = {"decision": one["id"], "reward": 3, "exposure": 1.5}
                client.post("/v1/bandits/counts/rewards", json=reward).raise_for_status()
            make(client, "yes-or-no", reward="binary")
            client.patch("/v1/bandits/yes-or-no", json={"paused": True}).raise_for_status()
        yield address


class Page:
    """A browser at a service."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address
        self.client = httpx.Client(base_url=address, timeout=60.0)
        self.seen: list[str] = []

    def go(self, place: str = "", width: int = 1400, dark: bool = False) -> None:
        """Open a place, as from a bookmark."""
        look(self.driver, width, 900, dark)
        self.seen += self.js("window.faults ?? []")
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/{place}")
        until(self.driver, "document.querySelector('main h1[tabindex]') !== null")

    def js(self, expression: str) -> Any:
        return self.driver.execute_script(f"return {expression}")

    def until(self, condition: str) -> Any:
        return until(self.driver, condition)

    def refresh(self) -> None:
        """What happens by itself every few seconds, and when the tab is looked at again."""
        self.driver.execute_script("document.dispatchEvent(new Event('visibilitychange'))")

    def press(self, *keys: str) -> None:
        """Keys to whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def text(self, selector: str = "main") -> str:
        return str(self.js(f"document.querySelector('{selector}').innerText"))

    def values(self, selector: str) -> list[float]:
        """The exact numbers behind what is shown."""
        found = self.js(
            f"[...document.querySelectorAll('{selector} data')].map((one) => [one.value, one.textContent])"
        )
        for value, shown in found:
            assert agrees(float(value), shown), f"{shown} stands for {value}"
        return [float(value) for value, _ in found]

    def faults(self) -> list[str]:
        """What went wrong in the page since this was asked last."""
        logged = [entry["message"] for entry in self.driver.get_log("browser")]
        found, self.seen = [*self.seen, *self.js("window.faults"), *logged], []
        return found


def agrees(value: float, shown: str) -> bool:
    """Whether what is shown is the number, rounded to the digits it has."""
    plain = shown.replace(",", "").replace("−", "-").replace("+", "").replace("\u00a0", " ")
    scale = 0.01 if plain.endswith(" %") else 1.0
    plain = plain.removesuffix(" %")
    decimals = len(plain.partition(".")[2]) if "e" not in plain else 0
    if "e" in plain:
        return abs(float(plain) - value) <= 0.005 * abs(value)
    return abs(float(plain) - value / scale) <= 0.5001 * 10.0**-decimals


def test_agreeing_is_strict() -> None:
    assert agrees(1234.5, "1,234.5")
    assert agrees(-0.126, "−0.13")
    assert agrees(0.4249, "42\u00a0%")
    assert not agrees(1234.5, "1,234.6")
    assert not agrees(0.126, "−0.13")
    assert not agrees(0.4349, "42 %")


@pytest.fixture
def page(chromium: Any, world: str) -> Iterator[Page]:
    """The browser at the service; nothing may go wrong in it meanwhile."""
    yield from watched(chromium, world)


def watched(driver: Any, address: str) -> Iterator[Page]:
    driver.get_log("browser")
    driver.execute_cdp_cmd("Page.enable", {})
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})["identifier"]
    page = Page(driver, address)
    yield page
    faults = page.faults()
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
    driver.get("about:blank")
    page.client.close()
    assert faults == []


# -- numbers -------------------------------------------------------------------------------------------------


def test_the_list_shows_every_bandit(page: Page) -> None:
    page.go()
    rows = page.js(
        "[...document.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    known = page.client.get("/v1/bandits").json()["bandits"]
    assert [row[0] for row in rows] == [one["name"] for one in known]
    assert [row[1] for row in rows] == ["paused" if one["paused"] else "active" for one in known]
    for row, one in zip(rows, known, strict=True):
        assert row[2:6] == [
            f"{n:,}" for n in (len(one["arms"]), one["tasks"], one["decisions"], one["rewards"])
        ]


def test_the_report_is_that_of_the_service(page: Page) -> None:
    report = settled(page.client, "templates")
    page.go("#bandit=templates")
    page.until("document.querySelector('#variances') !== null")
    gains = [gain["gain"] for gain in report["gains"]]
    figures = [report[name] for name in ("tasks", "decisions", "rewards")]
    assert page.values("#figures") == [
        *figures,
        *[gain[k] for gain in gains for k in ("value", "low", "high")],
    ]
    assert gains
    share = [number for arm in report["arms"] for number in (arm["share"], arm["decisions"])]
    means = [number for arm in report["arms"] for number in (arm["mean"], arm["rewards"])]
    assert page.values("#arms") == [*share, *means]
    ways = [report["gains"][0]["earned"], *[gain["other"] for gain in report["gains"]]]
    assert page.values("#gains") == [one[k] for one in [*gains, *ways] for k in ("value", "low", "high")]
    assert sorted(page.values("#effects")) == sorted(
        one[k] for one in report["coefficients"] for k in ("mean", "low", "high")
    )
    assert page.values("#variances tbody") == [one["value"] for one in report["variances"]]
    assert len(report["coefficients"]) == len(ARMS) * 7  # intercept, visits, three countries, two plans


def test_effects_stand_beside_their_column_and_arm(page: Page) -> None:
    report = settled(page.client, "templates")
    page.go("#bandit=templates")
    found = page.js("""[...document.querySelectorAll('#effects tbody')].flatMap((body) =>
        [...body.querySelectorAll('tr:not(.group)')].map((row) => [
          body.closest('table').caption.textContent, body.querySelector('.group')?.textContent ?? '',
          row.querySelector('.name').textContent, Number(row.querySelector('data').value)]))""")
    names = {"Average level of each arm": "intercept", "visits, for one more": "visits"}
    shown = {(names.get(column) or f"{column}[{level}]", arm): mean for column, level, arm, mean in found}
    assert shown == {(one["column"], one["arm"]): one["mean"] for one in report["coefficients"]}


def test_marks_are_where_the_numbers_say(page: Page) -> None:
    """A line through (value, position) of the dots of one axis goes through all of them, and through the ticks."""
    page.go("#bandit=templates")
    pairs = page.js("""[...document.querySelectorAll('#effects .panel')].map((panel) => [
        [...panel.querySelectorAll('tbody tr:not(.group)')].map((row) =>
          [Number(row.querySelector('data').value), parseFloat(row.querySelector('circle').getAttribute('cx'))]),
        [...panel.querySelectorAll('.axis text:not(.title)')].map((tick) =>
          [Number(tick.textContent.replace('−', '-')), parseFloat(tick.getAttribute('x'))])])""")
    for dots, ticks in pairs:
        (x0, y0), (x1, y1) = min(dots), max(dots)
        assert x1 > x0
        assert len(ticks) >= 2
        for x, y in [*dots, *ticks]:
            assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=0.05)


def test_the_timeline_adds_up(page: Page) -> None:
    report = settled(page.client, "templates")
    page.go("#bandit=templates")
    page.driver.execute_script("document.querySelector('details').open = true")
    rows = page.js("""[...document.querySelectorAll('#time details tr:has(td)')].map((row) =>
        [...row.cells].slice(1).map((cell) => cell.innerText))""")
    sums = [sum(int(row[j].replace(",", "")) for row in rows) for j in range(len(ARMS) + 2)]
    assert sums == [*[arm["decisions"] for arm in report["arms"]], report["decisions"], report["rewards"]]
    labels = page.js(
        "[...document.querySelectorAll('#time canvas')].map((one) => one.getAttribute('aria-label'))"
    )
    assert len(labels) == 3
    assert f"{report['decisions']:,} decisions" in labels[0]


def test_the_explanation_is_that_of_the_service(page: Page) -> None:
    why = page.client.get("/v1/bandits/templates/explanation", params={"task": "user-3"}).json()
    page.go("#bandit=templates&task=user-3")
    page.until("document.querySelector('#belief') !== null")
    wanted = []
    for arm in why["arms"]:
        own = [] if arm["own_mean"] is None else [arm["own_mean"]]
        wanted += [arm["prior_mean"], arm["prior_sd"], *own, arm["mean"], arm["sd"]]
    assert page.values("#belief") == wanted
    while page.js("document.querySelectorAll('[data-more][aria-expanded=false]').length"):
        page.driver.execute_script("document.querySelector('[data-more][aria-expanded=false]').click()")
    assert page.values("#features") == [one["adds"] for one in why["features"]]
    assert page.values("#others") == [one["weight"] for one in why["tasks"]]
    assert len(why["features"]) > 10
    words = page.text("#belief")
    for arm in why["arms"]:
        if arm["pulls"]:
            assert f"from its own {arm['pulls']:g} reward" in words
            share = re.search(rf"([\d.]+)\s% from its own {arm['pulls']:g} reward", words)
            assert share is not None


def test_counts_are_explained_by_exposure(page: Page) -> None:
    page.go("#bandit=counts&task=user-0")
    assert "Its own data are an exposure of 1.50." in page.text("#summary")
    assert "from its own exposure of 1.50" in page.text("#belief")
    assert "on the log scale" in page.text("#features") + page.text("#others")


def test_intervals_are_joined_without_loss(page: Page) -> None:
    """Whatever the length of the service's intervals, and wherever there are none."""
    page.go()
    for seconds, step, n in [
        (60, 60, 400),
        (60, 7 * 60, 300),
        (480, 480, 399),
        (7680, 7680 * 5, 200),
        (60, 60, 1),
    ]:
        start = 1_800_000_000 // seconds * seconds
        points = [
            {"at": start + k * step, "decisions": [k % 5, k % 3], "rewards": k % 4, "total": 0.5 * k}
            for k in range(n)
        ]
        report = {"seconds": seconds, "timeline": points, "arms": [{}, {}]}
        bins = page.driver.execute_async_script(
            "import('/page/timeline.js').then((timeline) => arguments[1](timeline.binned(arguments[0], 12)))",
            report,
        )
        assert 12 <= len(bins["at"]) <= 50
        assert bins["width"] % seconds == 0
        for arm in range(2):
            decisions = [sum(p["decisions"][arm] for p in points if inside(p, at, bins)) for at in bins["at"]]
            assert [made[arm] for made in bins["decisions"]] == decisions
        assert bins["rewards"] == [
            sum(p["rewards"] for p in points if inside(p, at, bins)) for at in bins["at"]
        ]
        assert bins["total"] == [sum(p["total"] for p in points if inside(p, at, bins)) for at in bins["at"]]
        assert sum(bins["rewards"]) == sum(p["rewards"] for p in points)


def inside(point: dict[str, Any], at: float, bins: dict[str, Any]) -> bool:
    return bool(at <= point["at"] < at + bins["width"])


# -- states --------------------------------------------------------------------------------------------------


def test_bandits_without_decisions_or_rewards_say_what_to_do(page: Page) -> None:
    page.go("#bandit=undecided")
    assert "No decisions yet" in page.text("#hint")
    assert "/v1/bandits/undecided/decisions" in page.text("#hint pre")
    page.go("#bandit=unrewarded")
    assert "No rewards yet" in page.text("#hint")
    assert page.values("#figures") == [3, 3, 0]
    page.go("#bandit=yes-or-no")
    assert "paused" in page.text("h1")
    assert "on the logit scale" in page.text("#effects")
    page.go("#bandit=absent")
    assert "No such bandit" in page.text()


def test_a_task_that_is_not_there_is_said_so(page: Page) -> None:
    page.go("#bandit=templates&task=absent")
    assert "No such task" in page.text()
    assert all("404" in fault for fault in page.faults())  # browsers log it


def test_the_command_of_an_empty_service_makes_a_bandit(chromium: Any, tmp_path: Path) -> None:
    with service(tmp_path) as address:
        for page in watched(chromium, address):
            page.go()
            command = page.text("pre code")
            assert "No bandits yet" in page.text()
            done = subprocess.run(
                ["sh", "-c", f"{command} --silent --fail"], capture_output=True, text=True, timeout=30
            )
            assert done.returncode == 0, done.stderr
            page.refresh()
            page.until("document.querySelector('a[href=\"#bandit=templates\"]') !== null")


def test_a_server_that_ends_and_comes_back(chromium: Any, tmp_path: Path) -> None:
    with service(tmp_path) as address:
        page = Page(chromium, address)
        make(page.client, "templates")
        page.go("#bandit=templates")
    page.refresh()
    page.until("document.querySelector('#trouble').innerText.includes('does not answer')")
    assert "templates" in page.text("h1")  # what was known stays
    with service(tmp_path, port=int(address.rpartition(":")[2])):
        page.refresh()
        page.until("document.querySelector('#trouble').hidden")
        assert page.text("#status") == "The server answers again."
    chromium.get("about:blank")
    chromium.get_log("browser")
    page.client.close()


def test_a_key_is_asked_for_and_kept_in_this_tab_only(chromium: Any, tmp_path: Path) -> None:
    text = asyncio.run(read_key(tmp_path / "page.db"))
    with service(tmp_path, require_key=True) as address:
        page = Page(chromium, address)
        page.go()
        assert "asks for a key" in page.text("h1")
        assert page.js("document.activeElement.id") == "key"
        assert page.js("document.querySelector('label[for=key]').innerText") == "API key"
        page.press("mb_wrong_key", "\n")
        page.until("document.querySelector('#key-problem').innerText.includes('Not accepted')")
        page.driver.execute_script("document.querySelector('#key').value = ''")
        page.press(text, "\n")
        page.until("document.querySelector('h1').innerText === 'No bandits yet'")
        assert "Authorization: Bearer YOUR-KEY" in page.text("pre")
        assert text not in page.js("document.documentElement.outerHTML")
        assert page.js("sessionStorage.getItem('metabandit-key')") == text
        assert page.js("localStorage.length") == 0
        assert page.js("document.cookie") == ""
        page.driver.execute_script("document.querySelector('#forget').click()")
        page.until("document.querySelector('#key') !== null")
        assert page.js("sessionStorage.length") == 0
        chromium.get("about:blank")
        chromium.get_log("browser")
        page.client.close()


async def read_key(place: Path) -> str:
    """A new key that may read, in the store of a service that is not running."""
    key, text = made_key("read")
    store = store_of(str(place))
    await store.open()
    await store.put_key(key)
    await store.close()
    return text


# -- names that are not to be trusted ------------------------------------------------------------------------


def test_names_are_shown_as_text(page: Page) -> None:
    page.go("#bandit=nasty")
    assert NASTY_ARM in page.text("#arms")
    assert page.js("document.querySelector('#bold')") is None
    page.go(f"#bandit=nasty&task={httpx.QueryParams(t=NASTY_TASK)!s}".replace("task=t=", "task="))
    assert page.text("h1") == f"Task {NASTY_TASK}"
    assert page.js("document.querySelectorAll('main script, main img').length") == 0
    page.driver.execute_script("document.querySelector('#task-search').focus()")
    page.press("<script")
    page.until("document.querySelector('#task-0')?.innerText.includes('<script>')")
    assert page.text("#task-0") == NASTY_TASK
    assert page.js("document.title.startsWith('<script>')")  # text there, too


# -- by keyboard ---------------------------------------------------------------------------------------------


def test_a_task_is_found_by_keyboard_alone(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.go()
    tab_to(page, "templates")
    page.press(Keys.ENTER)
    page.until("document.title.startsWith('templates')")
    assert page.js("document.activeElement.tagName") == "H1"  # where reading goes on
    tab_to(page, "Name of a task")
    page.press("user-1")
    page.until("document.querySelectorAll('#task-list [role=option]').length === 11")
    assert page.until("document.querySelector('#status').textContent") == "11 tasks found"
    assert page.js("document.querySelector('#task-search').getAttribute('aria-expanded')") == "true"
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    chosen = page.js(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText"
    )
    assert chosen == "user-10"
    page.press(Keys.ESCAPE)
    assert page.js("document.querySelector('#task-list').hidden")
    page.press(Keys.ARROW_DOWN)
    page.until("!document.querySelector('#task-list').hidden")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.until("document.querySelector('h1').innerText === 'Task user-1'")
    assert page.js("location.hash") == "#bandit=templates&task=user-1"
    page.driver.back()
    page.until("document.querySelector('h1').innerText.startsWith('templates')")


def tab_to(page: Page, name: str) -> None:
    """Tab until something with this text or placeholder has the focus, and can be seen to have it."""
    from selenium.webdriver.common.keys import Keys

    for _ in range(40):
        page.press(Keys.TAB)
        if name in page.js("[document.activeElement.innerText, document.activeElement.placeholder]"):
            assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"{name} is not reached with the tab key")


def test_a_refresh_leaves_the_reader_alone(page: Page) -> None:
    page.go("#bandit=templates")
    page.driver.execute_script("""
        document.querySelector('#task-search').focus();
        document.querySelector('#task-search').value = 'half a na';
        document.querySelector('details').open = true;
        window.scrollTo(0, 300);
        window.kept = [...document.querySelectorAll('main canvas, main section, main table, main input')];
    """)
    before = page.values("#figures")
    users = Users(["someone-new"], seed=3)
    visit(page.client, "templates", ARMS, users, [0])
    page.refresh()
    page.until(f"document.querySelector('#figure-decisions data').value === '{before[1] + 1:g}'")
    assert page.js("document.activeElement.id") == "task-search"
    assert page.js("document.activeElement.value") == "half a na"
    assert page.js("document.querySelector('details').open")
    assert page.js("window.scrollY") == 300
    assert page.js("window.kept.every((one) => one.isConnected)")  # nothing was made again


# -- what it asks for, and how it looks ----------------------------------------------------------------------


def test_nothing_is_asked_of_anyone_else(page: Page) -> None:
    page.go("#bandit=templates&task=user-2")
    asked = page.js("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(asked) > 10
    assert {re.match(r"https?://[^/]+", url)[0] for url in asked if not url.startswith("data:")} == {
        page.address
    }  # type: ignore[index]
    policy = page.client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    for file in PAGE.glob("*.js"):
        if not file.name.startswith("uPlot"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", file.read_text()
            )


CUT_OFF = """[...document.querySelectorAll('main :is(th, td, h1, h2, p, canvas)')]
  .filter((one) => !one.closest('.scroll, .unseen, .list thead') && one.getClientRects().length)
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)
  .map((one) => one.textContent)"""


@pytest.mark.parametrize("width", [375, 1400])
def test_it_fits_the_screen(page: Page, width: int) -> None:
    for place in ("", "#bandit=templates", "#bandit=nasty", "#bandit=templates&task=user-1"):
        page.go(place, width=width)
        assert page.js("document.documentElement.scrollWidth") <= width, place
        assert page.js(CUT_OFF) == [], place


def test_dark_where_dark_is_preferred(page: Page) -> None:
    def lightness(of: str) -> float:
        return (
            sum(map(float, re.findall(r"\d+", page.js(f"getComputedStyle(document.body).{of}"))[:3])) / 765.0
        )

    page.go("#bandit=templates")
    assert lightness("backgroundColor") > 0.95
    assert lightness("color") < 0.2
    look(page.driver, 1400, 900, dark=True)
    page.until("matchMedia('(prefers-color-scheme: dark)').matches")
    assert lightness("backgroundColor") < 0.15
    assert lightness("color") > 0.85
    page.until("document.querySelectorAll('#time canvas').length === 3")  # drawn again


BASICS = """
const wrong = [];
const all = (selector) => [...document.querySelectorAll(selector)].filter((one) => !one.closest('[aria-hidden=true]'));
const check = (selector, fine, what) => all(selector).forEach((one) => {
  if (!fine(one)) wrong.push(`${what}: ${one.outerHTML.slice(0, 99)}`);
});
check('img, svg, canvas', (one) => one.getAttribute('aria-label') || one.getAttribute('alt'), 'no text');
check('input', (one) => one.labels.length, 'no label');
check('table', (one) => one.caption?.textContent, 'no caption');
check('a, button, summary, th', (one) => one.textContent.trim(), 'no name');
for (const name of ['aria-labelledby', 'aria-controls', 'for'])
  check(`[${name}]`, (one) => document.getElementById(one.getAttribute(name)), `dangling ${name}`);
check('[id]', (one) => document.querySelectorAll(`[id="${CSS.escape(one.id)}"]`).length === 1, 'not the only one');
const levels = all('h1, h2, h3').map((one) => Number(one.tagName[1]));
if (levels.some((level, k) => level > (levels[k - 1] ?? 0) + 1)) wrong.push(`order of headings: ${levels}`);
for (const one of ['h1', 'main', 'header', 'footer', 'nav', '[role=status]', '.skip'])
  if (all(one).length !== 1) wrong.push(`not one ${one}`);
return wrong;
"""


@pytest.mark.parametrize(
    "place", ["", "#bandit=templates", "#bandit=undecided", "#bandit=templates&task=user-1"]
)
def test_accessible_in_its_basics(page: Page, place: str) -> None:
    page.go(place)
    assert page.driver.execute_script(BASICS) == []
    assert page.js("document.documentElement.lang") == "en"
