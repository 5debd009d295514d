"""What several pages are made of: addresses, charts, clicks, live updates, text of the model shown as text."""
