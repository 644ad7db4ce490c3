"""The store map: every file of the store as a cell of a strip, as a table, and one file by itself."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.page_request import PageRequest, get
from gantrymq.console.store.files import FileState, Part, StoreFiles, list_files, with_damage
from gantrymq.console.store.jobs import JobSlot
from gantrymq.console.store.latest import Latest
from gantrymq.console.store.looking import state_of
from gantrymq.console.store.opened import OpenStore, Snapshot, StillOpeningError
from gantrymq.console.store.verify import damage_of
from gantrymq.console.store.work import VerifyResult
from gantrymq.errors import GantrymqError

STEP = 100
_WAIT_S = 1.5


class MapPages:
    """The map, and one file. They work without an open view, with less states."""

    def __init__(self, store: OpenStore, verify: JobSlot[VerifyResult]) -> None:
        self._store, self._verify = store, verify
        self._files: Latest[StoreFiles] = Latest(self._list, store.clock)

    def routes(self) -> list[Route]:
        """The routes of the pages."""
        return [get("/map", self.map), get("/map/file", self.file)]

    def map(self, request: PageRequest) -> Response:
        """The strips of all parts, and the table of the files of one part and state."""
        with ExitStack() as stack:
            snapshot, error = self._snapshot(stack)
            files = self._newest(snapshot)
            if files is None:
                return request.page("store/listing.html.j2")
            part, state = _one_of(Part, request.text("part")), _one_of(FileState, request.text("state"))
            wanted = request.text("q")
            rows = [
                file
                for name, some in files.parts.items()
                if part in (None, name)
                for file in some
                if state in (None, file.state) and wanted in str(file.name)
            ]
            start = request.number("start", 0)
            shown = rows[start : start + STEP]
            return request.page(
                "store/map.html.j2",
                **self._state(snapshot, error),
                files=files,
                strips=files.strips,
                rows=shown,
                part=part,
                file_state=state,
                q=wanted,
                states=list(FileState),
                verify=self._verify.view,
                **{"start": start, "shown": len(shown), "total": len(rows), "step": STEP},
            )

    def file(self, request: PageRequest) -> Response:
        """The page of one file: its state, and of a log file its first message."""
        with ExitStack() as stack:
            snapshot, error = self._snapshot(stack)
            files = self._newest(snapshot)
            if files is None:
                return request.page("store/listing.html.j2")
            file = files.by_name.get(request.text("name"))  # nothing is opened by a name of the request
            if file is None:
                raise HTTPException(404, f"The store has no file {request.text('name')}.")
            first = None
            if snapshot is not None and file.part is Part.LOG and file.begin is not None:
                first = snapshot.reader.message_at(max(file.begin, snapshot.reader.min_phy_offset))
            return request.page("store/file.html.j2", **self._state(snapshot, error), file=file, first=first)

    def _snapshot(self, stack: ExitStack) -> tuple[Snapshot | None, str]:
        """The newest view; without one, the reason, or ``""`` while it is being opened."""
        try:
            return stack.enter_context(self._store.look()), ""
        except StillOpeningError:
            return None, ""
        except (GantrymqError, OSError) as error:
            return None, str(error)

    def _newest(self, snapshot: Snapshot | None) -> StoreFiles | None:
        job = self._verify.view
        opened_ms = snapshot.opened_ms if snapshot is not None else None
        verified_ms = job.started_ms if job is not None and job.result is not None and not job.is_running else None
        return self._files.get((opened_ms, verified_ms), _WAIT_S)

    def _list(self) -> StoreFiles:
        job = self._verify.view
        with ExitStack() as stack:
            snapshot, _ = self._snapshot(stack)
            files = list_files(self._store, snapshot, self._store.clock.now_ms())
        return with_damage(files, damage_of(job.result if job is not None else None))

    def _state(self, snapshot: Snapshot | None, error: str) -> dict[str, Any]:
        config = snapshot.reader.config if snapshot is not None else self._store.reading.config
        more = {"reserved_hours": config.file_reserved_time_hours, "delete_when": config.delete_when, "error": error}
        if snapshot is not None:
            return {**state_of(self._store, snapshot), **more}
        return {
            "opened_ms": None,
            "state": "",
            "is_live": False,
            "is_opening": self._store.opening is not None,
            "reopen_failure": "",
            "problems": 0,
            **more,
        }


def _one_of(kind: Any, text: str) -> Any:
    """The member with a value; None for ``""``. Raises a 400 for another text."""
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise HTTPException(400, f"{text!r} is none of {', '.join(kind)}") from None
