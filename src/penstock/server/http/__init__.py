"""HTTP beside the WebSocket: health, metrics and the JSON API."""
