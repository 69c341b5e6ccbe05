"""One file per resource; a route reads the request, calls one service and sends its answer."""
