"""Commands that connect as a client: `pub`, `sub`, `req`, `reply`."""
