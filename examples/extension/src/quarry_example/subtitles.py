"""Subtitles of films (``.srt``): what is said, without numbers and times."""

from __future__ import annotations

import re

from quarry.readers import FileText, UnreadableError

__all__ = ["read_subtitles"]

MAX_BYTES = 4 << 20
CUE = re.compile(r"\d{1,6}\n\d\d:\d\d:\d\d,\d{3} --> [^\n]{12,60}\n([^\n]+(?:\n[^\n]+)*)")


def read_subtitles(content: bytes) -> FileText:
    """Make the document of a file of subtitles.

    Raises:
        UnreadableError: it has no subtitles, or is too large.
    """
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"has {len(content)} bytes, and at most {MAX_BYTES} are read")
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    cues = CUE.findall(text)
    if not cues:
        raise UnreadableError("has no subtitles: a number, a line of times, and text")
    return FileText("\n".join(" ".join(cue.split()) for cue in cues), metadata={"cues": len(cues)})
