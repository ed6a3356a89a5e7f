"""Programs for contributors: they write files of this checkout, make releases, and count what the layout promises."""
