"""Putting tables into a page, between two marks that stay."""

from pathlib import Path

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def replace_tables(page: Path, text: str, *, begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between the marks. Raises ValueError where the page lacks them."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no marks {begin} and {end} to put the tables between")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
