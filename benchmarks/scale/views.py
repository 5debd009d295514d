"""The views part: what a person opens, each by its address, in a browser that has been there before."""

from playwright.sync_api import Page

from scale.chromium import Content, chromium, open_view
from scale.contents import Contents
from scale.records import View
from scale.site import Site
from scale.words import COMMON, RARE

CHART, TABLE = "svg.marks", '[data-testid="stDataFrame"] canvas'


def measure_views(site: Site, known: Contents, times: int, *, uncounted: int) -> list[View]:
    """Each view so many times, after those that warm up and do not count."""
    with chromium(site.dashboard_url) as page:
        views = _views(known).items()
        return [_measure(page, name, address, content, times, uncounted) for name, (address, content) in views]


def _measure(page: Page, name: str, address: str, content: Content, times: int, uncounted: int) -> View:
    seconds = [open_view(page, address, content) for _ in range(uncounted + times)]
    view = View(name=name, seconds=seconds[uncounted:])
    print(f"  {view.median:6.2f} s  {name}", flush=True)
    return view


def _views(known: Contents) -> dict[str, tuple[str, Content]]:
    """Address and content, by what it is."""
    run, group = f"/run?id={known.large}", f"/group?id={known.groups[0]}"
    prompt = f"/prompt?prompt={known.prompt_ids[0]}&runs={known.large}"
    compare = f"/compare?runs={','.join(map(str, known.compared))}"
    middle = known.steps[len(known.steps) // 2]
    return {
        "the runs": ("/", Content('[class*="st-key-row-"]', 5)),
        "the large run": (run, Content(CHART, 6)),
        "a zoom into its charts": (f"{run}&range={middle}-{middle + 100}", Content(CHART, 6)),
        "its groups": (f"{run}&tab=groups", Content(TABLE)),
        "its groups at a step": (f"{run}&tab=groups&step={middle}", Content(TABLE)),
        "its prompts": (f"{run}&tab=prompts", Content(TABLE)),
        "its search": (f"{run}&tab=search", Content(TABLE)),
        "a search for a rare word": (f"{run}&tab=search&find={RARE}", Content(TABLE)),
        "a search for a common word": (f"{run}&tab=search&find={COMMON}", Content(TABLE)),
        "its health": (f"{run}&tab=health", Content(".st-key-silent-rules")),
        "its judgement": (f"{run}&tab=judgement", Content('[role="tabpanel"] [data-testid="stElementContainer"]')),
        "its configuration": (
            f"{run}&tab=configuration",
            Content('[role="tabpanel"] [data-testid="stElementContainer"]'),
        ),
        "its log": (f"{run}&tab=log", Content('[role="tabpanel"] [data-testid="stElementContainer"]')),
        "a group": (group, Content('[class*="st-key-card-"]', 4)),
        "a token view": (f"{group}&tokens=1", Content('[role="listbox"] [role="option"]', 20)),
        "a prompt's history": (prompt, Content(TABLE)),
        "the comparison of 20 runs": (compare, Content(CHART, 2)),
        "… its settings": (f"{compare}&view=Settings", Content(CHART)),
        "… its distributions": (f"{compare}&view=Distributions", Content(CHART, 3)),
        "… its prompts": (
            f"{compare}&view=Prompts",
            Content('[role="tabpanel"] [data-testid="stElementContainer"]', 2),
        ),
        "the workers": (
            "/workers",
            Content('[data-testid="stMainBlockContainer"] [data-testid="stElementContainer"]', 3),
        ),
    }
