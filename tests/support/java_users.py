"""``config/users`` and ``config/acls`` as RocketMQ's broker 5.5.0 left them: stopped, or killed, with all in its log.

They have the users of tests/interop/test_user_matrix.py (password: the name with ``pw``), the disabled user ``dis``,
the user ``b*d``, and ``ns`` with an entry of ``Topic:a*b``.
"""

import shutil
import tarfile
from pathlib import Path

_PACKED = Path(__file__).parents[1] / "auth" / "java-users.tar.xz"


def written_by_java(store: Path, how: str) -> Path:
    """Unpack them below ``config/`` of the directory ``store``, which must not exist; returns it."""
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(_PACKED) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(f"{how}/")]
        archive.extractall(store.parent, members, **safely)  # type: ignore[arg-type]
    shutil.move(store.parent / how, store)
    return store
