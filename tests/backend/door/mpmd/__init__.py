"""MPMD programs of Shardy's, captured as its front end wrote them, and what becomes of them behind a door."""
