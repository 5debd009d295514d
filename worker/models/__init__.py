"""Model files that ship with Groupscope."""
