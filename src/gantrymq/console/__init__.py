"""The web console for a cluster or a store directory: ``gantrymq console`` and ``EmbeddedBroker(console=True)``.

``application`` joins the pages of a site with the frame (navigation, errors, static files), ``security`` guards every
request, ``page_request`` is what a page gets, ``rendering`` turns values into HTML. ``cluster/`` has the pages of a
live cluster, ``store/`` those of a directory. The package needs the extra ``console``.
"""
