"""The tokens of one completion: coloured, charted, one by one."""
