"""Log messages, their loggers, and what is not logged."""

from __future__ import annotations

import logging

from support.indexes.changes import SMALL, documents, open_index, options

from quarry import engine

SECRETS = {f"secret-id-{number}": f"secret text {number}" for number in range(6)}


def run(path):
    engine.build(documents(SECRETS), path, **options())
    with open_index(path, writable=True, thresholds=SMALL) as index:
        index.add(documents({"secret-id-new": "secret text new"}))
        index.delete("secret-id-1")
        index.commit()
        index.merge()
        index.optimize()
        index.search("secret text")
        list(index)


def test_changes_are_logged_without_what_is_in_the_index(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, logger="quarry"):
        run(tmp_path / "index")
    records = [record for record in caplog.records if record.name.startswith("quarry.engine.")]
    infos = [record.getMessage() for record in records if record.levelno == logging.INFO]
    for message in ("built generation 1, 6 documents", "committed generation 2, 1 new", "merged 2 segments"):
        assert any(message in each for each in infos), (message, infos)
    assert any("opened for writing" in each for each in infos)
    assert any("building a graph" in record.getMessage() for record in records if record.levelno == logging.DEBUG)
    assert "secret" not in caplog.text


def test_messages_are_formatted_only_when_they_are_wanted(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, logger="quarry"):
        run(tmp_path / "index")
    assert all(record.args for record in caplog.records if record.name.startswith("quarry."))


def test_the_library_installs_no_handler_and_sets_no_level(tmp_path):
    run(tmp_path / "index")
    names = ["quarry", *(name for name in logging.root.manager.loggerDict if name.startswith("quarry."))]
    for logger in map(logging.getLogger, names):
        assert not logger.handlers
        assert logger.level == logging.NOTSET
        assert logger.propagate
