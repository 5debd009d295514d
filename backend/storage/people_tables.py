"""The tables of what people say: bookmarks, thumbs, and which of two completions is better."""

from sqlalchemy import Column, ForeignKey, Index, String, Table, Text, UniqueConstraint

from backend.storage.columns import Id, Utc, metadata

bookmark = Table(
    "bookmark",
    metadata,
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), primary_key=True),
    Column("note", Text, nullable=False),
    Column("updated_at", Utc, nullable=False),
)

thumb = Table(
    "thumb",
    metadata,
    Column("completion_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), primary_key=True),
    Column("thumb", String(20), nullable=False),
    Column("created_at", Utc, nullable=False),
)

choice = Table(
    "choice",
    metadata,
    Column("id", Id, primary_key=True),
    Column("group_id", Id, ForeignKey("prompt_group.id", ondelete="CASCADE"), nullable=False),
    Column("better_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), nullable=False),
    Column("worse_id", Id, ForeignKey("completion.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("better_id", "worse_id"),
    Index(None, "group_id"),
    Index(None, "worse_id"),
    sqlite_autoincrement=True,
)
