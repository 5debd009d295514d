"""What other trainers leave on the disk, read as runs of groups: one file for each format, and `importer`, which has them recorded."""
