"""Files of every kind become documents with the places of passages; hostile files are refused in time."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.indexes.file_samples import docx, epub, paragraph, pdf, place, read_documents, zipped

from quarry import engine
from quarry.engine.documents.document import Document
from quarry.engine.documents.outline import Heading, Outline
from quarry.engine.documents.tables.columns import Columns
from quarry.formats.errors import InvalidDocument, InvalidSetting
from quarry.readers.files import pdf as pdf_files
from quarry.readers.files.epub import read_epub
from quarry.readers.files.file_documents import read_content
from quarry.readers.files.file_text import UnreadableError
from quarry.readers.files.html_text import read_html, text_of_html
from quarry.readers.files.mail import read_mailbox, read_message
from quarry.readers.files.markup import read_plain
from quarry.readers.files.notebook import read_notebook
from quarry.readers.files.zipped import Archive, parse_xml


def read(folder: Path, name: str, content: bytes | str) -> list[Document]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_documents(path))


def one(folder: Path, name: str, content: bytes | str) -> Document:
    (document,) = read(folder, name, content)
    return document


def refused(folder: Path, name: str, content: bytes | str) -> str:
    with pytest.raises(InvalidDocument) as caught:
        read(folder, name, content)
    assert caught.value.path == folder / name
    return str(caught.value)


# Text and code


def test_text_is_kept_and_its_lines_are_counted(tmp_path: Path) -> None:
    document = one(tmp_path, "a.txt", b"one\r\ntwo\rthree\nfour")
    assert (document.id, document.title, document.text) == ("a.txt", "", "one\ntwo\nthree\nfour")
    assert document.metadata["file"]["type"] == "text"
    assert place(document, "one") == "a.txt, line 1"
    assert place(document, "two\nthree") == "a.txt, lines 2-3"
    assert place(document, "two\n") == "a.txt, line 2"
    assert place(document) == "a.txt"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("naïve €".encode(), "naïve €"),
        ("\ufeffnaïve".encode(), "naïve"),
        ("naïve".encode("utf-16"), "naïve"),
        ("naïve".encode("utf-32"), "naïve"),
        ("naïve".encode("utf-16-be"), None),  # UTF-16 without a byte order mark has zero bytes
        ("naïve “x” €".encode("cp1252"), "naïve “x” €"),
        (b"a\x81b\xff", "a\ufffdbÿ"),  # Windows-1252 has no character 81
        (b"\xff\xfea\x00\x00\xd8", "a"),  # half a surrogate pair: cut in its last letter
        ("naïve 東京".encode()[:-1], "naïve 東"),
        ("naïve ".encode() + b"\x93\xe9\x94", "naïve “é”"),
        ("\ufeffnaïve".encode() + b"\xe9!", "naïveé!"),
        ("„Spaß“ für üä".encode("cp1252") + b"\xfc" * 9, "„Spaß“ für üä" + "ü" * 9),  # ß“ is a letter of UTF-8
    ],
)
def test_encodings(tmp_path: Path, content: bytes, text: str | None) -> None:
    if text is None:
        assert "is a binary file" in refused(tmp_path, "a.txt", content)
    else:
        assert one(tmp_path, "a.txt", content).text == text


def test_code_and_files_with_known_names(tmp_path: Path) -> None:
    for name in ("a.py", "b.RS", "Makefile", "README"):
        assert one(tmp_path, name, "x = 1\n").id == name
    assert place(one(tmp_path, "a.c", "int x;\n\nint y;\n"), "int y") == "a.c, line 3"
    assert one(tmp_path, "a.c", "x").metadata["file"]["type"] == "code"


def test_blank_files_give_no_document(tmp_path: Path) -> None:
    for name in ("a.txt", "a.md", "a.html"):
        assert read(tmp_path, name, " \n\t\n") == []


def test_a_text_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert "is too long: split it" in refused(tmp_path, "a.txt", "x" * (4 << 20) + "y")
    assert len(one(tmp_path, "b.txt", "x" * (4 << 20)).text) == 4 << 20  # one line


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 1001)
    with pytest.raises(InvalidDocument, match="too large"):
        read_content(path, max_bytes=1000)


# Markdown and reStructuredText

MARKDOWN = """---
title: no heading
# comment: neither
---
Before.

Guide
=====

# Install ##

```sh
# no heading
```

## On *Linux* #
Text of it.

    # indented

- item
---
A paragraph
in two lines
---
#hashtag
### C#
End.
"""


def test_headings_of_markdown(tmp_path: Path) -> None:
    document = one(tmp_path, "a.md", MARKDOWN)
    assert document.text == MARKDOWN
    assert place(document, "Before") == "a.md, line 5"
    assert place(document, "# no heading") == "a.md, line 13, Install"
    assert place(document, "Text of it") == "a.md, line 17, Install > On *Linux*"
    assert place(document, "indented") == "a.md, line 19, Install > On *Linux*"
    assert place(document, "#hashtag") == "a.md, line 26, Install > in two lines"
    assert place(document, "End.") == "a.md, line 28, Install > in two lines > C#"


RST = """=====
Title
=====

Intro.

Part one
--------

Text.

* * *

Deep
~~~~
More.

Part two
--------
Too long a title
----
Last.
"""


def test_headings_of_restructured_text(tmp_path: Path) -> None:
    document = one(tmp_path, "a.rst", RST)
    assert place(document, "Intro") == "a.rst, line 5, Title"
    assert place(document, "Text.") == "a.rst, line 10, Title > Part one"
    assert place(document, "More.") == "a.rst, line 16, Title > Part one > Deep"
    assert place(document, "Last.") == "a.rst, line 22, Title > Part two"


# HTML

PAGE = """<!DOCTYPE html><html><head><title>Tides &amp; Moon</title><style>p { x: "<p>" }</style>
<script>if (a < b) document.write("<p>no</p>")</script></head><body class="a>b" title='x > y'>
<h1>The <em>Moon</em></h1>
<p>It   orbits
Earth.<br>Every&nbsp;month &lt;27 days&gt;.
<p>Unclosed <b>bold</b>.
<ul><li>One<li>Two</ul>
<h2>Tides</h2><table><tr><td>High<td>Low</table>
<pre>a
  b</pre><!-- hidden <p> --> <svg><text>no</text></svg>After 1 < 2.</body>"""
TEXT = """The Moon

It orbits Earth.
Every month <27 days>.

Unclosed bold.

One
Two

Tides

High\tLow

a
  b

