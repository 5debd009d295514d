"""Charts: pure functions from records to figures. Nothing here calls the backend or draws on a page."""
