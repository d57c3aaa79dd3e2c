"""The page in a real browser, against a fleet with traffic."""

import os
import re
import socket
from pathlib import Path

import httpx
import pytest

import browser
import processes
import scene
import upgraded
from conftest import logged_in

VIEWS = ["fleet", "flow", "line", "subsets", "sessions", "routers", "request", "whatif", "orders"]
HOSTILE = "<img src=x onerror=alert(1)>"


def show(page: browser.Browser, view: str) -> None:
    page.run("location.hash = arguments[0]", f"#{view}")
    page.until(lambda: page.run("return document.querySelector('main').dataset.view") == view.split("/")[0], view)


def test_the_fleet_shows_every_replica_with_its_figures(page: browser.Browser, fleet: scene.Scene) -> None:
    show(page, "fleet")
    page.until(lambda: page.count(".tile") == len(fleet.replicas), "a tile for each replica")
    for url in fleet.replicas:
        assert url.removeprefix("http://") in page.text(".fleet")
    page.until_text("cached", ".fleet")
    page.until(lambda: re.search(r"[1-9]\d* ms|\d s", page.text(".fleet")), "a first token on a tile")
    page.click(".tile", fleet.replicas[1].removeprefix("http://"))
    page.until_text("of its knee", ".detail")
    assert "h200" in page.text(".detail") and "zone-b" in page.text(".detail")


def test_the_slow_replica_is_pointed_out(page: browser.Browser, fleet: scene.Scene) -> None:
    show(page, "fleet")
    slow = fleet.replicas[3].removeprefix("http://")
    page.until_text(slow, ".attention", 60)
    assert re.search(rf"{slow}\s+(slow|out|suspect|trial|past|[0-9.]+×)", page.text(".attention"))


def test_figures_move_by_themselves(page: browser.Browser) -> None:
    show(page, "fleet")
    before = page.text(".fleet")
    page.until(lambda: page.text(".fleet") != before, "another figure")


def test_the_flow_draws_the_last_hour_with_events(page: browser.Browser) -> None:
    show(page, "flow")
    page.until(lambda: page.count(".chart svg") == 5, "five charts")
    assert page.count(".plot .flag") > 0, "events are marked"
    page.until_text("up", ".events")
    labels = page.run("return [...document.querySelectorAll('.chart svg')].map((it) => it.getAttribute('aria-label'))")
    assert all(re.search(r"\d", it) for it in labels), labels


def test_the_line_shows_contracts_and_what_was_refused(page: browser.Browser, fleet: scene.Scene) -> None:
    show(page, "line")
    for tenant in fleet.tenants:
        page.until_text(tenant)
    page.until_text("of 400")
    page.until(lambda: "over_contract" in page.text(), "what is beyond a contract", 60)


def test_the_subsets_are_a_matrix(page: browser.Browser) -> None:
    show(page, "subsets")
    page.until(lambda: page.count(".matrix .cell") > 3, "cells", 60)
    page.until_text("search × llama-8b")


def test_a_session_is_found_by_its_id_which_stays_in_the_browser(page: browser.Browser, fleet: scene.Scene) -> None:
    with httpx.Client(timeout=30) as client:
        scene.say(client, fleet, "search", "my own session", [{"role": "user", "content": "hello"}], "llama-8b")
    show(page, "sessions")
    page.asked()
    page.type("#session", "my own session")
    page.click("button", "Find")
    page.until_text("Lives on", ".found")
    page.until_text("search × llama-8b", ".found")
    assert not any("own" in it for it in page.asked())


def test_a_request_has_a_life_and_a_decision(page: browser.Browser) -> None:
    show(page, "request")
    page.click(".choice button", "Slowest")
    # One for which a first token was predicted: the list also holds those that were refused.
    page.click("tr:has(td:nth-child(7) small) td a code")
    page.until_text("What each replica would have cost")
    page.until(lambda: page.count(".life rect.stack") >= 2, "its life")
    text = page.text(".one-request")
    assert "◆" in text and "chosen" in text
    assert "round_robin" in text and "expected" in text
    assert re.search(r"FIRST TOKEN PREDICTED|First token predicted", text)


def test_routers_of_one_that_is_alone(page: browser.Browser) -> None:
    show(page, "routers")
    page.until_text("This router is alone")


