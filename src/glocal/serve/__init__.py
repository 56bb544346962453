"""The server: REST, Annif, Label Studio and text-embeddings-inference interfaces, and the web page.

`server.serve` runs it; `app.create_app` builds the ASGI application from `ServeSettings`.
"""
