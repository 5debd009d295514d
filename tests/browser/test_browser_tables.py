"""What leaves a table: nothing that a spreadsheet would run."""

import pytest
from on_page import Open
from playwright.sync_api import expect
from stack import Stack

pytestmark = pytest.mark.thorough


def test_no_table_offers_its_cells_as_csv_where_a_text_may_be_a_formula(open_page: Open, stack: Stack) -> None:
    """Streamlit quotes the cells of a table and leaves a leading = + - or @ as it is."""
    group = stack.client.group(stack.client.groups(stack.everything, step=2).items[0].id)
    for address, count in (
        (f"/group?id={group.id}&layout=table", 1),
        (f"/compare?runs={stack.everything},{stack.first}&view=Settings", 2),
    ):
        page = open_page(address)
        tables = page.get_by_test_id("stDataFrame")
        expect(tables).to_have_count(count)
        for table in tables.all():
            table.scroll_into_view_if_needed()
            table.hover()
            expect(page.get_by_role("button", name="Search").first).to_be_visible()  # the table's buttons are there
            expect(page.get_by_role("button", name="Download as CSV")).to_have_count(0)
