"""Reports: one HTML file each that needs nothing else, neither a network nor a file beside it.

Charts are Vega-Lite with its library put into the page, so that they fit any width, tell their numbers when touched,
and follow the reader's choice of light and dark. It needs altair, jinja2 and vl-convert (the extra ``report``).
"""
