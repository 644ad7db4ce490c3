"""Whether a signature is that of an enabled user. A broker, a name server and an HA port ask here, in RocketMQ's words.

Source: DefaultAuthenticationHandler.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.auth.audit import RefusalLog, shown
from gantrymq.auth.directory import AccessDirectory
from gantrymq.auth.users import standing_refusal


class LoginCheck:
    """Checks signatures by the users of ``directory()``, and notes what it refuses in ``refusals``.

    Thread rule: that of ``refusals``.
    """

    def __init__(self, directory: Callable[[], AccessDirectory], refusals: RefusalLog) -> None:
        self._directory, self._refusals = directory, refusals

    def refusal(self, ip: str, name: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why something is not signed by an enabled user, or None. ``is_signed`` takes the password."""
        if not name:
            return "username cannot be null."
        user = self._directory().users.get(name)
        if user is not None and not user.is_disabled and is_signed(user.password):
            return None
        wrong = standing_refusal(shown(name), user) or "check signature failed."
        self._refusals.note(
            f"[AUTHENTICATION] User:{shown(name)} is authenticated failed from sourceIp = {ip}: {wrong}"
        )
        return wrong

    def denied(self, name: str, actions: str, ip: str, resource: str, request: int) -> None:
        """Note that the policies of a user deny a request."""
        self._refusals.note(
            f"[AUTHORIZATION] Subject = User:{name} is Deny Action = {actions} from sourceIp = {ip} "
            f"on resource = {shown(resource)} for request = {request}."
        )
