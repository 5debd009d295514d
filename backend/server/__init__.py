"""What both HTTP servers, the backend and the dashboard, do at their door: whom they answer, and how many."""
