"""The backend: stores runs, queues them, and answers the dashboard and the workers over HTTP."""
