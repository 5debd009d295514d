"""The database: engine, tables and migrations. The backend alone opens it."""
