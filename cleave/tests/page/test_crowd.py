"""The page with as much as it is made for: 512 replicas and 1,000 tenants."""

import re

import browser
import crowd
from conftest import logged_in
from test_page import VIEWS, show

REPLICAS, TENANTS = 512, 1000
# Of all views; the fleet has the most, with a tile of some two dozen elements for each replica.
NODES_MAX = 20_000
# Of one moment's figures for all replicas; there are two a second.
FRAME_BYTES_MAX = 64 * 1024


def tenants_shown(page: browser.Browser) -> set[str]:
    return set(re.findall(r"tenant-\d{4}", page.text("main")))


def test_every_view_bears_hundreds_of_replicas_and_a_thousand_tenants(window: browser.Browser) -> None:
    with crowd.crowd(REPLICAS, TENANTS) as fleet, logged_in(window, fleet.admin, None) as page:
        sizes = crowd.bytes_of_feed(fleet, 4)
        assert max(sizes) < FRAME_BYTES_MAX, sizes
        for view in VIEWS:
            show(page, view)
            page.until(lambda: len(page.text("main")) > 150, view)
            if view == "fleet":
                page.until(lambda: page.count(".tile") == REPLICAS, "a tile for each replica")
            if view == "line":
                # The hundred that used the most lately: which these are depends on how fast the machine is.
                page.until(lambda: len(tenants_shown(page)) > 10, "many tenants")
                page.type("input[type=search]", "tenant-0999")
                page.until(lambda: tenants_shown(page) == {"tenant-0999"}, "one tenant of many")
            if view == "subsets":
                page.until_text("tenant-0", "main", 60)
            nodes = page.count("*")
            assert nodes < NODES_MAX, f"{view} has {nodes} elements"
            wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{view} is {wide} pixels too wide"
        show(page, "fleet")
        page.type("input[type=search]", fleet.replicas[77].removeprefix("http://"))
        page.until(lambda: page.count(".tile") == 1, "one replica of many")

