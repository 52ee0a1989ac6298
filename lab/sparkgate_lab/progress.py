# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress on a terminal and in a log: step n of m, and the time that has passed."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import typing as t


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Progress:
    """Counts what was done, so that a run that did nothing can say so."""

    def __init__(self, steps: int, stream: t.TextIO = sys.stdout) -> None:
        self.steps, self.number, self.changes = steps, 0, 0
        self.stream = stream
        self.started = time.monotonic()
        self.running: list[str] = []

    def say(self, text: str) -> None:
        print(f"[{clock(time.monotonic() - self.started)}] {text}", file=self.stream, flush=True)

    def changed(self, text: str) -> None:
        self.changes += 1
        self.say(f"  {text}")

    @contextlib.contextmanager
    def step(self, title: str) -> t.Iterator[None]:
        self.number += 1
        self.say(f"step {self.number} of {self.steps}: {title}")
        yield

    @contextlib.contextmanager
    def long(self, title: str, state: t.Callable[[], str] = str, every: float = 15) -> t.Iterator[None]:
        """For work that takes longer than a person wants to look at a silent screen."""
        self.changed(title)
        began, done = time.monotonic(), threading.Event()

        def tick() -> None:
            while not done.wait(every):
                if self.running[-1] == title:  # what it waits for itself speaks for it
                    self.say(f"  … {title}: {clock(time.monotonic() - began)} {state()}".rstrip())

        self.running.append(title)
        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
            self.running.remove(title)
        self.say(f"  {title}: done in {clock(time.monotonic() - began)}")
