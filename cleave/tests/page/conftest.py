"""One fleet with traffic and one browser for all tests of the page."""

import contextlib
from collections.abc import Iterator

import pytest

import browser
import scene


@pytest.fixture(scope="session")
def fleet() -> Iterator[scene.Scene]:
    """Nine replicas of which one is slow, with people that chat."""
    with scene.scene(9, speed="4") as made:
        made.faults(3, slow_factor=6)
        with scene.traffic(made, people=10, tokens=1200, pause=0.6):
            yield made


@pytest.fixture(scope="session")
def window() -> Iterator[browser.Browser]:
    with browser.browser() as made:
        yield made


@pytest.fixture
def page(window: browser.Browser, fleet: scene.Scene) -> Iterator[browser.Browser]:
    """The page, logged in with the token that may order, and nothing to complain of at the end."""
    with logged_in(window, fleet.admin, scene.WRITER) as made:
        yield made


@contextlib.contextmanager
def logged_in(window: browser.Browser, admin: str, token: str | None) -> Iterator[browser.Browser]:
    """Opens the page and logs in where a token is given; afterwards the console must be empty."""
    window.open("about:blank")
    window.asked(), window.complaints()
    window.open(f"{admin}/")
    window.run("sessionStorage.clear(); localStorage.clear(); location.hash = ''; location.reload()")
    if token:
        window.until_text("This router asks for a token")
        window.type("#token", token)
        window.click("button", "Log in")
    window.until(lambda: window.text(".link") == "live", "the page is live")
    yield window
    # The first request finds out that a token is asked for.
    complaints = [it for it in window.complaints() if "/me - Failed to load resource" not in it]
    assert complaints == []
    foreign = [it for it in window.asked() if it.startswith("http") and not it.startswith(f"{admin}/")]
    assert foreign == []