After 1 < 2."""


def test_the_text_of_a_page(tmp_path: Path) -> None:
    document = one(tmp_path, "a.html", PAGE)
    assert document.title == "Tides & Moon"
    assert document.text == TEXT
    assert place(document, "bold") == "a.html, The Moon"
    assert place(document, "After") == "a.html, The Moon > Tides"
    assert place(document, "Tides &") == "a.html"  # in the title


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('<meta charset="iso-8859-2">\xb1', "ą"),
        ('<meta charset="latin1">\x93x\x94', "“x”"),
        ('<meta charset="no-such">\xe9', "é"),
        ('<meta charset="utf-16">\xe9', "é"),
        ('<?xml version="1.0" encoding="koi8-r"?><p>\xc1</p>', "а"),
        ("<p>\xe9", "é"),
        ("<!-- <meta charset=koi8-r> --><meta charset=gb2312>\xe9F", "镕"),
        ('<meta charset="us-ascii">\xc3\xa9', "é"),
        ('<meta charset="x-user-defined">\xe9', "é"),
        ('<meta charset="zlib">\xe9', "é"),
        ("<meta charset=utf-8>\xe6\x9d\xb1\xe4\xba", "東"),
        ("\xef\xbb\xbf<meta charset=koi8-r>\xc3\xa9", "é"),
    ],
)
def test_encodings_of_pages(tmp_path: Path, page: str, text: str) -> None:
    assert one(tmp_path, "a.htm", page.encode("latin-1")).text == text


@pytest.mark.parametrize(
    ("label", "content", "text"),
    [
        ("gb2312", "朱镕基".encode("gbk") + b"\x80", "朱镕基€"),
        ("windows-936", "镕".encode("gbk"), "镕"),
        ("Shift_JIS", "①髙".encode("cp932"), "①髙"),
        ("euc-kr", "똠".encode("cp949"), "똠"),
        ("iso-8859-9", "ş€".encode("cp1254"), "ş€"),
        ("ISO_8859-1:1987", b"\x93x\x94", "“x”"),
        ("tis-620", "ก€".encode("cp874"), "ก€"),
        ("big5", b"\xa3\xe1\xc6\xa1", "€①"),
        ("euc-jp", "あ".encode("euc_jp") + b"\xad\xa1\xfc\xf1", "あ①ⅰ"),
        ("iso-2022-jp", b'\x1b$B$"-!\x1b(B ok', "あ① ok"),
        ("hz-gb-2312", "中".encode("hz"), "中"),
        ("cp-850", "é".encode("cp850"), "é"),
        ("gb2312", "é".encode() + b"\xc3\xa9!"[:2] + "ü€".encode(), "ééü€"),
        ("shift_jis", "日本".encode("cp932")[:-1], "日"),
        ("us-ascii", "é".encode(), "é"),
        ("utf-7", "é".encode(), "é"),
        ("no such", b"\xe9", "é"),
        ("punycode", b"a-b", "a-b"),
        ("csKOI8U", "Їґ".encode("koi8-u"), "Їґ"),
        ("csWindows31J", "①".encode("cp932"), "①"),
        ("big-5", "繁體".encode("big5"), "繁體"),
        ("x-mac-greek", "Ελ".encode("mac_greek"), "Ελ"),
        ("windows-10007", "Рус".encode("mac_cyrillic"), "Рус"),
        ("x-user-defined", "é".encode(), "é"),
    ],
)
def test_labels_of_encodings_are_those_of_the_standard(
    tmp_path: Path, label: str, content: bytes, text: str
) -> None:
    body, word = (encoded.decode() for encoded in (base64.encodebytes(content), base64.b64encode(content)))
    head = f"Subject: =?{label.replace(' ', '-')}?b?{word}?=\nContent-Transfer-Encoding: base64\n"
    document = one(tmp_path, "a.eml", f'{head}Content-Type: text/plain; charset="{label}"\n\n{body}')
    assert (document.title, document.text) == (text, text)


@pytest.mark.parametrize(
    ("name", "declaration", "encoding"),
    [
        ("a.py", "#!/usr/bin/python\n# -*- coding: cp1251 -*-\n", "cp1251"),
        ("a.rb", "# vim: fileencoding=koi8-r\n", "koi8-r"),
        ("a.css", '@charset "windows-1251";\n', "cp1251"),
        ("a.py", "# coding: latin-1\n", "utf-8"),
    ],
)
def test_source_code_declares_its_encoding(tmp_path: Path, name: str, declaration: str, encoding: str) -> None:
    text = f'{declaration}name = "Привет"\n'
    assert one(tmp_path, name, text.encode(encoding)).text == text


@pytest.mark.parametrize(
    "piece",
    [
        "<div>",
        "<!--",
        "<a ",
        "</",
        "<script>",
        "<![CDATA[",
        "<a href='",
        "<",
        "<p>&",
        "<pre>",
        "<h1>",
        "<svg>",
        "<td>",
        "&#",
        "<title>",
        "<svg/>",
        "<a =",
        "<a = /",
        "<html ",
    ],
)
def test_broken_pages_take_linear_time(piece: str) -> None:
    """Characters of broken HTML, which take other parsers quadratic time, are read in time."""
    text_of_html("<p>begin</p>" + piece * (50_000 // len(piece)))


def test_unfinished_pieces_of_a_page() -> None:
    for page in ("a<b", "a<!-- x", "a<b c='d", "a</", "a<?x", "<p>a<!--> "):
        assert text_of_html(page).text.startswith("a")
    assert text_of_html("<!-->a").text == "a"
    assert text_of_html("1 < 2 <3").text == "1 < 2 <3"
    assert text_of_html("<script>a</script >b").text == "b"
    assert text_of_html("<h1></h1><h2>x</h2>").outline.headings == (Heading(2, 0, 1),)
    assert text_of_html("a\x00\x1bb").text == "ab"


XHTML = "http://www.w3.org/1999/xhtml"


@pytest.mark.parametrize(
    "tag", ["<title/>", "<script src='kobo.js'/>", "<style/>", "<iframe />", "<object data='a>b'/>"]
)
@pytest.mark.parametrize(
    "page",
    [
        f'<html xmlns="{XHTML}"><head>TAG</head><body><p>The Moon raises the tides.</p></body></html>',
        f"<!DOCTYPE html><HTML lang='en' xmlns='{XHTML}'>TAG<p>The Moon raises the tides.",
        "\n<?xml version='1.0'?><html>TAG<p>The Moon raises the tides.",
        "\ufeff<?xml version='1.0' encoding='utf-8'?><html>TAG<p>The Moon raises the tides.",
        f"<!--[if IE]><html class='ie'><![endif]--><html xmlns='{XHTML}'>TAG<p>The Moon raises the tides.",
    ],
)
def test_a_slash_ends_any_element_of_xhtml(tmp_path: Path, page: str, tag: str) -> None:
    for name in ("a.xhtml", "a.html"):
        assert one(tmp_path, name, page.replace("TAG", tag)).text == "The Moon raises the tides."
    chapter = f"<html><head>{tag}</head><body><p>Bees dance.</p></body></html>"
    assert one(tmp_path, "a.epub", epub({"one": chapter, "two": chapter})).text == "Bees dance.\n\nBees dance."


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ('Before.<svg class="icon"/> After.', "Before. After."),
        ("Before.<math /> After.", "Before. After."),
        ("Before.<svg><title/><style/><path d=''/>no</svg> After.", "Before. After."),
        ("Before.<svg><svg/>no<svg>no</svg></svg> After.", "Before. After."),
        ("Before.<svg class=icon/>no</svg> After.", "Before. After."),  # the slash is part of the value
        ("Before.<svg><svg></svg><script/></svg> After.<script/>no</script>", "Before. After."),
        ("Before.<svg><svg></svg><p>After.<script src='x'/>no</script>", "Before.\n\nAfter."),
        ("Before.</svg><script src='x'/>no</script> After.", "Before. After."),
        ("Before.<object/>no</object> After.<style/>no", "Before. After."),
        ("<pre/>a  b<br/>c", "a  b\nc"),
    ],
)
def test_a_slash_ends_elements_of_svg_and_mathml_in_html(page: str, text: str) -> None:
    assert text_of_html(page).text == text


# Notebooks


def notebook(cells: list[dict[str, object]]) -> str:
    return json.dumps({"nbformat": 4, "cells": cells})


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "source": ["# Load\n", "Read the data."]},
        {"cell_type": "code", "source": "", "outputs": []},
        {"cell_type": "code", "source": "# not a heading\nx = 1", "outputs": [{"text": "no"}]},
        {"cell_type": "markdown", "source": "## Plot"},
        {"cell_type": "code", "source": "plot(x)"},
    ]
    document = one(tmp_path, "a.ipynb", notebook(cells))
    assert document.text == "# Load\nRead the data.\n\n\n\n# not a heading\nx = 1\n\n## Plot\n\nplot(x)"
    assert place(document, "Read") == "a.ipynb, cell 1, Load"
    assert place(document, "x = 1") == "a.ipynb, cell 3, Load"
    assert place(document, "x = 1\n\n## Plot") == "a.ipynb, cells 3-4, Load"
    assert place(document, "plot(x)") == "a.ipynb, cell 5, Load > Plot"
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["y = 2"]}]}]}
    assert one(tmp_path, "b.ipynb", json.dumps(old)).text == "y = 2"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"cells": 1}', '{"cells": [1]}', "[" * 100_000, '{"worksheets": [{"cells": 5}]}']
)
def test_a_file_that_is_not_a_notebook(tmp_path: Path, content: str) -> None:
    assert "notebook" in refused(tmp_path, "a.ipynb", content)


# Mail

MESSAGE = b"""From: Ann <ann@example.org>
To: bob@example.org
Subject: =?utf-8?q?Tides_f=C3=BCr_alle?=
Date: Mon, 06 May 2024 07:08:09 +0200
Content-Type: multipart/alternative; boundary="b"

