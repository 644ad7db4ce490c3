"""Sizes as text."""

MAX_DECOMPRESSED_BODY_SIZE = 64 << 20  # bytes; the default of the setting maxDecompressedBodySize
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: float) -> str:
    """A size with its unit: 1536 is ``1.5 KiB``."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.1f} {_UNITS[unit]}" if unit else f"{int(size_bytes)} B"
