"""The slow twin of cpp/sessions/session_table.h: a list of rows, the newest turn first."""

from dataclasses import dataclass

Names = tuple[str, str, str]  # session, parent, agent


@dataclass
class Row:
    names: Names
    worker: int
    turns: int
    moves: int
    wall_us: int


class SessionTable:
    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self.rows: list[Row] = []

    def _find(self, session: str, agent: str) -> Row | None:
        return next((row for row in self.rows if (row.names[0], row.names[2]) == (session, agent)), None)

    def record(self, names: Names, worker: int, wall_us: int = 0) -> None:
        row = self._find(names[0], names[2])
        if row is None:
            row = Row(names, worker, 0, 0, 0)
            self.rows = self.rows[: self.max_sessions - 1]
        else:
            self.rows.remove(row)
        self.rows.insert(0, Row(names, worker, row.turns + 1, row.moves + (row.worker != worker), wall_us))

    def worker_of(self, names: Names) -> int | None:
        row = self._find(names[0], names[2]) or self._find(names[0], "")
        return None if row is None else row.worker

    def newest(self, count: int, session: str | None = None) -> list[tuple[Names, int, int, int, int]]:
        rows = [row for row in self.rows if session in (None, row.names[0])]
        return [(row.names, row.worker, row.turns, row.moves, row.wall_us) for row in rows[:count]]
