"""Routes, one file per resource: each reads the request, calls one service and sends its answer."""
