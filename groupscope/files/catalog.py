"""All formats, and what lies at a path."""

from groupscope.files.format import Format

FORMATS: tuple[Format, ...] = ()
