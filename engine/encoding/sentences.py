"""Where sentences end in a tokenised text."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

__all__ = ["sentence_end_flags"]

_LINE_BREAKS = "\n\r\u2028\u2029"
_WIDE_STOPS = "\u3002\uff01\uff1f\uff61"  # CJK full stop, wide ! and ?, half-width full stop: no space follows
_STOPS = ".!?\u2026\u061f\u06d4\u0964"  # ... ellipsis, Arabic question mark and full stop, danda
_CLOSERS = r"""["'\u201d\u2019)\]\u00bb\u203a\u300d\u300f\uff09\u3011\u3015\u300b\u3009]*"""

# One leading character class lets the regex engine skip at C speed to the few candidates. A stop counts when
# white space and no lower-case letter follow ("e.g. this" goes on), and not after a lone capital ("J. Doe").
_SENTENCE_END = re.compile(
    rf"[{_LINE_BREAKS}{_WIDE_STOPS}{_STOPS}]"
    rf"(?:(?<=[{_LINE_BREAKS}])"
    rf"|(?<=[{_WIDE_STOPS}])[{_WIDE_STOPS}]*{_CLOSERS}"
    rf"|(?<=[{_STOPS}])(?<!\b[A-Z]\.)[{_STOPS}]*{_CLOSERS}(?=\s+[^\sa-z]|\s*\Z))"
)

# Characters looked at after the last token, for the brackets and blanks that may follow a stop.
_LOOK_AHEAD = 16


def sentence_end_flags(
    text: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Tell after which tokens a sentence ends.

    A sentence ends at ``. ! ?`` (and their kin of other scripts) with the quotes and brackets that close
    after it, at a CJK full stop, and at a line break. This is a rule of thumb for choosing cuts, not a parser:
    after an abbreviation that a capital follows ("Dr. Who") it is wrong. Only the part of the text that the
    tokens cover is read, so that calling it window after window costs no more than once for all.

    Args:
        text: the text that the offsets refer to.
        starts: (n_tokens,) int64, first character of each token, ascending.
        ends: (n_tokens,) int64, one past the last character of each token, ascending.

    Returns:
        (n_tokens,) bool, True where a sentence ends after the token.
    """
    flags = np.zeros(len(ends), dtype=np.bool_)
    if not len(ends):
        return flags
    last_end = int(ends[-1])
    matches = _SENTENCE_END.finditer(text, int(starts[0]), last_end + _LOOK_AHEAD)
    stops = [match.end() for match in matches if match.start() <= last_end]
    tokens = np.searchsorted(ends, stops, side="right") - 1
    flags[tokens[tokens >= 0]] = True
    return flags
