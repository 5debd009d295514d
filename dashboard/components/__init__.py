"""Parts of pages: each draws one thing, from records that it is given or fetches."""