def test_a_drain_is_confirmed_shown_and_undone(page: browser.Browser, fleet: scene.Scene) -> None:
    name = fleet.replicas[8].removeprefix("http://")
    row = "[...document.querySelectorAll('tr')].find((it) => it.innerText.includes(arguments[0]) && it.innerText.includes(arguments[1]))"
    show(page, "orders")
    page.until_text(name)
    page.run(f"{row}.querySelector('button').click()", name, "Drain")
    page.until_text(f"Drain {name}?", "dialog")
    page.click("dialog button", "Cancel")
    page.until(lambda: page.count("dialog") == 0, "no dialog")
    assert "No order is in force." in page.text()
    page.run(f"{row}.querySelector('button').click()", name, "Drain")
    page.click("dialog button", "Drain")
    page.until_text("drained " + name)
    assert "alice" in page.text()
    page.click("td button", "Undrain")
    page.click("dialog button", "Undrain")
    page.until_text("No order is in force.")


def test_a_freeze_and_a_pin_are_ordered_and_undone(page: browser.Browser) -> None:
    show(page, "subsets")
    page.click(".tools button", "Freeze")
    page.click("dialog button", "Freeze")
    page.click(".tools button", "Unfreeze")
    page.click("dialog button", "Unfreeze")
    page.click("td button", "Pin here")
    page.click("dialog button", "Pin")
    page.until_text("pinned")
    page.click("td button", "Unpin")
    page.click("dialog button", "Unpin")
    page.until(lambda: "Unpin" not in page.text(), "nothing is pinned")


def test_a_what_if_is_asked_and_its_answer_drawn(page: browser.Browser, fleet: scene.Scene) -> None:
    show(page, "whatif")
    page.click("button", "Record for 10 minutes")
    page.click("dialog button", "Record")
    page.until(lambda: re.search(r"[1-9]\d* requests written", page.text()), "something is recorded", 40)
    page.run("document.querySelector('#whatif-replicas').value = '+2'")
    page.click(".whatif button", "Ask")
    page.until_text("How well it agrees", seconds_max=60)
    page.until(lambda: page.count(".answer svg") == 1, "a drawing", 60)
    assert f"priced, {len(fleet.replicas) + 2} replicas" in page.text(".answer")
    page.run("document.querySelector('#whatif-replicas').value = 'many'")
    page.click(".whatif button", "Ask")
    page.until_text("is no number as in 8, +2 or -2", seconds_max=60)
    page.click("button", "Stop")
    page.click("dialog button", "Stop")
    page.until_text("Record for 10 minutes")


def test_a_token_that_may_read_gives_no_orders(window: browser.Browser, fleet: scene.Scene) -> None:
    with logged_in(window, fleet.admin, scene.READER) as page:
        assert "board, read only" in page.text("#top")
        show(page, "orders")
        page.until_text("Your token may read, and give no orders.")
        assert page.run("return [...document.querySelectorAll('td button')].every((it) => it.disabled)")
        show(page, "whatif")
        page.until_text("ask nothing that takes")
        assert page.run("return document.querySelector('.whatif button').disabled")
        assert httpx.post(f"{fleet.admin}/what-if", json={}, headers={"authorization": f"Bearer {scene.READER}"}).status_code == 403
        assert scene.READER not in page.run("return location.href + JSON.stringify({ ...localStorage })")
        assert not any(scene.READER in it for it in page.asked())


def test_a_wrong_token_is_told_and_asked_again(window: browser.Browser, fleet: scene.Scene) -> None:
    window.open(f"{fleet.admin}/")
    window.run("sessionStorage.clear(); location.reload()")
    window.until_text("This router asks for a token")
    window.type("#token", "wrong")
    window.click("button", "Log in")
    window.until_text("does not know this token")
    window.complaints()


def test_the_page_comes_back_after_a_restart(window: browser.Browser) -> None:
    with scene.scene(2, ports=(free_port(), free_port()), tokens=False, speed="inf") as made:
        with logged_in(window, made.admin, None) as page:
            page.until(lambda: page.count(".tile") == 2, "both replicas")
            made.router.close()
            page.until_text("connection lost", "#top")
            with scene.running(made.config):
                page.until(lambda: page.text(".link") == "live", "live again")
                before = page.text(".router")
                page.until(lambda: page.count(".tile") == 2 and page.text(".router") == before, "both replicas again")