--b
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

The Moon raises the tides, caf=E9.
--b
Content-Type: text/html

<p>Not <b>this</b></p>
--b--
"""


def test_a_message(tmp_path: Path) -> None:
    document = one(tmp_path, "a.eml", MESSAGE)
    assert (document.title, document.text) == ("Tides für alle", "The Moon raises the tides, café.")
    metadata = dict(document.metadata)
    assert metadata.pop("file")["path"] == "a.eml"
    assert metadata == {
        "from": "Ann <ann@example.org>",
        "to": "bob@example.org",
        "date": "2024-05-06T07:08:09+02:00",
    }


def part(kind: str, *contents: str, disposition: str = "") -> str:
    """Return a part of mail; the contents of a multipart are parts, with shorter boundaries."""
    header = f"Content-Type: {kind}" + (f"\nContent-Disposition: {disposition}" if disposition else "")
    if not kind.startswith("multipart/"):
        return f"{header}\n\n{contents[0]}"
    boundary = "b" * (1 + max(map(str.count, contents, ["multipart/"] * len(contents))))
    between = "".join(f"\n--{boundary}\n{content}" for content in contents)
    return f'{header}; boundary="{boundary}"\n{between}\n--{boundary}--'


BODY, SAME = part("text/html", "<p>The Moon</p>"), part("text/plain", "plain Moon")
FOOTER, BLANK = part("text/plain", "Unsubscribe"), part("text/plain", "\n \n")
ATTACHED = part("text/plain", "no", disposition="attachment")
FORWARDED = "Content-Type: message/rfc822\n\nSubject: y\n" + BODY


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (part("multipart/mixed", BODY, FOOTER), "The Moon\n\nUnsubscribe"),
        (part("multipart/mixed", FOOTER, BLANK, ATTACHED, BODY), "Unsubscribe\n\nThe Moon"),
        (part("multipart/mixed", part("multipart/alternative", SAME, BODY), FOOTER), "plain Moon\n\nUnsubscribe"),
        (part("multipart/mixed", part("multipart/alternative", BLANK, BODY), FOOTER), "The Moon\n\nUnsubscribe"),
        (part("multipart/alternative", SAME, part("multipart/related", BODY, ATTACHED)), "plain Moon"),
        (part("multipart/alternative", BLANK, part("multipart/related", BODY, ATTACHED)), "The Moon"),
        (part("multipart/alternative", SAME, part("multipart/mixed", BODY, FOOTER)), "plain Moon"),
        (part("multipart/alternative", part("multipart/mixed", BODY, FOOTER)), "The Moon\n\nUnsubscribe"),
        (part("multipart/mixed", FOOTER, FORWARDED), "Unsubscribe\n\ny\n\nThe Moon"),
        (part("multipart/alternative", BODY, ATTACHED), "The Moon"),
        (part("multipart/alternative", part("multipart/mixed", FOOTER, BODY), BODY), "The Moon"),
        (
            part("multipart/mixed", SAME, FORWARDED.replace("\n", "\nContent-Disposition: attachment\n", 1)),
            "plain Moon",
        ),
        (part("multipart/mixed", SAME, part("multipart/mixed", BODY, disposition="attachment")), "plain Moon"),
    ],
)
def test_plain_text_is_preferred_among_alternatives_only(tmp_path: Path, message: str, text: str) -> None:
    assert one(tmp_path, "a.eml", "Subject: x\n" + message).text == text


def test_a_message_in_html_with_broken_headers(tmp_path: Path) -> None:
    content = (
        b"Subject: x\nDate: never\nFrom: \xff\xfe <\nContent-Type: text/html; charset=no-such\n\n<p>a</p><p>\xe9\n"
    )
    document = one(tmp_path, "a.eml", content)
    assert document.text == "a\n\né"
    assert "date" not in document.metadata
    assert "is not a message" in refused(tmp_path, "b.eml", "no header\n\ntext")


@pytest.mark.parametrize(
    ("header", "title"),
    [
        ("=?gb2312?q?=CE?=\n =?GB2312?b?0g==?= x", "我 x"),  # a letter divided between two words
        ("Ready? =?utf-8*en?Q?Ready??= =?utf-8?q?_=41?=", "Ready? Ready? A"),
        ("Grüße 東京", "Grüße 東京"),
        ("=?utf-8?B?SGVsbG8gd29ybGQgw?=", "Hello world"),
        ("=?utf-8?B?SGVsbG8gd29ybGQgw", "Hello world"),
    ],
)
def test_subjects(tmp_path: Path, header: str, title: str) -> None:
    assert one(tmp_path, "a.eml", f"Subject: {header}\n\n").title == title


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\r\n", b""])
@pytest.mark.parametrize("n_left_out", range(5))
def test_base64_that_is_cut_is_decoded_to_its_last_whole_letter(
    tmp_path: Path, mark: bytes, n_left_out: int
) -> None:
    letters = base64.b64encode("The Moon, naïve: 東京".encode()).rstrip(b"=")
    content = mark + b"Subject: x\nContent-Transfer-Encoding: base64\n\n" + letters[: len(letters) - n_left_out]
    text = one(tmp_path, "a.eml", content).text
    assert text == "The Moon, naïve: 東京"[: len(text)]
    assert len(text) >= 17


def test_files_with_a_title_and_no_text_are_documents_and_attachments_are_named(tmp_path: Path) -> None:
    attached = (
        "Content-Type: application/pdf; name=other.pdf\n"
        "Content-Disposition: attachment; filename*=gb2312''%D6%EC%E9F.pdf\n"
        "Content-Transfer-Encoding: base64\n\nAAAA"
    )
    files = {
        "a.eml": "Subject: Invoice\n\n",
        "b.eml": "From: a@b.example\n" + attached,
        "c.eml": "Subject: Both\n" + part("multipart/mixed", SAME, ATTACHED, attached, FORWARDED),
        "d.html": "<title>Calendar</title><div id=app></div>",
        "e.txt": " \n",
        "f.eml": "From: a@b.example\n\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    stream = read_documents(tmp_path)
    found = {each.id: (each.title, each.text, each.metadata.get("attachments")) for each in stream}
    assert found == {
        "a.eml": ("Invoice", "", None),
        "b.eml": ("", "朱镕.pdf", ["朱镕.pdf"]),
        "c.eml": ("Both", "plain Moon\n\ny\n\nThe Moon", ["text/plain", "朱镕.pdf"]),
        "d.html": ("Calendar", "", None),
    }
    assert stream.n_skipped == 2
    assert "e.txt: the file has no text" in stream.first_errors[0]


def test_a_message_in_base64_in_a_message(tmp_path: Path) -> None:
    inner = base64.encodebytes(b"Subject: y\n\nThe Moon").decode()
    head = "Subject: x\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n"
    assert one(tmp_path, "a.eml", head + inner).text == "y\n\nThe Moon"


def test_bytes_of_headers_are_in_utf8_or_the_encoding_of_the_message(tmp_path: Path) -> None:
    head = "Subject: Привет\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"
    content = f"{head}Content-Type: text/plain; charset=koi8-r\n\nМосква\n--b--\n"
    assert one(tmp_path, "a.eml", content.encode("koi8-r")).title == "Привет"
    assert one(tmp_path, "b.eml", content.encode()).title == "Привет"


@pytest.mark.parametrize("charset", ["", "; charset=us-ascii"])
def test_a_page_in_a_message_is_labelled_by_itself(tmp_path: Path, charset: str) -> None:
    content = f"Subject: x\nContent-Type: text/html{charset}\n\n<meta charset=windows-874>ภาษาไทย"
    assert one(tmp_path, "a.eml", content.encode("cp874")).text == "ภาษาไทย"


@pytest.mark.parametrize("boundary", ["", "; boundary=b"])
def test_a_message_whose_parts_are_not_found_is_a_text(tmp_path: Path, boundary: str) -> None:
    content = f"Subject: x\nContent-Type: multipart/mixed{boundary}\n\n--other\n\nThe Moon\n--other--\n"
    assert "The Moon" in one(tmp_path, "a.eml", content).text


def test_a_mailbox_has_several_documents(tmp_path: Path) -> None:
    content = (
        b"From ann Mon\nSubject: one\n\nText\n>From here\n\nFrom bob Tue\nSubject: two\n\n>>From there\nFrom x\n"
    )
    first, second = read(tmp_path, "a.mbox", content)
    assert (first.id, first.title, first.text) == ("a.mbox#1", "one", "Text\nFrom here")
    assert (second.id, second.title, second.text) == ("a.mbox#2", "two", ">From there\nFrom x")
    assert place(second, "there") == "a.mbox, message 2"
    assert "is not a mailbox" in refused(tmp_path, "b.mbox", "Subject: x\n\ntext")
    assert read(tmp_path, "c.mbox", "") == []


def test_nested_mail_is_refused_and_not_followed_without_end(tmp_path: Path) -> None:
    parts = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" * 5000
    with pytest.raises(InvalidDocument, match="multipart"):
        read(tmp_path, "a.eml", b"Subject: x\n" + parts + b"Content-Type: text/plain\n\nend\n")


# Word


def test_a_document_of_word(tmp_path: Path) -> None:
    cells = "".join(f"<w:tc>{paragraph(word)}</w:tc>" for word in ("High", "Low"))
    body = (
        paragraph("")
        + paragraph("Moon", "berschrift1")
        + "<w:p><w:r><w:t>It orbits</w:t><w:tab/><w:t>Earth</w:t></w:r>"
        + "<w:del><w:r><w:delText>no</w:delText></w:r></w:del></w:p>"
        + paragraph("Tides", "berschrift2")
        + f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"
        + paragraph("The end &amp; more")
    )
    document = one(tmp_path, "a.docx", docx(body, "A title"))
    assert document.title == "A title"
    assert [line.split() for line in document.text.split("\n")] == [
        ["Moon"],
        ["It", "orbits", "Earth"],
        ["Tides"],
        ["High", "Low"],
        ["The", "end", "&", "more"],
    ]
    assert place(document, "orbits") == "a.docx, Moon"
    assert place(document, "end") == "a.docx, Moon > Tides"


NAMESPACES = {
    "transitional": (
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"',
    ),
    "strict": (
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
        'xmlns:a="http://purl.oclc.org/ooxml/drawingml/main" '
        'xmlns:m="http://purl.oclc.org/ooxml/officeDocument/math" '
        'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"',
    ),
}
SHAPE = (
    "<w:r><w:drawing><a:txBody><a:p><a:pPr><a:tabLst><a:tab/></a:tabLst></a:pPr><a:r><a:t>in</a:t></a:r>"
    "<a:br/><a:r><a:t>shape</a:t></a:r></a:p></a:txBody></w:drawing></w:r>"
)


def in_paragraph(*contents: str, style: str = "") -> str:
    """Return a paragraph of runs with texts, and of XML as it is."""
    runs = (each if each.startswith("<") else f"<w:r><w:t>{each}</w:t></w:r>" for each in contents)
    return paragraph("", style).replace("<w:r><w:t></w:t></w:r>", "".join(runs))


def text_box(content: str) -> str:
    """Return a text box as Word writes it, for itself and for older versions."""
    box = f"<w:drawing><w:txbxContent>{content}</w:txbxContent></w:drawing>"
    both = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    return f"<w:r><mc:AlternateContent>{both}</mc:AlternateContent></w:r>"


@pytest.mark.parametrize("kind", NAMESPACES)
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (in_paragraph("Before. ", SHAPE, "After."), "Before. After.\nin\nshape"),
        (
            in_paragraph("Before. ", text_box(paragraph("One") + paragraph("Two")), "After."),
            "Before. After.\nOne\nTwo",
        ),
        (
            in_paragraph("Out", text_box(in_paragraph("Box", text_box(paragraph("In")), "es")), "er"),
            "Outer\nBoxes\nIn",
        ),
        (
            in_paragraph(
                "Before. ", text_box(f"<w:tbl><w:tr><w:tc>{paragraph('High')}</w:tc></w:tr></w:tbl>"), "After."
            ),
            "Before. After.\nHigh \t",
        ),
        (
            f"<w:tbl><w:tr><w:tc>{in_paragraph('Before. ', SHAPE, 'After.')}</w:tc></w:tr></w:tbl>",
            "Before. After. in shape \t",
        ),
        (in_paragraph("<w:moveFrom><w:r><w:t>It </w:t></w:r></w:moveFrom>", "moves"), "moves"),
        (
            in_paragraph("<w:pPr><w:tabs><w:tab/><w:tab/></w:tabs></w:pPr>", "No", "<w:r><w:tab/></w:r>", "tab"),
            "No\ttab",
        ),
        (in_paragraph("y = ", "<m:oMath><m:r><m:t>x + 1</m:t></m:r></m:oMath>"), "y = x + 1"),
    ],
)
def test_shapes_moved_text_and_tabs_of_word(tmp_path: Path, kind: str, body: str, text: str) -> None:
    namespace, others = NAMESPACES[kind]
    last = paragraph("The end.", "berschrift2")
    document = one(tmp_path, "a.docx", docx(body + last, "", namespace, others))
    assert document.text == f"{text}\nThe end."
    assert place(document, "end") == "a.docx, The end."


def test_parts_of_word_are_found_by_relationships_and_notes_are_read(tmp_path: Path) -> None:
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    w = f'xmlns:w="{NAMESPACES["transitional"][0]}"'

    def relationships(**targets: str) -> str:
        items = "".join(
            f'<Relationship Type="{office}/{kind}" Target="{each}"/>' for kind, each in targets.items()
        )
        return f"<Relationships>{items}</Relationships>"

    def notes(kind: str, text: str) -> str:
        return f'<w:{kind}s {w}><w:{kind} w:id="2">{paragraph(text)}</w:{kind}></w:{kind}s>'

    references = '<w:r><w:footnoteReference w:id="2"/><w:endnoteReference w:id="2"/></w:r>'
    body = paragraph("Moon", "h") + in_paragraph("It orbits.", references) + paragraph("The end.")
    members = {
        "_rels/.rels": relationships(officeDocument="/Word/document2.xml"),
        "word/document2.xml": f"<w:document {w}><w:body>{body}</w:body></w:document>",
        "word/_rels/document2.xml.rels": relationships(
            styles="styles2.xml", footnotes="notes/f%201.xml", endnotes="/word/e.xml"
        ),
        "word/styles2.xml": f'<w:styles {w}><w:style w:styleId="h"><w:name w:val="heading 1"/></w:style>'
        "</w:styles>",
        "word/notes/f 1.xml": notes("footnote", "At the foot."),
        "word/e.xml": notes("endnote", "At the end."),
    }
    document = one(tmp_path, "a.docx", zipped(members))
    assert document.text == "Moon\nIt orbits.\nAt the foot.\nAt the end.\nThe end."
    assert place(document, "foot") == "a.docx, Moon"
    members["word/document2.xml"] = "<workbook/>"
    assert "is not a document of Word" in refused(tmp_path, "b.docx", zipped(members))


@pytest.mark.parametrize(
    ("target", "member"),
    [
        ("word/the%20text.xml", "word/the%20text.xml"),
        ("word/the%20text.xml", "word/the text.xml"),
        ("word\\text.xml", "word/text.xml"),
        ("/word/text.xml#top", "word\\Text.xml"),
        ("gone.xml", "word/document.xml"),
    ],
)
def test_names_of_parts_are_written_in_several_ways(tmp_path: Path, target: str, member: str) -> None:
    body = (
        f'<w:document xmlns:w="{NAMESPACES["transitional"][0]}"><w:body>{paragraph("Moon")}</w:body></w:document>'
    )
    relationships = f'<Relationships><Relationship Type="x/officeDocument" Target="{target}"/></Relationships>'
    content = zipped({"_rels/.rels": relationships, member: body})
    assert one(tmp_path, "a.docx", content).text == "Moon"


def test_a_style_before_a_tracked_change_of_word_makes_no_heading(tmp_path: Path) -> None:
    before = '<w:pPrChange><w:pPr><w:pStyle w:val="berschrift1"/></w:pPr></w:pPrChange>'
    body = f"<w:p><w:pPr>{before}</w:pPr><w:r><w:t>Only a sentence.</w:t></w:r></w:p>"
    document = one(tmp_path, "a.docx", docx(body + paragraph("The end.")))
    assert place(document, "end") == "a.docx"


def test_headings_of_word_with_a_shape(tmp_path: Path) -> None:
    box = text_box(paragraph("In the box", "berschrift2"))
    body = paragraph("Intro.") + in_paragraph("Mo", box, "on", style="berschrift1") + paragraph("It orbits.")
    document = one(tmp_path, "a.docx", docx(body, others=NAMESPACES["transitional"][1]))
    assert document.text == "Intro.\nMoon\nIn the box\nIt orbits."
    assert place(document, "orbits") == "a.docx, Moon"


# Books


def test_a_book(tmp_path: Path) -> None:
    chapters = {
        "one": "<html><body><h1>First</h1><p>Bees dance.</p></body></html>",
        "two": "<html><body><h1>Second</h1><p>Lava cools.</p></body></html>",
    }
    document = one(tmp_path, "a.epub", epub(chapters, "A book"))
    assert (document.title, document.text) == ("A book", "First\n\nBees dance.\n\nSecond\n\nLava cools.")
    assert place(document, "Bees") == "a.epub, First"
    assert place(document, "Lava") == "a.epub, Second"


def test_encodings_of_the_parts_of_a_book(tmp_path: Path) -> None:
    page = '<?xml version="1.0" encoding="gb2312"?><html><body><p>{}</p></body></html>'
    members = {
        "META-INF/container.xml": '<container><rootfile full-path="b"/></container>',
        "b": '<?xml version="1.0" encoding="shift_jis"?><package><title>本</title>'
        '<item id="c" href="c" media-type="text/html"/><item id="d" href="d" media-type="text/html"/>'
        '<itemref idref="c"/><itemref idref="d"/></package>'.encode("cp932"),
        "c": page.format("朱镕基").encode("gbk"),
        "d": '<html><meta charset="iso-8859-1"/>東京</html>'.encode(),  # XML is UTF-8 unless it declares another
    }
    document = one(tmp_path, "a.epub", zipped(members))
    assert (document.title, document.text) == ("本", "朱镕基\n\n東京")


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
HOSTILE = {
    "no archive": (b"PK no", "is not a zip archive"),
    "nothing in it": (zipped({"a": "b"}), "has no member"),
    "entities": (zipped({"word/document.xml": f"{BOMB}<x>&b;</x>"}), "declares entities"),
    "deep": (zipped({"word/document.xml": "<a>" * 5000}), "nested deeper"),
    "cut off": (zipped({"word/document.xml": "<a>"}), "not well-formed"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_documents_of_word(tmp_path: Path, kind: str) -> None:
    content, message = HOSTILE[kind]
    assert message in refused(tmp_path, "a.docx", content)


def test_hostile_books(tmp_path: Path) -> None:
    assert "has no member 'META-INF/container.xml'" in refused(tmp_path, "a.epub", zipped({"a": "b"}))
    assert "names no package" in refused(tmp_path, "a.epub", zipped({"META-INF/container.xml": "<a/>"}))
    container = '<container><rootfile full-path="b"/></container>'
    lost = '<package><item id="x" href="../../x" media-type="text/html"/><itemref idref="x"/></package>'
    content = zipped({"META-INF/container.xml": container, "b": lost})
    assert "has a chapter '../../x' that cannot be read" in refused(tmp_path, "a.epub", content)


def test_damaged_and_encrypted_members(tmp_path: Path) -> None:
    content = bytearray(docx(paragraph("x" * 1000)))
    content[60] ^= 255
    assert "damaged member" in refused(tmp_path, "a.docx", bytes(content))
    flagged = bytearray(docx(paragraph("x")))
    directory = flagged.index(b"PK\x01\x02")
    flagged[directory + 8] |= 1
    assert "encrypted" in refused(tmp_path, "b.docx", bytes(flagged))


# PDF


def test_the_pages_of_a_pdf_file(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    document = one(tmp_path, "manual.pdf", pdf(["Bees dance.", "", "Lava cools.\nIt becomes rock."], "Manual"))
    assert document.title == "Manual"
    assert document.text == "Bees dance.\n\n\n\nLava cools.\nIt becomes rock."
    assert place(document, "Bees") == "manual.pdf, p. 1"
    assert place(document, "rock") == "manual.pdf, p. 3"
    assert place(document, "dance.\n\n\n\nLava") == "manual.pdf, pp. 1-3"


def test_broken_pdf_files(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    for content in (b"", b"%PDF-1.4\n", b"%PDF" * 1000, pdf(["a"])[:50]):
        if content:
            assert "PDF" in refused(tmp_path, "a.pdf", content)
    assert read(tmp_path, "scan.pdf", pdf(["", ""])) == []


def test_pdf_files_are_read_on_several_threads(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    content = pdf([f"Page {number}" for number in range(40)])
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: texts.append(one(tmp_path, f"{n}.pdf", content).text))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4
    assert len(set(texts)) == 1


def form_of_forms(n_levels: int) -> bytes:
    """Return a PDF file with a page that draws a form ten times, which draws another one ten times, and so on."""
    page = pdf(["a"])
    resources = b"/Resources << /Font << /F1 3 0 R >>"
    numbers = [7 + number for number in range(n_levels + 1)]
    forms = b"".join(
        b"%d 0 obj\n<< /Type /XObject /Subtype /Form /BBox [0 0 612 792] %s /XObject << /X %d 0 R >> >>"
        b" /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (number, resources, number + 1, len(drawn), drawn)
        for number in numbers
        for drawn in [b"/X Do " * 10 + b"BT /F1 12 Tf 72 720 Td (a) Tj ET"]
    )
    head = page.partition(b"xref\n")[0].replace(b"/F1 3 0 R >> >>", b"/F1 3 0 R >> /XObject << /X 7 0 R >> >>")
    return head.replace(b"BT /F1", b"/X Do BT /F1") + forms + b"trailer\n<< /Size 99 /Root 1 0 R >>\n"


def test_a_pdf_file_that_would_take_years(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    assert one(tmp_path, "a.pdf", form_of_forms(0)).text
    with pytest.raises(UnreadableError, match=r"takes more than 0\.2 seconds to read"):
        pdf_files.read_pdf(form_of_forms(20), limit_s=0.2)


def test_a_pdf_file_at_which_the_library_crashes(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("pypdfium2")
    (tmp_path / "pypdfium2.py").write_text("import os\nos.abort()\n")
    monkeypatch.syspath_prepend(tmp_path)  # of the program that reads the file
    assert "that the library fails at" in refused(tmp_path, "a.pdf", pdf(["a"]))


def test_programs_that_are_no_python_read_pdf_files_themselves(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("pypdfium2")
    content = pdf(["One.", "Two."], "Title")
    apart = one(tmp_path, "a.pdf", content)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "run", None)
    here = one(tmp_path, "a.pdf", content)
    assert (here.title, here.text) == (apart.title, apart.text) == ("Title", "One.\n\nTwo.")
    assert "PDF" in refused(tmp_path, "a.pdf", b"%PDF-1.4\n")


def test_without_the_library_pdf_files_say_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    assert "pip install 'quarry-search[documents]'" in refused(tmp_path, "a.pdf", b"%PDF")


# Places


@pytest.mark.parametrize(
    "outline",
    [
        Outline(),
        Outline("line"),
        Outline("page", (0, 10, 10, 500)),
        Outline("cell", (0,), (Heading(1, 0, 4), Heading(3, 4, 9))),
        Outline(headings=(Heading(2, 7, 8),)),
    ],
)
def test_outlines_come_back(outline: Outline) -> None:
    assert Outline.unpacked(outline.packed()) == outline


@pytest.mark.parametrize("packed", [None, 5, "x", "line|1 2", "page -1", "page x", "|1 -5 2", "a|b"])
def test_an_invalid_outline_is_read_as_empty(packed: object) -> None:
    assert Outline.unpacked(packed) == Outline()


def test_the_outline_of_a_long_document_keeps_the_upper_headings() -> None:
    headings = tuple(Heading(1 + (number % 10 > 0), 100 * number, 100 * number + 50) for number in range(10_000))
    packed = Outline("line", headings=headings).packed()
    assert len(packed) <= 32 << 10
    assert Outline.unpacked(packed).headings == headings[::10]
    many = Outline("page", tuple(range(0, 10_000_000, 100)))
    assert many.packed() == ""


def test_a_passage_is_under_the_heading_that_it_begins_with(tmp_path: Path) -> None:
    text = "# First\n\n" + "one word. " * 40 + "\n\n## Second\n\n" + "other word. " * 40
    (tmp_path / "notes.md").write_text(text, encoding="utf-8")
    engine.build(tmp_path / "notes.md", tmp_path / "index", passage_words=60)
    with engine.Engine.open(tmp_path / "index") as index:
        hits = sorted(index.search("word", k=9, unit="passage"), key=lambda hit: hit.passage or 0)
        assert [hit.place.headings for hit in hits if hit.place] == [("First",)] * 2 + [("First", "Second")] * 2


def test_a_hit_says_where_it_was_found(tmp_path: Path) -> None:
    filler = "\n".join(f"Nothing to see in line {number} of this file." for number in range(2, 40))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notes.md").write_text(
        f"# Notes\n{filler}\n## Volcanoes\nLava becomes rock when it cools.\n"
    )
    engine.build(tmp_path / "docs", tmp_path / "index")
    with engine.Engine.open(tmp_path / "index") as index:
        (hit,) = index.search("molten stone turns solid", explain=True)
        assert "Lava" in hit.matches[0].text
        assert hit.place.path == "notes.md"
        assert hit.place.unit == "line"
        assert hit.place.first <= 41 == hit.place.last
        assert hit.place_of(None) == engine.FilePlace("notes.md")
        (plain,) = index.search("lava")
        assert plain.place == hit.place
        (given,) = index.search("lava", filter={"file.type": "markdown"})
        assert given.id == "notes.md"


# Folders


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")
def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in (
        "b.txt",
        "a/z.md",
        "a.txt",
        "a/b/c.py",
        "a-b.txt",
        ".hidden/x.txt",
        ".y.txt",
        "c.bin",
        "d/empty.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if "empty" in name else f"Text of {name}.")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    stream = read_documents(tmp_path)
    assert [document.id for document in stream] == ["a/b/c.py", "a/z.md", "a-b.txt", "a.txt", "b.txt"]
    assert stream.fraction_read() == 1.0


def test_one_bad_file_of_a_folder_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"no")
    (tmp_path / "b.txt").write_text("Text.")
    with pytest.raises(InvalidDocument, match=r"a\.docx: the file is not a zip archive"):
        list(read_documents(tmp_path))
    stream = read_documents(tmp_path, skip_invalid=True)
    assert [document.id for document in stream] == ["b.txt"]
    assert stream.n_skipped == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidSetting, match="without a file"):
        read_documents(tmp_path / "none")


def test_the_rows_of_tables_in_a_folder_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Text.")
    (tmp_path / "b.jsonl").write_text('{"_id": "x", "text": "One"}\n{"text": "Two", "metadata": {"n": 1}}\n')
    (tmp_path / "c.csv").write_text("text,n\nThree,3\n")
    (tmp_path / "config.json").write_text('{\n"a": 1}')
    (tmp_path / "d.csv.gz").write_bytes(b"no")
    stream = read_documents(tmp_path)
    found = {document.id: (document.text, document.metadata.get("n")) for document in stream}
    assert found == {
        "a.txt": ("Text.", None),
        "b.jsonl#x": ("One", None),
        "b.jsonl#2": ("Two", 1),
        "c.csv#1": ("Three", 3),
    }
    assert (stream.n_read, stream.n_skipped) == (4, 1)
    assert "config.json: line 1 is not JSON" in stream.first_errors[0]


def test_vectors_of_tables_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"id": "x", "text": "ab", "vectors": [[1, 2], [3, 4]], "spans": [[0, 1], [1, 2]]}'
    )
    (document,) = read_documents(tmp_path)
    assert (document.vectors.tolist(), document.spans) == ([[1, 2], [3, 4]], ((0, 1), (1, 2)))


def test_a_bad_row_of_a_table_in_a_folder_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\nOne\n1,2\nThree\n")
    (tmp_path / "b.json").write_text('[{"text": "Four"}, 5, {"text": "Six"}, ')
    with pytest.raises(InvalidDocument, match=r"a\.csv: line 3 has too many values"):
        list(read_documents(tmp_path))
    stream = read_documents(tmp_path, skip_invalid=True)
    assert [document.id for document in stream] == ["a.csv#1", "a.csv#3", "b.json#1", "b.json#3"]
    assert stream.n_skipped == 3


def test_a_folder_of_tables_without_the_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("blurb\nOne\n")
    (tmp_path / "b.csv").write_text("n\n1\n")
    with pytest.raises(
        InvalidSetting, match=r"no file of the folder holds documents.*a\.csv: the table has no column"
    ):
        list(read_documents(tmp_path))
    stream = read_documents(tmp_path, columns=Columns(text=("blurb",)))
    assert [document.id for document in stream] == ["a.csv#1"]
    (tmp_path / "a.csv").write_text("text,file\nOne,x\n")
    stream = read_documents(tmp_path, columns=Columns(text=("n",)))
    assert [document.id for document in stream] == ["b.csv#1"]
    assert len(stream.first_errors) == 1


@pytest.mark.parametrize("name", ["a.txt", "folder", "items"])
def test_names_of_columns_without_a_table_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "a.txt", tmp_path / "folder" / "a.txt"):
        path.write_text("Text.")
    source = ["Text."] if name == "items" else tmp_path / name
    columns = Columns.of("isbn", None, "name")
    with pytest.raises(InvalidSetting, match=r"id=, title= of a source without columns"):
        list(read_documents(source, columns=columns))


# Hostile files are refused or read within seconds, and the files beside them are read


def nested_mail(line: bytes, n_levels: int, n_lines: int) -> bytes:
    levels = b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(n_levels)
    )
    return b"Subject: x\n" + levels + b"Content-Type: text/plain\n\n" + line * n_lines


def directory_of_members(n_members: int) -> bytes:
    """Return an archive whose directory lists one member many times."""
    one = zipped({"a": ""})
    start, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    return one[:start] + one[start:end] * n_members + one[end:]


def compressed_by(method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("word/document.xml", "<a/>")
    return buffer.getvalue()


ATTACKS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "headers": ("a.eml", lambda: b"Subject: x\n" + b"X: y\n" * 30_000, "more than 20000 headers"),
    "levels": ("a.eml", lambda: nested_mail(b"text\n", 90, 200_000), "too many multipart contents: 90"),
    "parts": ("a.eml", lambda: nested_mail(b"--b0\n\na\n", 1, 30_000), "20000 lines between parts"),
    "few parts": ("a.eml", lambda: nested_mail(b"--b0\n\na\n", 1, 2000), "more than 1000 parts"),
    "messages in it": ("a.eml", lambda: b"Subject: x\n" + b"Content-Type: message/rfc822\n\n" * 9999, "Recursion"),
    "delivery status": (
        "a.eml",
        lambda: b"Subject: x\nContent-Type: message/delivery-status\n\n" + b"a: b\n\n" * 30_000,
        "20000 lines between parts",
    ),
    "compression": ("a.docx", lambda: compressed_by(zipfile.ZIP_LZMA), "of a compression"),
    "default attributes": (
        "a.docx",
        lambda: zipped({"word/document.xml": b"<!DOCTYPE x [<!ATTLIST p y CDATA 'zz'>]><a/>"}),
        "declares entities or attributes",
    ),
    "lines": ("a.md", lambda: b"\n" * (5 << 20) + b"a", "is too long: split it"),
    "lines of a cell": (
        "a.ipynb",
        lambda: b'{"cells": [{"cell_type": "markdown", "source": "' + b"\\n" * (5 << 20) + b'a"}]}',
        "is too long: split it",
    ),
    "number": ("a.ipynb", lambda: b'{"cells": [], "x": ' + b"9" * 99_999 + b"}", "not a notebook in JSON"),
    "columns": ("a.csv", lambda: b",".join(b"c%d" % n for n in range(200_000)) + b"\n", "no column 'text'"),
    "items": ("a.json", lambda: b"[" * 200_000, "is not JSON"),
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_hostile_file_is_refused_and_others_are_read(tmp_path: Path, kind: str) -> None:
    name, make, message = ATTACKS[kind]
    (tmp_path / name).write_bytes(make())
    (tmp_path / "z.txt").write_text("Text.")
    stream = read_documents(tmp_path, skip_invalid=True)
    assert [document.id for document in stream] == ["z.txt"]
    (error,) = stream.first_errors
    assert message in error
    assert len(error) < 1000


LIMITS: dict[str, tuple[Callable[[], object], str]] = {
    "large message": (
        lambda: read_message(b"Subject: x\n\n" + b" " * 1000, max_bytes=1000),
        "more than 1000 bytes",
    ),
    "tags in mail": (
        lambda: read_message(b"Subject: x\nContent-Type: text/html\n\n" + b"<a>" * 101, max_tags=100),
        "more than 100 tags",
    ),
    "messages": (lambda: list(read_mailbox(b"From x\nTo: a\n\n" * 11, max_messages=10)), "more than 10 messages"),
    "members": (lambda: Archive(directory_of_members(11), max_members=10), "11 members"),
    "member": (lambda: Archive(zipped({"a": b" " * 1001}), max_member_bytes=1000).read("a"), "than 1000 bytes"),
    "archive": (lambda: read_all(zipped({"a": b" " * 600, "b": b" " * 600}), 1000), "of more than 400 bytes"),
    "elements": (lambda: parse_xml(b"<p/>" * 101, print, max_marks=100), "than 100 tags and attributes"),
    "attributes": (
        lambda: parse_xml(b"<p " + b"a=''" * 100, print, max_marks=100),
        "than 100 tags and attributes",
    ),
    "text": (lambda: read_epub(epub({"c": "a " * 600}), max_characters=1000), "more than 1000 characters"),
    "line ends": (lambda: read_plain(b"\r" * 8001, max_characters=1000), "more than 1000 characters"),
    "tags": (lambda: read_html(b"<a>" * 101, max_tags=100), "more than 100 tags"),
    "chapters": (lambda: read_epub(epub({f"c{n}": "<a>" * 30 for n in range(4)}), max_tags=100), "than 100 tags"),
    "values": (lambda: read_notebook(b'{"x": [' + b"{}," * 101, max_values=100), "more than 100 values"),
}


def read_all(content: bytes, max_total_bytes: int) -> None:
    archive = Archive(content, max_total_bytes=max_total_bytes)
    archive.read("a")
    archive.read("b")


@pytest.mark.parametrize("kind", LIMITS)
def test_limits(kind: str) -> None:
    read_too_much, message = LIMITS[kind]
    with pytest.raises(UnreadableError, match=message):
        read_too_much()


SLOW_FOR_THE_LIBRARY = {
    "words": b"Subject: " + b"a b, " * 200_000,
    "encoded words": b"Subject: " + b"=?utf-8?q?a?= " * 50_000,
    "addresses": b"Subject: x\nTo: " + b"a <a@b>, " * 50_000,
    "comments": b"Subject: x\nTo: " + b"(" * 100_000,
    "parameters": b"Subject: x\nContent-Type: text/plain; " + b"; ".join(b"a*%d=x" % n for n in range(50_000)),
    "date": b"Subject: x\nDate: " + b"1 " * 200_000,
    "punycode": b"Subject: x\nContent-Type: text/plain; charset=punycode",
}


@pytest.mark.parametrize("kind", SLOW_FOR_THE_LIBRARY)
def test_long_headers_are_cut_off(tmp_path: Path, kind: str) -> None:
    body = b"text a-" + b"z9" * 500_000
    document = one(tmp_path, "a.eml", SLOW_FOR_THE_LIBRARY[kind] + b"\n\n" + body)
    assert document.text == body.decode()
    assert len(document.title) <= 2000


def test_a_page_in_an_encoding_for_names_of_hosts(tmp_path: Path) -> None:
    assert one(tmp_path, "a.html", b"<meta charset=punycode>a-" + b"z9" * 500_000).text.startswith("a-z9")
