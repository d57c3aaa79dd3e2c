"""Pictures of every view in both themes and at both widths: `cargo xtask shots`. Look at them after a change."""

import sys
from pathlib import Path

import httpx

import browser
import crowd
import processes
import scene

VIEWS = ["fleet", "flow", "line", "subsets", "sessions", "routers", "request", "whatif", "orders"]
# Those that look otherwise with hundreds of replicas and a thousand tenants.
CROWDED = ["fleet", "line", "subsets"]
SIZES = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]
HEIGHT, HEIGHT_MAX = 860, 2600


def shoot(page: browser.Browser, folder: Path, name: str, theme: str, width: int, whole: bool = True) -> None:
    """Makes one picture, of the whole view or of what a window shows."""
    page.size(width, HEIGHT)
    scene.settle(0.8)
    if whole:
        page.size(width, min(HEIGHT_MAX, max(HEIGHT, page.run("return document.documentElement.scrollHeight"))))
        scene.settle(0.6)
    (folder / f"{name}-{theme}-{width}.png").write_bytes(page.shot())


def of_fleet(page: browser.Browser, folder: Path) -> None:
    """A fleet with traffic, a slow replica and a drained one."""
    with scene.scene(12, tokens=False) as made, scene.traffic(made, people=40, tokens=4000, pause=0.6):
        made.faults(3, slow_factor=5)
        made.order("record", {"on": True, "for": "10m"})
        scene.settle(60)
        made.order("what-if", {"replicas": "+4", "policies": ["priced", "round_robin"]})
        made.order(f"drain/{made.replicas[5].removeprefix('http://')}")
        page.open(f"{made.admin}/")
        page.until(lambda: page.text(".link") == "live", "the page is live")
        slowest = httpx.get(f"{made.admin}/requests?order=slowest").json()
        # One that could have gone to several replicas shows the most.
        chosen = max(slowest[:20], key=lambda it: candidates(made, it["request_id"]))["request_id"]
        # Those that the README shows.
        for view, theme in [("fleet", "light"), (f"request/{chosen}", "dark")]:
            page.theme(theme)
            page.run("location.hash = arguments[0]", f"#{view}")
            shoot(page, folder, f"readme-{view.split('/')[0]}", theme, 1280, whole=False)
        for theme, width in SIZES:
            page.theme(theme)
            for view in VIEWS:
                address = f"#request/{chosen}" if view == "request" else f"#{view}"
                page.run("location.hash = arguments[0]", address)
                shoot(page, folder, view, theme, width)


def of_crowd(page: browser.Browser, folder: Path) -> None:
    """As much as the page is made for."""
    with crowd.crowd(512, 1000) as made:
        page.open(f"{made.admin}/")
        page.until(lambda: page.text(".link") == "live", "the page is live")
        for theme, width in [("light", 1280), ("dark", 390)]:
            page.theme(theme)
            for view in CROWDED:
                page.run("location.hash = arguments[0]", f"#{view}")
                shoot(page, folder, f"crowd-{view}", theme, width, whole=False)


def candidates(made: scene.Scene, request: str) -> int:
    told = httpx.get(f"{made.admin}/explain/{request}")
    return max((len(it["candidates"]) for it in told.json()["tries"]), default=0) if told.status_code == 200 else 0


def of_demo(page: browser.Browser, folder: Path) -> None:
    """The two halves of the demo."""
    command = [processes.BINARY, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--for", "44s"]
    with processes.running(command, r"Watch it in a browser: (http://\S+)/") as found:
        page.open(f"{found.group(1)}/")
        scene.settle(40)
        for theme, width in SIZES:
            page.theme(theme)
            shoot(page, folder, "compare", theme, width)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with browser.browser() as page:
        of_fleet(page, folder)
        of_demo(page, folder)
        of_crowd(page, folder)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    main()
