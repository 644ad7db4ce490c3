"""Reports as single HTML files that need no network and no other file.

Charts are Vega-Lite, with its library inside the page. They fit any width, show their numbers on hover, and follow the
reader's choice of light and dark. The package needs altair, jinja2 and vl-convert (the extra ``report``).
"""