def test_a_page_of_an_older_build_says_so_and_loads_the_new_one(window: browser.Browser) -> None:
    with scene.scene(2, ports=(free_port(), free_port()), tokens=False, speed="inf") as made:
        with logged_in(window, made.admin, None) as page:
            page.until(lambda: page.count(".tile") == 2, "both replicas")
            page.until(lambda: page.count(".notice") == 0, "nothing to say about the build")
            page.run("window.isOlder = true")
            made.router.close()
            page.until_text("connection lost", "#top")
            port = int(made.admin.rsplit(":", 1)[1])
            # Figures that can be drawn: the page goes on and says what it is.
            with upgraded.router(port, draws=True):
                page.until_text("The router was upgraded", "#notices")
                assert page.run("return window.isOlder") is True
            # Figures of a form that this page does not know: it loads the page that does, once.
            with upgraded.router(port, draws=False):
                page.until_text("the page of another build", "main")
                assert not page.run("return window.isOlder")


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def test_hostile_names_are_shown_as_they_are_written(window: browser.Browser) -> None:
    tenants = {HOSTILE: "key-a", "<script>document.title='taken'</script>": "key-b", "second": "key-c"}
    model = f"model-{HOSTILE}"
    with scene.scene(8, tenants=tenants, model=model, tokens=False, zone=f"zone-{HOSTILE}-", speed="inf") as made:
        with httpx.Client(timeout=30) as client:
            for at, tenant in enumerate(tenants):
                message = [{"role": "user", "content": "hello " * 2000}]
                scene.say(client, made, tenant, f"session-{at}-<b>bold</b>", message, model)
        with logged_in(window, made.admin, None) as page:
            for view in VIEWS:
                show(page, view)
                page.until(lambda: len(page.text()) > 200, "something is shown")
                if view in ("line", "request"):
                    page.until_text(HOSTILE)
                if view == "fleet":
                    page.click(".choice button", "Zone")
                    page.until_text(f"zone-{HOSTILE}-a")
                if view == "request":
                    page.click("td a code")
                    page.until_text("The decision")
                if view == "sessions":
                    page.type("#session", "session-0-<b>bold</b>")
                    page.click("button", "Find")
                    page.until_text("Lives on", ".found")
                assert page.count("main img, main script, main b b, main [onerror]") == 0
                assert "taken" not in page.run("return document.title")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_accessible_and_fits(page: browser.Browser, width: int, theme: str) -> None:
    axe = Path(os.environ["AXE_JS"]).read_text()
    page.theme(theme)
    page.size(width, 900)
    page.run(axe)
    found = []
    for view in VIEWS:
        show(page, view)
        page.until(lambda: len(page.text()) > 150, view)
        wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels wider than {width}"
        script = "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then((it) => done(it.violations.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)} ${one.nodes[0].failureSummary}`)))"
        found += [f"{view}: {it}" for it in page.run_async(script)]
    page.size(1280, 900)
    page.theme("light")
    assert not found, "\n".join(found)


def test_the_keyboard_reaches_everything(page: browser.Browser) -> None:
    show(page, "fleet")
    page.until(lambda: page.count(".tile") > 0, "tiles")
    page.run("document.querySelector('.tile').focus()")
    page.command("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": [{"type": it, "value": "\ue007"} for it in ("keyDown", "keyUp")]}]})
    page.until_text("First token p50", ".detail")
    order = page.run("return [...document.querySelectorAll('a[href], button, input, select')].filter((it) => it.checkVisibility()).map((it) => it.tabIndex)")
    assert all(it == 0 for it in order)


def test_the_demo_shows_its_halves_side_by_side(window: browser.Browser) -> None:
    command = [processes.BINARY, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--replicas", "4", "--sessions", "12", "--for", "30s"]
    with processes.running(command, r"Watch it in a browser: (http://\S+)/") as found:
        with logged_in(window, found.group(1), None) as page:
            page.until_text("Side by side")
            page.until(lambda: re.search(r"priced\s+now", page.text(".halves")), "the second half", 40)
            page.until(lambda: page.count(".halves svg") == 6, "charts of both", 40)
            page.until_text("under priced", ".verdict", 40)
