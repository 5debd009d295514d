"""Keeping an installation well: backups of a home in use, and what is wrong with one."""
